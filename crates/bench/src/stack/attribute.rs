//! Attributes samples of the kernel to parts by their call chains.
//!
//! A sample belongs to the innermost function of its chain that a rule names: a function's callees belong to it, unless
//! another rule names them.

use super::part::{Cycles, PARTS, Part};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::io::BufRead;

/// The kernel's functions that belong to a part, separated by blanks; behind `<` their callers, where that matters.
type Rule = (Part, &'static str);

/// The study's functions by their names of today (Linux 6), and what is around them. The study's are: `tcp_alloc_skb`,
/// `skb_add_data`, `wait_for_tcp_memory`; `tcp_v4_rcv` (what is left of it), the functions for ACKs, `tcp_copy_to_iovec`,
/// `__kfree_skb`.
const RULES: &[Rule] = &[
    (Part::Allot, "tcp_stream_alloc_skb sk_page_frag_refill tcp_wmem_schedule tcp_skb_entail"),
    (Part::CopyIn, "_copy_from_iter skb_copy_to_page_nocache __check_object_size<tcp_sendmsg_locked"),
    (Part::WaitSpace, "sk_stream_wait_memory"),
    (
        Part::Acknowledge,
        "tcp_ack tcp_send_ack __tcp_send_ack __tcp_ack_snd_check __tcp_cleanup_rbuf \
         __tcp_transmit_skb<tcp_recvmsg_locked tcp_delack_timer_handler",
    ),
    (Part::CopyOut, "skb_copy_datagram_iter __skb_datagram_iter simple_copy_to_iter _copy_to_iter"),
    (
        Part::Free,
        "__kfree_skb skb_release_data skb_attempt_defer_free skb_defer_free_flush napi_consume_skb \
         kfree_skb_partial tcp_eat_recv_skb",
    ),
    (Part::Wake, "sock_def_readable tcp_data_ready sk_stream_write_space"),
    (Part::WaitData, "sk_wait_data"),
    (
        Part::SendOther,
        "tcp_write_xmit __tcp_push_pending_frames tcp_push tcp_sendmsg tcp_tsq_handler tcp_pace_kick",
    ),
    (Part::HeaderCheck, "tcp_v4_do_rcv tcp_v4_rcv"),
    (Part::ReceiveOther, "tcp_recvmsg tcp_gro_receive"),
    (Part::SendIp, "__ip_queue_xmit ip_queue_xmit"),
    (Part::ReceiveIp, "ip_rcv ip_list_rcv ip_local_deliver ip_protocol_deliver_rcu inet_gro_receive"),
    (
        Part::Device,
        "__dev_queue_xmit dev_hard_start_xmit net_rx_action handle_softirqs __do_softirq \
         asm_sysvec_apic_timer_interrupt asm_common_interrupt asm_sysvec_call_function_single \
         asm_sysvec_reschedule_ipi",
    ),
    (Part::Call, "entry_SYSCALL_64_after_hwframe entry_SYSCALL_64 el0t_64_sync"),
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
        let part = found.map_or(Part::Program, |(part, _)| part);
        chain.clear();
        if !ours {
            self.elsewhere += u64::from(NETWORK.contains(&part));
            return;
        }
        self.samples[part as usize] += 1;
        if let Some(found) = found {
            *self.symbols.entry(found).or_default() += 1;
        }
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.samples.iter().sum()
    }

    /// Samples of TCP and IP in processes other than the requested ones.
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

/// Functions that rules name, their callers too where those matter.
pub(super) fn traced() -> Vec<&'static str> {
    RULES.iter().flat_map(|(_, names)| names.split(' ')).flat_map(|name| name.split('<')).collect()
}

/// The part of a function's time, and its name, if a rule has it.
pub(super) fn rule(symbol: &str, caller: Option<&str>) -> Option<(Part, &'static str)> {
    let all = RULES.iter().flat_map(|(part, names)| names.split(' ').map(move |name| (*part, name)));
    let mut fitting = all.filter_map(|(part, name)| match name.split_once('<') {
        Some((name, by)) => (name == symbol && caller == Some(by)).then_some((part, name)),
        None => (name == symbol).then_some((part, name)),
    });
    fitting.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18: 14 samples of a sender (15861) and a receiver (15673), one of another connection, one of no process.
    const SCRIPT: &str = include_str!("../captured/perf-script.txt");

    fn profile(pids: &[u32]) -> Profile {
        Profile::read(SCRIPT.as_bytes(), pids).unwrap()
    }

    #[test]
    fn sample_belongs_to_the_innermost_known_function() {
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
    fn sample_runs_add_up() {
        let (mut all, one) = (profile(&[15861]), profile(&[15673]));
        let sent = all.total();
        all.merge(&one);
        assert_eq!(all.total(), sent + one.total());
        assert!(all.symbols(Part::CopyOut) == one.symbols(Part::CopyOut) && sent < 14);
    }

    #[test]
    fn kernel_that_hides_its_symbols_is_refused() {
        let hidden = "7 \n\tffffffff8200d354 [unknown]\n\tffffffff8200ec5b [unknown]\n\n";
        let error = Profile::read(hidden.as_bytes(), &[7]).unwrap_err().to_string();
        assert!(error.contains("kptr_restrict"), "{error}");
        assert_eq!(Profile::read("".as_bytes(), &[7]).unwrap(), Profile::default());
    }

    #[test]
    fn sample_at_the_end_needs_no_line_behind_it() {
        let script = "7 \n\tff tcp_sendmsg.isra.0\n\tff entry_SYSCALL_64_after_hwframe";
        let profile = Profile::read(script.as_bytes(), &[7]).unwrap();
        assert_eq!(profile.symbols(Part::SendOther), [("tcp_sendmsg", 1)]);
    }
}
