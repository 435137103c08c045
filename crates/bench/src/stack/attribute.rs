//! Samples of the kernel, given to parts by their chains of callers.
//!
//! A sample belongs to the innermost function of its chain that a rule names: what a function calls belongs to it, unless
//! another rule takes it on the way.

use super::part::{Cycles, PARTS, Part};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::io::BufRead;

/// A kernel function, by whom it is called where that matters, and where its time belongs.
type Rule = (&'static str, Option<&'static str>, Part);

/// The study's functions by their names of today (Linux 6), and what is around them. The study's are: `tcp_alloc_skb`,
/// `skb_add_data`, `wait_for_tcp_memory`; `tcp_v4_rcv` (what is left of it), the functions for ACKs, `tcp_copy_to_iovec`,
/// `__kfree_skb`.
const RULES: &[Rule] = &[
    ("tcp_stream_alloc_skb", None, Part::Allot),
    ("sk_page_frag_refill", None, Part::Allot),
    ("tcp_wmem_schedule", None, Part::Allot),
    ("tcp_skb_entail", None, Part::Allot),
    ("_copy_from_iter", None, Part::CopyIn),
    ("skb_copy_to_page_nocache", None, Part::CopyIn),
    ("__check_object_size", Some("tcp_sendmsg_locked"), Part::CopyIn),
    ("sk_stream_wait_memory", None, Part::WaitSpace),
    ("tcp_ack", None, Part::Acknowledge),
    ("tcp_send_ack", None, Part::Acknowledge),
    ("__tcp_send_ack", None, Part::Acknowledge),
    ("__tcp_ack_snd_check", None, Part::Acknowledge),
    ("__tcp_cleanup_rbuf", None, Part::Acknowledge),
    ("__tcp_transmit_skb", Some("tcp_recvmsg_locked"), Part::Acknowledge),
    ("tcp_delack_timer_handler", None, Part::Acknowledge),
    ("skb_copy_datagram_iter", None, Part::CopyOut),
    ("__skb_datagram_iter", None, Part::CopyOut),
    ("simple_copy_to_iter", None, Part::CopyOut),
    ("_copy_to_iter", None, Part::CopyOut),
    ("__kfree_skb", None, Part::Free),
    ("skb_release_data", None, Part::Free),
    ("skb_attempt_defer_free", None, Part::Free),
    ("skb_defer_free_flush", None, Part::Free),
    ("napi_consume_skb", None, Part::Free),
    ("kfree_skb_partial", None, Part::Free),
    ("tcp_eat_recv_skb", None, Part::Free),
    ("sock_def_readable", None, Part::Wake),
    ("tcp_data_ready", None, Part::Wake),
    ("sk_stream_write_space", None, Part::Wake),
    ("sk_wait_data", None, Part::WaitData),
    ("tcp_write_xmit", None, Part::SendOther),
    ("__tcp_push_pending_frames", None, Part::SendOther),
    ("tcp_push", None, Part::SendOther),
    ("tcp_sendmsg", None, Part::SendOther),
    ("tcp_tsq_handler", None, Part::SendOther),
    ("tcp_pace_kick", None, Part::SendOther),
    ("tcp_v4_do_rcv", None, Part::HeaderCheck),
    ("tcp_v4_rcv", None, Part::HeaderCheck),
    ("tcp_recvmsg", None, Part::ReceiveOther),
    ("tcp_gro_receive", None, Part::ReceiveOther),
    ("__ip_queue_xmit", None, Part::SendIp),
    ("ip_queue_xmit", None, Part::SendIp),
    ("ip_rcv", None, Part::ReceiveIp),
    ("ip_list_rcv", None, Part::ReceiveIp),
    ("ip_local_deliver", None, Part::ReceiveIp),
    ("ip_protocol_deliver_rcu", None, Part::ReceiveIp),
    ("inet_gro_receive", None, Part::ReceiveIp),
    ("__dev_queue_xmit", None, Part::Device),
    ("dev_hard_start_xmit", None, Part::Device),
    ("net_rx_action", None, Part::Device),
    ("handle_softirqs", None, Part::Device),
    ("__do_softirq", None, Part::Device),
    ("asm_sysvec_apic_timer_interrupt", None, Part::Device),
    ("asm_common_interrupt", None, Part::Device),
    ("asm_sysvec_call_function_single", None, Part::Device),
    ("asm_sysvec_reschedule_ipi", None, Part::Device),
    ("entry_SYSCALL_64_after_hwframe", None, Part::Call),
    ("entry_SYSCALL_64", None, Part::Call),
    ("el0t_64_sync", None, Part::Call),
];

/// Parts whose functions are of TCP and IP only.
const NETWORK: [Part; 6] = [
    Part::SendOther,
    Part::SendIp,
    Part::HeaderCheck,
    Part::Acknowledge,
    Part::ReceiveOther,
    Part::ReceiveIp,
];

/// Samples of some processes, by part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    samples: [u64; PARTS],
    symbols: BTreeMap<(Part, &'static str), u64>,
    /// Samples of other processes, idle processors among them, in which TCP or IP was at work.
    elsewhere: u64,
}

