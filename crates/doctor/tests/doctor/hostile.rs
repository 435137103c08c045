//! Files and a daemon that say anything at all: nothing panics, nothing is read without end, and no text harms a terminal.

use crate::machines::{Function, Machine, intel, ivshmem, switchtec};
use crosslane_doctor::{Check, Daemon, Report, Severity, Tree, Unread, examine};
use crosslane_status::{Link, Port, Status};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// All that a report promises, whatever was read.
fn check(report: &Report) {
    assert!(report.findings.len() < 1000, "{}", report.findings.len());
    for finding in &report.findings {
        let about = finding.about.as_deref().unwrap_or_default();
        for text in [finding.seen.as_str(), &finding.reason, &finding.action, about] {
            assert!(text.chars().count() <= 400 && !text.chars().any(char::is_control), "{finding:?}");
        }
    }
    let json = serde_json::to_value(report).expect("JSON");
    assert_eq!(json["findings"].as_array().map(Vec::len), Some(report.findings.len()));
}

fn whole() -> Machine {
    let machine = Machine::new(true);
    machine.plug(&intel());
    machine.plug(&switchtec());
    machine.plug(&ivshmem());
    machine
}

/// All regular files of a machine, in a settled order.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).expect("folder").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let kind = fs::symlink_metadata(&path).expect("file").file_type();
        if kind.is_dir() {
            files(&path, into);
        } else if kind.is_file() {
            into.push(path);
        }
    }
}

/// Bytes that are rubbish, or nearly what belongs there.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..300),
        "[-0-9a-fx:., ]{0,40}".prop_map(String::into_bytes),
        "(0x)?[0-9a-f]{1,20}( 0x[0-9a-f]{1,17}){0,2}\n".prop_map(String::into_bytes),
        "[0-9]{1,30}(\\.[0-9]{1,12})? ?(GT/s PCIe|kB)?".prop_map(String::into_bytes),
        "(CmaTotal|HugePages_Total|CapEff|Max open files): *[0-9a-f]{1,30}( kB)?\n"
            .prop_map(String::into_bytes),
    ]
}

/// One machine serves all cases: what a case changes is put back.
#[test]
fn random_bytes_in_any_files_do_no_harm() {
    let machine = whole();
    let mut all = Vec::new();
    files(machine.root(), &mut all);
    let kept: Vec<Vec<u8>> = all.iter().map(|path| fs::read(path).expect("read")).collect();
    let changed = vec((0..all.len(), contents()), 1..12);
    let gone = vec(0..all.len(), 0..3);
    proptest!(ProptestConfig { cases: 32, ..ProptestConfig::default() }, |(changed in changed, gone in gone)| {
        for (at, bytes) in &changed {
            fs::write(&all[*at], bytes).expect("written");
        }
        for at in &gone {
            let _ = fs::remove_file(&all[*at]);
        }
        check(&machine.report());
        for at in changed.iter().map(|(at, _)| at).chain(&gone) {
            fs::write(&all[*at], &kept[*at]).expect("put back");
        }
    });
}

#[test]
fn random_configuration_space_does_no_harm() {
    let machine = whole();
    proptest!(ProptestConfig { cases: 32, ..ProptestConfig::default() }, |(mut bytes in vec(any::<u8>(), 0..4096))| {
        // As if the function had capabilities, so that their list is walked.
        if let Some(status) = bytes.get_mut(6) {
            *status |= 0x10;
        }
        machine.file("sys/bus/pci/devices/0000:3b:00.0/config", &bytes);
        check(&machine.report());
    });
}

#[test]
fn random_tests_change_files_that_are_read() {
    let machine = whole();
    let before = machine.report();
    let mut all = Vec::new();
    files(machine.root(), &mut all);
    let noticed = all.iter().filter(|path| {
        let kept = fs::read(path).expect("read");
        fs::remove_file(path).expect("removed");
        let changed = machine.report() != before;
        fs::write(path, kept).expect("written");
        changed
    });
    let (noticed, total) = (noticed.count(), all.len());
    assert!(noticed * 3 > total, "only {noticed} of {total} files change what is found");
}

