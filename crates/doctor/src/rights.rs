//! What this process may do, as the daemon and programs of this user may.

use crate::finding::{Check, Finding, Severity};
use crate::tree::{Tree, Unread};

const CAP_NET_ADMIN: u32 = 12;
/// Below this a daemon has few streams: it keeps a quarter of the limit for them.
const FEW_FILES: u64 = 4096;

/// Says what is missing.
pub(crate) fn examine(tree: &Tree, found: &mut Vec<Finding>) {
    found.push(tun(tree));
    let limits = tree.text("proc/self/limits").unwrap_or_default();
    found.extend(files(&limits));
    found.extend(locked(&limits));
    found.extend(namespaces(tree));
    found.extend(ptrace(tree));
}

fn tun(tree: &Tree) -> Finding {
    let reason = "the daemon's interface, by which programs find each other, is a TUN device; with `interface = \"\"` it needs none";
    let stat = match tree.stat("dev/net/tun") {
        Ok(stat) => stat,
        Err(why) => {
            let seen = if why == Unread::Absent {
                "there is no /dev/net/tun"
            } else {
                "/dev/net/tun cannot be looked at"
            };
            return Finding::new(Check::Tun, Severity::Warning, seen)
                .why(reason)
                .fix("`modprobe tun`; in a container `--device /dev/net/tun --cap-add NET_ADMIN`");
        }
    };
    let mode = stat.st_mode & 0o777;
    let seen = format!("/dev/net/tun has mode {mode:04o}");
    match may_administer(tree) {
        Some(true) => {
            Finding::new(Check::Tun, Severity::Ok, format!("{seen}, and CAP_NET_ADMIN is there")).why(reason)
        }
        Some(false) => {
            Finding::new(Check::Tun, Severity::Info, format!("{seen}, and this process lacks CAP_NET_ADMIN"))
                .why(reason)
                .fix("run the daemon as root, or by dist/crosslaned.service, which has that one right")
        }
        None => Finding::new(
            Check::Tun,
            Severity::Info,
            format!("{seen}; the rights of this process are not known"),
        )
        .why(reason),
    }
}

fn may_administer(tree: &Tree) -> Option<bool> {
    let status = tree.text("proc/self/status").ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let rights = u64::from_str_radix(hex.trim(), 16).ok()?;
    Some(rights >> CAP_NET_ADMIN & 1 == 1)
}

/// The soft and hard limit of `name`; `u64::MAX` for unlimited.
fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut numbers = rest
        .split_whitespace()
        .map(|word| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() });
    Some((numbers.next()??, numbers.next()??))
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

fn files(limits: &str) -> Option<Finding> {
    let (soft, hard) = limit(limits, "Max open files")?;
    let seen = format!("{} open files, at most {}", shown(soft), shown(hard));
    if hard < FEW_FILES {
        let finding = Finding::new(Check::Files, Severity::Warning, seen);
        return Some(
            finding
                .why("each stream takes descriptors of the daemon and of its program")
                .fix("raise it: `LimitNOFILE=` of the service, or /etc/security/limits.conf"),
        );
    }
    Some(
        Finding::new(Check::Files, Severity::Ok, seen)
            .why("the daemon raises its own to the most that it may have"),
    )
}

fn locked(limits: &str) -> Option<Finding> {
    let (soft, _) = limit(limits, "Max locked memory")?;
    let finding =
        Finding::new(Check::Locked, Severity::Ok, format!("{} bytes of locked memory", shown(soft)));
    Some(finding.why("nothing of Crosslane locks memory: what bridges reach is the module's"))
}

fn namespaces(tree: &Tree) -> Option<Finding> {
    let most = tree.number("proc/sys/user/max_user_namespaces");
    let off = most == Some(0)
        || tree.number("proc/sys/kernel/unprivileged_userns_clone") == Some(0)
        || tree.number("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    if !off && most.is_none() {
        return None;
    }
    let (severity, seen) = if off {
        (Severity::Info, "ordinary users may make none")
    } else {
        (Severity::Ok, "ordinary users may make them")
    };
    let finding = Finding::new(Check::Namespaces, severity, seen)
        .why("a lab (`crosslane lab up`) of an ordinary user is made of them; one of root needs none");
    Some(if off {
        finding.fix("`sysctl kernel.unprivileged_userns_clone=1`; on Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; or labs as root")
    } else {
        finding
    })
}

/// The daemon's engine copies by `process_vm_readv`, which Yama limits. From 1 on a program lets the daemon in by itself.
fn ptrace(tree: &Tree) -> Option<Finding> {
    let scope = tree.number("proc/sys/kernel/yama/ptrace_scope")?;
    let seen = format!("kernel.yama.ptrace_scope is {scope}");
    let reason = "the daemon's offload engine copies between programs' memory (`process_vm_readv`); without it programs copy by themselves, and nothing else changes";
    Some(match scope {
        0 | 1 => Finding::new(Check::Ptrace, Severity::Ok, seen).why(reason),
        2 => Finding::new(Check::Ptrace, Severity::Info, seen).why(reason).fix("for the engine: a daemon with CAP_SYS_PTRACE, or `sysctl kernel.yama.ptrace_scope=1`"),
        _ => Finding::new(Check::Ptrace, Severity::Info, seen).why(reason).fix("for the engine: `ptrace_scope` 1 from the next start on; 3 cannot be taken back while the machine runs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_nonsense_is_none() {
        let text = "Max open files            1024                 unlimited            files     \n";
        assert_eq!(limit(text, "Max open files"), Some((1024, u64::MAX)));
        assert_eq!(limit("Max open files -1 x", "Max open files"), None);
        assert_eq!(limit("", "Max open files"), None);
    }
}