impl Profile {
    /// Reads what `perf script -F pid,ip,sym` prints, and keeps the samples of processes `pids`.
    ///
    /// # Errors
    /// The text breaks off, or the kernel's functions have no names in it.
    pub fn read(script: impl BufRead, pids: &[u32]) -> Result<Self> {
        let (mut profile, mut chain, mut ours) = (Self::default(), Vec::new(), false);
        for line in script.lines() {
            let line = line?;
            if line.trim().is_empty() {
                profile.take(&mut chain, ours);
            } else if let Some(frame) = line.strip_prefix('\t') {
                chain.push(name(frame).to_owned());
            } else {
                ours = line.trim().parse().is_ok_and(|pid| pids.contains(&pid));
            }
        }
        profile.take(&mut chain, ours);
        ensure!(
            !profile.symbols.is_empty() || profile.total() == 0,
            "the samples have no names of kernel functions: run as root, or `sysctl kernel.kptr_restrict=0`"
        );
        Ok(profile)
    }

    /// Takes a chain, innermost first.
    fn take(&mut self, chain: &mut Vec<String>, ours: bool) {
        if chain.is_empty() {
            return;
        }
        let callers = chain.iter().skip(1).map(|caller| Some(&**caller)).chain([None]);
        let found = chain.iter().zip(callers).find_map(|(symbol, caller)| rule(symbol, caller));
        let (part, symbol) = found.map_or((Part::Program, None), |(symbol, _, part)| (*part, Some(*symbol)));
        chain.clear();
        if !ours {
            self.elsewhere += u64::from(NETWORK.contains(&part));
            return;
        }
        self.samples[part as usize] += 1;
        if let Some(symbol) = symbol {
            *self.symbols.entry((part, symbol)).or_default() += 1;
        }
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.samples.iter().sum()
    }

    /// Samples of TCP and IP in other processes than those that were asked for.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Self) {
        self.samples.iter_mut().zip(other.samples).for_each(|(all, more)| *all += more);
        other.symbols.iter().for_each(|(key, more)| *self.symbols.entry(*key).or_default() += more);
        self.elsewhere += other.elsewhere;
    }

    /// `cycles` in all, shared out by samples.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn share(&self, cycles: f64) -> Cycles {
        let mut shared = Cycles::default();
        let each = cycles / self.total().max(1) as f64;
        shared.0.iter_mut().zip(self.samples).for_each(|(part, count)| *part = Some(count as f64 * each));
        shared
    }

    /// The functions that samples of `part` were found in, with their numbers, most first.
    pub fn symbols(&self, part: Part) -> Vec<(&'static str, u64)> {
        let of_part = self.symbols.iter().filter(|((of, _), _)| *of == part);
        let mut found: Vec<_> = of_part.map(|((_, symbol), count)| (*symbol, *count)).collect();
        found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        found
    }
}

/// The function's name in a frame `ADDRESS NAME`, without what compilers add (`.isra.0`).
fn name(frame: &str) -> &str {
    let name = frame.trim_start().split_once(' ').map_or("", |(_, name)| name.trim());
    name.split_once('.').map_or(name, |(name, _)| name)
}

fn rule(symbol: &str, caller: Option<&str>) -> Option<&'static Rule> {
    RULES.iter().find(|(name, by, _)| *name == symbol && by.is_none_or(|by| caller == Some(by)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18: 14 samples of a sender (15861) and a receiver (15673), one of another connection, one of nobody.
    const SCRIPT: &str = include_str!("../captured/perf-script.txt");

    fn profile(pids: &[u32]) -> Profile {
        Profile::read(SCRIPT.as_bytes(), pids).unwrap()
    }

    #[test]
    fn a_sample_belongs_to_the_innermost_function_that_is_known() {
        let profile = profile(&[15861, 15673]);
        assert_eq!((profile.total(), profile.elsewhere()), (14, 1));
        let cycles = profile.share(14.0);
        for (part, samples) in [
            (Part::Allot, 1.0),
            (Part::CopyIn, 2.0),
            (Part::SendOther, 1.0),
            (Part::SendIp, 1.0),
            (Part::HeaderCheck, 1.0),
            (Part::Acknowledge, 1.0),
            (Part::CopyOut, 1.0),
            (Part::Free, 1.0),
            (Part::Wake, 1.0),
            (Part::WaitData, 1.0),
            (Part::Device, 1.0),
            (Part::Call, 1.0),
            (Part::Program, 1.0),
            (Part::WaitSpace, 0.0),
        ] {
            assert_eq!(cycles.of(part), Some(samples), "{part:?}: {profile:?}");
        }
        assert_eq!(profile.symbols(Part::CopyIn), [("__check_object_size", 1), ("_copy_from_iter", 1)]);
        assert_eq!(profile.symbols(Part::Allot), [("tcp_stream_alloc_skb", 1)], "not __alloc_skb");
    }

    #[test]
    fn runs_add_up() {
        let (mut all, one) = (profile(&[15861]), profile(&[15673]));
        let sent = all.total();
        all.merge(&one);
        assert_eq!(all.total(), sent + one.total());
        assert!(all.symbols(Part::CopyOut) == one.symbols(Part::CopyOut) && sent < 14);
    }

    #[test]
    fn a_kernel_that_hides_its_names_is_refused() {
        let hidden = "7 \n\tffffffff8200d354 [unknown]\n\tffffffff8200ec5b [unknown]\n\n";
        let error = Profile::read(hidden.as_bytes(), &[7]).unwrap_err().to_string();
        assert!(error.contains("kptr_restrict"), "{error}");
        assert_eq!(Profile::read("".as_bytes(), &[7]).unwrap(), Profile::default());
    }

    #[test]
    fn the_last_sample_needs_no_line_behind_it() {
        let script = "7 \n\tff tcp_sendmsg.isra.0\n\tff entry_SYSCALL_64_after_hwframe";
        let profile = Profile::read(script.as_bytes(), &[7]).unwrap();
        assert_eq!(profile.symbols(Part::SendOther), [("tcp_sendmsg", 1)]);
    }
}
