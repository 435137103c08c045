//! What is found on machines with and without bridges. They are synthetic: `machines/README.md`.

use crate::machines::{Function, Machine, intel, ivshmem, switchtec};
use crosslane_doctor::{Check, Daemon, Severity, Tree, examine};
use std::path::Path;

fn with(function: &Function) -> Machine {
    let machine = Machine::new(true);
    machine.plug(function);
    machine
}

#[test]
fn bridge_that_is_as_it_should_be_has_neither_error_nor_warning() {
    for function in [intel(), switchtec()] {
        let report = with(&function).report();
        let bad: Vec<_> = report.findings.iter().filter(|it| it.severity < Severity::Info).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        for check in [
            Check::Bridge,
            Check::Driver,
            Check::Link,
            Check::Payload,
            Check::Windows,
            Check::Memory,
            Check::Client,
        ] {
            assert!(
                report.findings.iter().any(|it| it.check == check && it.severity == Severity::Ok),
                "{check}"
            );
        }
    }
}

#[test]
fn link_of_reduced_width_is_a_warning_with_both_widths() {
    let machine = with(&Function { now: ("8.0 GT/s PCIe", 4), ..intel() });
    let link = machine.one(Check::Link);
    assert_eq!((link.severity, link.about.as_deref()), (Severity::Warning, Some("0000:3b:00.0")));
    assert!(link.seen.contains("gen3 x4") && link.seen.contains("gen3 x16"), "{}", link.seen);
    assert!(machine.severities(Check::Slot).is_empty());
}

#[test]
fn slot_with_fewer_lanes_than_the_bridge_is_what_is_blamed() {
    let machine = with(&Function { now: ("8.0 GT/s PCIe", 8), slot: ("8.0 GT/s PCIe", 8), ..intel() });
    assert_eq!(machine.severities(Check::Link), [Severity::Ok]);
    let slot = machine.one(Check::Slot);
    assert!(slot.severity == Severity::Warning && slot.seen.contains("0000:3a:00.0"), "{slot:?}");
}

#[test]
fn payload_below_what_both_ends_could_and_above_the_port_is_found() {
    let low = with(&Function { sizes: (2, 0, 0, 5), ..intel() }).one(Check::Payload);
    assert!(
        low.severity == Severity::Warning && low.seen.contains("128") && low.seen.contains("512"),
        "{low:?}"
    );
    let high = with(&Function { sizes: (2, 2, 1, 5), ..intel() }).one(Check::Payload);
    assert_eq!(high.severity, Severity::Error);
    let request = with(&Function { sizes: (1, 1, 1, 0), ..intel() }).one(Check::ReadRequest);
    assert_eq!(request.severity, Severity::Warning);
}

#[test]
fn config_space_that_is_cut_short_asks_for_root() {
    let machine = with(&Function { config: 64, ..intel() });
    let config = machine.one(Check::Config);
    assert_eq!((config.severity, config.action.as_str()), (Severity::Info, "run this as root"));
    assert!(machine.severities(Check::Payload).is_empty());
    for config in [0, 1, 0x35, 0x61, 0x66] {
        assert_eq!(
            with(&Function { config, ..intel() }).severities(Check::Config),
            [Severity::Info],
            "{config}"
        );
    }
}

#[test]
fn bar_without_an_address_is_an_error_and_a_short_one_a_warning() {
    let unassigned = vec![(0x9000_0000, 0x1_0000), (0, 0), (0, 64 << 20)];
    let machine = with(&Function { bars: unassigned, ..intel() });
    assert_eq!(machine.severities(Check::Windows), [Severity::Error]);
    let short = vec![(0x9000_0000, 0x1_0000), (0, 0), (0x38_0000_0000, 1 << 20)];
    let windows = with(&Function { bars: short, ..intel() }).one(Check::Windows);
    assert!(windows.severity == Severity::Warning && windows.seen.contains("BAR 2 1 MiB"), "{windows:?}");
    assert_eq!(with(&Function { bars: Vec::new(), ..intel() }).severities(Check::Windows), [Severity::Error]);
}

