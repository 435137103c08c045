//! NTB in the kernel: its configuration, modules, devices and who uses them.

use crate::finding::{Check, Finding, Severity};
use crate::pci::Machine;
use crate::tree::Tree;

const BUS: &str = "sys/bus/ntb/devices";
const MODULE: &str = "crosslane_ntb";
/// Most devices of the kernel's NTB bus, and of the module, that are looked at.
const MOST: usize = 64;

/// Says whether the kernel can do NTB, and whether Crosslane's module has its devices.
pub(crate) fn examine(tree: &Tree, machine: &Machine, found: &mut Vec<Finding>) {
    let wanted = machine.has_bridge() || machine.ivshmem.iter().any(|function| function.driver.is_some());
    let devices = tree.names(BUS).ok();
    found.push(match &devices {
        Some(devices) => Finding::new(
            Check::KernelNtb,
            Severity::Ok,
            format!("NTB is in the kernel; devices: {}", devices.len()),
        ),
        None => missing(tree, wanted),
    });
    let devices = devices.unwrap_or_default();
    let loaded = tree.has(&format!("sys/module/{MODULE}"));
    if loaded {
        found.push(Finding::new(Check::Module, Severity::Ok, format!("{MODULE} is loaded")));
    } else if wanted || !devices.is_empty() {
        let severity = if devices.is_empty() { Severity::Warning } else { Severity::Error };
        found.push(
            Finding::new(Check::Module, severity, format!("{MODULE} is not loaded"))
                .why("ports of `kind = \"ntb\"` are its devices, /dev/crosslane0 and so on")
                .fix(format!("`modprobe {MODULE}`; kernel/README.md says how to build it")),
        );
    }
    let clients: Vec<Finding> =
        devices.iter().take(MOST).filter_map(|name| client(tree, name, loaded)).collect();
    found.extend(clients);
    if loaded {
        examine_devices(tree, !devices.is_empty(), found);
    }
}

fn missing(tree: &Tree, wanted: bool) -> Finding {
    let worst = if wanted { Severity::Error } else { Severity::Info };
    let release = release(tree);
    let finding = |severity, seen: String| {
        let finding = Finding::new(Check::KernelNtb, severity, seen);
        finding.why("bridges of hardware, and ivshmem, need the kernel's NTB core (CONFIG_NTB); software ports do not")
    };
    let Some(release) = release else {
        return finding(
            if wanted { Severity::Warning } else { Severity::Info },
            "NTB is not in use, and the kernel's release is not known".to_owned(),
        );
    };
    let modules = tree.long_text(&format!("lib/modules/{release}/modules.dep")).unwrap_or_default();
    if modules.lines().any(|line| line.split(':').next().is_some_and(|file| file.contains("/ntb.ko"))) {
        let finding =
            finding(worst, format!("kernel {release} has the NTB core as a module, which is not loaded"));
        return finding.fix("`modprobe ntb`, and the bridge's driver");
    }
    match configured(tree, &release) {
        Some(true) => finding(
            worst,
            format!("kernel {release} is configured with CONFIG_NTB, and its module is not installed"),
        )
        .fix("install the kernel's package of further modules, if the distribution has one"),
        Some(false) => {
            let finding = finding(worst, format!("kernel {release} is configured without CONFIG_NTB"));
            if wanted {
                finding.fix("build the kernel's own NTB drivers for it as kernel/README.md says, or run a kernel that has them")
            } else {
                finding
            }
        }
        None => {
            let severity = if wanted { Severity::Warning } else { Severity::Info };
            let finding = finding(
                severity,
                format!("NTB is not in use, and how kernel {release} was configured cannot be read"),
            );
            if wanted {
                finding
                    .fix("`modprobe ntb`; if there is no such module, kernel/README.md says how to build it")
            } else {
                finding
            }
        }
    }
}

/// The kernel's release, if it can be a part of a path.
fn release(tree: &Tree) -> Option<String> {
    let release = tree.text("proc/sys/kernel/osrelease").ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-~".contains(c);
    let good = release.len() <= 64
        && release.starts_with(|c: char| c.is_ascii_digit())
        && release.chars().all(plain);
    good.then_some(release)
}

/// Whether the kernel was configured with NTB, where its configuration can be read.
fn configured(tree: &Tree, release: &str) -> Option<bool> {
    let places = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];
    let text = places.iter().find_map(|path| tree.long_text(path).ok())?;
    Some(text.lines().any(|line| line == "CONFIG_NTB=m" || line == "CONFIG_NTB=y"))
}

/// Who has an NTB device of the kernel, if that is worth a word.
fn client(tree: &Tree, name: &str, loaded: bool) -> Option<Finding> {
    let finding = match tree.target_name(&format!("{BUS}/{name}/driver")).as_deref() {
        Some(MODULE) => Finding::new(Check::Client, Severity::Ok, format!("{MODULE} has this NTB device")),
        Some(other) => Finding::new(Check::Client, Severity::Warning, format!("{other} has this NTB device"))
            .why("a bridge has one client at a time")
            .fix(format!("if it shall be Crosslane's: `rmmod {other}` (and what builds on it, as ntb_netdev), then `modprobe {MODULE}`")),
        None if loaded => Finding::new(Check::Client, Severity::Warning, "no client has this NTB device, although the module is loaded")
            .why("the module refuses a bridge with neither a scratchpad for each peer nor a message register, or too few doorbells or windows, and windows that it cannot have memory for")
            .fix(format!("`dmesg | grep -e ntb -e {MODULE}` says why")),
        None => return None,
    };
    Some(finding.about(name))
}

fn examine_devices(tree: &Tree, expected: bool, found: &mut Vec<Finding>) {
    let number =
        |name: &String| name.strip_prefix("crosslane").is_some_and(|rest| rest.parse::<u16>().is_ok());
    let mut names = tree.names("dev").unwrap_or_default();
    names.retain(number);
    if names.is_empty() && expected {
        found.push(
            Finding::new(
                Check::Device,
                Severity::Warning,
                "the module is loaded, and there is no /dev/crosslane0",
            )
            .why("each bridge that the module takes has a device there")
            .fix(
                "`dmesg | grep crosslane` says what became of the bridge; in a container, pass the device in",
            ),
        );
    }
    for name in names.iter().take(MOST) {
        let Ok(stat) = tree.stat(&format!("dev/{name}")) else { continue };
        let mode = stat.st_mode & 0o777;
        let seen = format!("mode {mode:04o}, of user {}", stat.st_uid);
        let open = mode & 0o006 != 0;
        let finding = Finding::new(Check::Device, if open { Severity::Warning } else { Severity::Ok }, seen);
        let finding = finding
            .about(format!("/dev/{name}"))
            .why("who can open it owns the cable, and with it every stream that crosses it");
        found.push(if open {
            finding.fix(format!("`chmod o= /dev/{name}`, and mend the udev rule that opened it"))
        } else {
            finding
        });
    }
}