#[test]
fn huge_files_pipes_and_folders_in_the_place_of_files_are_passed_over() {
    let machine = whole();
    let begin = Instant::now();
    for path in [
        "proc/meminfo",
        "proc/self/limits",
        "sys/bus/pci/devices/0000:3b:00.0/resource",
        "boot/config-6.1.0-test",
    ] {
        machine.file(path, "");
        fs::File::options()
            .write(true)
            .open(machine.path(path))
            .and_then(|file| file.set_len(1 << 40))
            .expect("sparse");
    }
    for (path, is_pipe) in [
        ("proc/cmdline", true),
        ("sys/bus/pci/devices/0000:3b:00.0/config", true),
        ("proc/self/status", false),
    ] {
        let path = machine.path(path);
        fs::remove_file(&path).expect("removed");
        if is_pipe {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("pipe");
        } else {
            fs::create_dir(&path).expect("folder");
        }
    }
    check(&machine.report());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn links_that_leave_the_tree_or_go_in_circles_are_not_followed() {
    let machine = Machine::new(true);
    machine.plug(&Function { driver: None, ..intel() });
    machine.link("sys/bus/pci/devices/0000:3c:00.0", "0000:3d:00.0");
    machine.link("sys/bus/pci/devices/0000:3d:00.0", "0000:3c:00.0");
    machine.link("sys/bus/pci/devices/0000:3e:00.0", "/");
    let outside = tempfile::tempdir().expect("folder");
    fs::write(outside.path().join("release"), "6.6.6-outside").expect("written");
    fs::remove_file(machine.path("proc/sys/kernel/osrelease")).expect("removed");
    machine.link("proc/sys/kernel/osrelease", outside.path().join("release").to_str().expect("path"));
    let report = machine.report();
    check(&report);
    assert!(!format!("{report:?}").contains("outside"), "{report:#?}");
}

#[test]
fn release_of_a_kernel_that_is_a_path_is_no_part_of_one() {
    let machine = Machine::new(false);
    machine.file("boot/secret", "CONFIG_NTB=y\n");
    machine.file("proc/sys/kernel/osrelease", "6/../../boot/secret\n");
    assert!(machine.one(Check::KernelNtb).seen.contains("not known"));
}

#[test]
fn thousands_of_devices_are_bounded() {
    let machine = Machine::new(true);
    for number in 0..3000 {
        let at =
            format!("sys/bus/pci/devices/0000:{:02x}:{:02x}.{}", number >> 8, number >> 3 & 31, number & 7);
        machine.file(&format!("{at}/vendor"), "0x8086");
        machine.file(&format!("{at}/device"), "0x201c");
    }
    for number in 0..300 {
        machine.file(&format!("dev/crosslane{number}"), "");
        machine.client(&format!("device{number}"), "ntb_perf");
    }
    check(&machine.report());
}

#[test]
fn terminal_escapes_in_names_are_not_passed_on() {
    let machine = Machine::new(true);
    machine.plug(&Function { driver: Some("evil\x1b[2J"), ..intel() });
    machine.client("dev\x1b]0;x\x07", "ntb\x1b_perf");
    machine.file("proc/cmdline", "iommu=\x1b[31mred");
    check(&machine.report());
}

#[test]
fn tree_needs_a_folder() {
    let machine = Machine::new(false);
    assert!(Tree::open(&machine.path("proc/cmdline")).is_err());
    assert!(Tree::open(&machine.path("none")).is_err());
    assert_ne!(Unread::Absent, Unread::Denied);
}

/// A status as an outdated or hostile daemon might send it.
fn status() -> Status {
    let mut status =
        Status { version: "0.0.1".to_owned(), uptime_s: f64::NAN, namespaces: true, ..Status::default() };
    let port = |name: &str, link, silent| Port {
        name: name.to_owned(),
        kind: "ntb".to_owned(),
        link,
        silent,
        ..Port::default()
    };
    status.ports = vec![
        port("up", Link::Up, false),
        port("silent", Link::Up, true),
        port("down\x1b[2J", Link::Down, false),
        port("cut", Link::Cut, false),
        port("refused", Link::Refused, false),
    ];
    status.counters.violations = u64::MAX;
    status.counters.plain = [("NoRoute".to_owned(), u64::MAX), ("\x07".repeat(9000), 1)].into();
    status
}

#[test]
fn daemon_status_gives_a_finding_for_each_cable_and_count() {
    let machine = Machine::new(false);
    let tree = Tree::open(machine.root()).expect("tree");
    let report = examine(&tree, &Daemon::Answered(Box::new(status()), "0.1.0"));
    check(&report);
    let of = |check| {
        report.findings.iter().filter(move |it| it.check == check).map(|it| it.severity).collect::<Vec<_>>()
    };
    use Severity::{Error, Info, Ok, Warning};
    assert_eq!(of(Check::Cable), [Error, Warning, Warning, Info, Ok]);
    assert_eq!([of(Check::Release), of(Check::Violations), of(Check::Plain)], [[Warning], [Warning], [Info]]);
    assert_eq!(of(Check::Daemon), [Ok]);
    let whole = Status { version: "0.1.0".to_owned(), namespaces: true, ..Status::default() };
    let report = examine(&tree, &Daemon::Answered(Box::new(whole), "0.1.0"));
    assert_eq!((report.count(Error), report.count(Warning)), (0, 0), "{:#?}", report.findings);
}

#[test]
fn daemon_that_refuses_is_an_error_and_an_absent_one_is_none() {
    let machine = Machine::new(false);
    let tree = Tree::open(machine.root()).expect("tree");
    let count = |daemon: &Daemon| examine(&tree, daemon).count(Severity::Error);
    assert_eq!(count(&Daemon::Absent("nobody".to_owned())), 0);
    assert_eq!(count(&Daemon::Refused("schema 9".to_owned())), 1);
    assert_eq!(count(&Daemon::NotAsked), 0);
}