#[test]
fn window_that_its_driver_shortens_is_a_warning_with_the_option() {
    let machine = with(&switchtec());
    machine.file("sys/module/ntb_hw_switchtec/parameters/max_mw_size", "2097152\n");
    let windows = machine.one(Check::Windows);
    assert!(
        windows.severity == Severity::Warning && windows.action.contains("max_mw_size=67108864"),
        "{windows:?}"
    );
    machine.file("sys/module/ntb_hw_switchtec/parameters/max_mw_size", "67108864\n");
    assert_eq!(machine.severities(Check::Windows), [Severity::Ok]);
    machine.file("sys/module/ntb_hw_switchtec/parameters/max_mw_size", "-1\n");
    assert_eq!(machine.severities(Check::Windows), [Severity::Ok]);
}

#[test]
fn window_memory_needs_an_iommu_that_translates_or_reserved_memory() {
    let alone = with(&Function { domain: Some("identity"), ..intel() });
    let memory = alone.one(Check::Memory);
    assert!(memory.severity == Severity::Warning && memory.reason.contains("multiple"), "{memory:?}");
    assert!(alone.severities(Check::Iommu).contains(&Severity::Warning));
    alone.file("proc/meminfo", "CmaTotal:  262144 kB\n");
    assert_eq!(alone.severities(Check::Memory), [Severity::Ok]);
    alone.file("proc/meminfo", "CmaTotal:  18446744073709551615 kB\n");
    assert_eq!(alone.severities(Check::Memory), [Severity::Ok]);
    alone.file("proc/meminfo", "CmaTotal:  1024 kB\n");
    assert_eq!(alone.severities(Check::Memory), [Severity::Warning]);
}

#[test]
fn driver_that_is_missing_or_another_is_an_error_with_the_command() {
    let machine = Machine::new(false);
    machine.plug(&Function { driver: None, ..intel() });
    machine.file("boot/config-6.1.0-test", "CONFIG_PCI=y\n# CONFIG_NTB is not set\n");
    let driver = machine.one(Check::Driver);
    assert!(
        driver.severity == Severity::Error && driver.action.contains("modprobe ntb_hw_intel"),
        "{driver:?}"
    );
    let kernel = machine.one(Check::KernelNtb);
    assert!(kernel.severity == Severity::Error && kernel.seen.contains("without CONFIG_NTB"), "{kernel:?}");
    machine.file("lib/modules/6.1.0-test/modules.dep", "kernel/drivers/ntb/ntb.ko:\n");
    assert!(machine.one(Check::KernelNtb).action.contains("modprobe ntb"));
    let other = with(&Function { driver: Some("vfio-pci"), ..switchtec() }).one(Check::Driver);
    assert!(other.severity == Severity::Error && other.action.contains("unbind"), "{other:?}");
}

#[test]
fn bridges_without_a_driver_are_an_error_and_those_whose_neighbour_translates_a_warning() {
    let idt = Function { ids: (0x111d, 0x8091, 0x06_8000), driver: Some("ntb_hw_idt"), ..intel() };
    assert_eq!(with(&idt).severities(Check::Support), [Severity::Warning]);
    let plx = Function { ids: (0x10b5, 0x87b0, 0x06_8000), driver: None, ..intel() };
    assert_eq!(with(&plx).severities(Check::Support), [Severity::Error]);
    assert!(with(&intel()).severities(Check::Support).is_empty());
}

#[test]
fn client_other_than_the_module_and_a_module_that_is_missing_are_named() {
    let machine = with(&intel());
    machine.client("0000:3b:00.0", "ntb_transport");
    let client = machine.one(Check::Client);
    assert!(
        client.severity == Severity::Warning && client.action.contains("rmmod ntb_transport"),
        "{client:?}"
    );
    std::fs::remove_dir_all(machine.path("sys/module/crosslane_ntb")).expect("removed");
    assert_eq!(machine.severities(Check::Module), [Severity::Error]);
}

#[test]
fn device_that_everybody_may_open_is_a_warning() {
    let machine = with(&intel());
    assert_eq!(machine.severities(Check::Device), [Severity::Ok]);
    machine.mode("dev/crosslane0", 0o666);
    assert_eq!(machine.severities(Check::Device), [Severity::Warning]);
    std::fs::remove_file(machine.path("dev/crosslane0")).expect("removed");
    assert_eq!(machine.severities(Check::Device), [Severity::Warning]);
}

#[test]
fn machine_without_bridges_has_no_error_and_says_software_ports() {
    let machine = Machine::new(false);
    let report = machine.report();
    assert_eq!(
        (report.count(Severity::Error), report.count(Severity::Warning)),
        (0, 0),
        "{:#?}",
        report.findings
    );
    let bridge = machine.one(Check::Bridge);
    assert!(bridge.severity == Severity::Info && bridge.reason.contains("software ports"), "{bridge:?}");
    assert_eq!(machine.severities(Check::KernelNtb), [Severity::Info]);
    assert!(machine.severities(Check::Module).is_empty());
}

#[test]
fn ivshmem_is_no_bridge_until_ntb_soft_has_it() {
    let machine = Machine::new(false);
    machine.plug(&ivshmem());
    let found = machine.one(Check::Ivshmem);
    assert!(found.severity == Severity::Info && found.seen.contains("16 MiB, with doorbells"), "{found:?}");
    assert_eq!(machine.report().count(Severity::Error), 0);
    assert_eq!(
        with(&Function { driver: Some("ntb_soft"), ..ivshmem() }).severities(Check::Ivshmem),
        [Severity::Ok]
    );
    assert_eq!(
        with(&Function { driver: Some("vfio-pci"), ..ivshmem() }).severities(Check::Ivshmem),
        [Severity::Warning]
    );
}

#[test]
fn switch_with_management_alone_is_no_bridge() {
    let machine = Machine::new(false);
    machine.plug(&Function { ids: (0x11f8, 0x8535, 0x05_8000), ..switchtec() });
    assert_eq!(machine.one(Check::Bridge).severity, Severity::Info);
}

#[test]
fn host_settings_that_cost_time_are_found() {
    let machine = with(&intel());
    machine.file("sys/devices/system/cpu/online", "0\n");
    machine.file("sys/devices/system/cpu/cpu0/cpuidle/state3/latency", "133\n");
    machine.file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    machine
        .file("sys/module/pcie_aspm/parameters/policy", "default performance [powersave] powersupersave\n");
    for check in [Check::Cores, Check::Idle, Check::Governor, Check::LinkPower] {
        assert_eq!(machine.severities(check), [Severity::Warning], "{check}");
    }
    machine.file("sys/devices/system/cpu/cpu0/cpuidle/state3/disable", "1\n");
    machine.file("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
    assert_eq!([machine.one(Check::Idle).severity, machine.one(Check::Governor).severity], [Severity::Ok; 2]);
    machine.file("sys/devices/system/node/node1/cpulist", "4-7\n");
    assert!(machine.one(Check::Node).seen.contains("processors 0-3"));
}

#[test]
fn rights_that_are_missing_are_found() {
    let machine = Machine::new(false);
    machine.file("proc/self/status", "CapEff:\t0000000000000000\n");
    machine.file("proc/self/limits", "Max open files   256   1024   files\n");
    machine.file("proc/sys/kernel/unprivileged_userns_clone", "0\n");
    machine.file("proc/sys/kernel/yama/ptrace_scope", "3\n");
    assert_eq!(machine.severities(Check::Files), [Severity::Warning]);
    for check in [Check::Tun, Check::Namespaces, Check::Ptrace] {
        assert_eq!(machine.severities(check), [Severity::Info], "{check}");
    }
    std::fs::remove_file(machine.path("dev/net/tun")).expect("removed");
    assert_eq!(machine.severities(Check::Tun), [Severity::Warning]);
}

#[test]
fn this_machine_is_examined_without_an_error_of_ours() {
    let report = examine(&Tree::open(Path::new("/")).expect("tree"), &Daemon::NotAsked);
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.check == Check::Bridge || finding.check == Check::PciList)
    );
    assert!(report.findings.iter().any(|finding| finding.check == Check::Cores));
}
