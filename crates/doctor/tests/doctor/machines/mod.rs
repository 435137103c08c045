//! Machines as folders of files, built from short descriptions. All of them are synthetic: `README.md`.

use crosslane_doctor::{Check, Daemon, Finding, Report, Severity, Tree, examine};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A link of a PCI Express port: rate, lanes.
pub(crate) type Rate = (&'static str, u32);

/// A PCI function, and the port that it hangs on.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) address: &'static str,
    pub(crate) ids: (u32, u32, u32),
    pub(crate) driver: Option<&'static str>,
    pub(crate) now: Rate,
    pub(crate) most: Rate,
    pub(crate) slot: Rate,
    /// Lines of `resource`: first address and length of the memory BARs; a length of 0 is no BAR.
    pub(crate) bars: Vec<(u64, u64)>,
    /// Codes of the payload: able, now, now at the port above; and of the read request.
    pub(crate) sizes: (u16, u16, u16, u16),
    /// Bytes of the configuration space that can be read.
    pub(crate) config: usize,
    pub(crate) domain: Option<&'static str>,
}

/// An Intel bridge of the third generation with all as it should be.
pub(crate) fn intel() -> Function {
    Function {
        address: "0000:3b:00.0",
        ids: (0x8086, 0x201c, 0x06_8000),
        driver: Some("ntb_hw_intel"),
        now: ("8.0 GT/s PCIe", 16),
        most: ("8.0 GT/s PCIe", 16),
        slot: ("8.0 GT/s PCIe", 16),
        bars: vec![
            (0x9000_0000, 0x1_0000),
            (0, 0),
            (0x38_0000_0000, 64 << 20),
            (0, 0),
            (0x39_0000_0000, 64 << 20),
        ],
        sizes: (1, 1, 1, 5),
        config: 256,
        domain: Some("DMA-FQ"),
    }
}

/// A Switchtec switch, of which this host has one partition.
pub(crate) fn switchtec() -> Function {
    Function {
        address: "0000:05:00.1",
        ids: (0x11f8, 0x8535, 0x06_8000),
        driver: Some("switchtec"),
        ..intel()
    }
}

/// QEMU's memory shared between virtual machines, with doorbells.
pub(crate) fn ivshmem() -> Function {
    Function {
        address: "0000:00:04.0",
        ids: (0x1af4, 0x1110, 0x05_0000),
        driver: None,
        bars: vec![(0xfebf_0000, 0x100), (0xfebf_1000, 0x1000), (0x1_0000_0000, 16 << 20)],
        domain: None,
        ..intel()
    }
}

/// The files of a machine.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// A machine of four processors and one node, with TUN and an IOMMU, and the kernel's NTB core if there shall be.
    pub(crate) fn new(ntb: bool) -> Self {
        let machine = Self { folder: tempfile::tempdir().expect("folder") };
        for (path, text) in [
            ("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on\n"),
            (
                "proc/meminfo",
                "MemTotal: 16318480 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n",
            ),
            (
                "proc/self/limits",
                "Max open files            1024                 1048576              files\nMax locked memory         8388608              8388608              bytes\n",
            ),
            ("proc/self/status", "Name:\tcrosslane\nCapEff:\t000001ffffffffff\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-test\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
            ("proc/sys/user/max_user_namespaces", "63000\n"),
            ("dev/net/tun", ""),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/class/iommu/dmar0/name", "dmar0\n"),
            (
                "sys/kernel/mm/transparent_hugepage/shmem_enabled",
                "always within_size advise [never] deny force\n",
            ),
            ("sys/module/pcie_aspm/parameters/policy", "[default] performance powersave powersupersave\n"),
        ] {
            machine.file(path, text);
        }
        fs::create_dir_all(machine.path("sys/bus/pci/devices")).expect("folder");
        if ntb {
            fs::create_dir_all(machine.path("sys/bus/ntb/devices")).expect("folder");
            machine.file("sys/module/crosslane_ntb/refcnt", "1\n");
        }
        machine
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, and the folders that it lies in.
    pub(crate) fn file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("folder")).expect("folders");
        fs::write(path, bytes).expect("written");
    }

    /// A link as `/sys` has them.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("folder")).expect("folders");
        symlink(target, path).expect("link");
    }

    /// Puts a function into a slot of its own. It is an NTB device of the kernel, which the module has, if a driver has it.
    pub(crate) fn plug(&self, function: &Function) {
        let (port, address) = ("0000:3a:00.0", function.address);
        let above = format!("sys/devices/pci0000:3a/{port}");
        let at = format!("{above}/{address}");
        let (able, now, now_above, request) = function.sizes;
        let (vendor, device, class) = function.ids;
        for (name, text) in [
            ("vendor", format!("{vendor:#06x}\n")),
            ("device", format!("{device:#06x}\n")),
            ("class", format!("{class:#08x}\n")),
            ("current_link_speed", format!("{}\n", function.now.0)),
            ("current_link_width", format!("{}\n", function.now.1)),
            ("max_link_speed", format!("{}\n", function.most.0)),
            ("max_link_width", format!("{}\n", function.most.1)),
            ("numa_node", "0\n".to_owned()),
            ("resource", resource(&function.bars)),
            ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n".to_owned()),
        ] {
            self.file(&format!("{at}/{name}"), text);
        }
        self.file(&format!("{at}/config"), &space(able, now, request)[..function.config]);
        self.file(&format!("{above}/max_link_speed"), format!("{}\n", function.slot.0));
        self.file(&format!("{above}/max_link_width"), format!("{}\n", function.slot.1));
        self.file(&format!("{above}/config"), space(able, now_above, request));
        self.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../devices/pci0000:3a/{port}/{address}"),
        );
        if let Some(domain) = function.domain {
            self.file("sys/kernel/iommu_groups/7/type", format!("{domain}\n"));
            self.link(&format!("{at}/iommu_group"), "../../../../kernel/iommu_groups/7");
        }
        if let Some(driver) = function.driver {
            fs::create_dir_all(self.path(&format!("sys/bus/pci/drivers/{driver}"))).expect("folder");
            self.link(&format!("{at}/driver"), &format!("../../../../bus/pci/drivers/{driver}"));
            self.client(address, "crosslane_ntb");
            self.file("dev/crosslane0", "");
            self.mode("dev/crosslane0", 0o600);
        }
    }

    /// An NTB device of the kernel, and who has it.
    pub(crate) fn client(&self, name: &str, client: &str) {
        fs::create_dir_all(self.path(&format!("sys/bus/ntb/drivers/{client}"))).expect("folder");
        let _ = fs::remove_file(self.path(&format!("sys/bus/ntb/devices/{name}/driver")));
        self.link(&format!("sys/bus/ntb/devices/{name}/driver"), &format!("../../drivers/{client}"));
    }

    pub(crate) fn mode(&self, path: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("mode");
    }

    /// What is found on it, with no daemon.
    pub(crate) fn report(&self) -> Report {
        examine(&Tree::open(self.root()).expect("tree"), &Daemon::NotAsked)
    }

    /// The severity of the findings of a check.
    pub(crate) fn severities(&self, check: Check) -> Vec<Severity> {
        let findings = self.report().findings;
        findings.iter().filter(|finding| finding.check == check).map(|finding| finding.severity).collect()
    }

    /// The one finding of a check.
    pub(crate) fn one(&self, check: Check) -> Finding {
        let mut findings = self.report().findings;
        findings.retain(|finding| finding.check == check);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}

fn resource(bars: &[(u64, u64)]) -> String {
    let line = |(first, len): &(u64, u64)| match (first, len) {
        (_, 0) => format!("{:#018x} {:#018x} {:#018x}\n", 0, 0, 0),
        (0, len) => format!("{:#018x} {:#018x} {:#018x}\n", 0, len - 1, 0x2014_220c),
        (first, len) => format!("{first:#018x} {:#018x} {:#018x}\n", first + len - 1, 0x14_220c),
    };
    bars.iter().map(line).collect()
}

/// A configuration space with power management and PCI Express.
fn space(able: u16, now: u16, request: u16) -> Vec<u8> {
    let mut space = vec![0; 256];
    (space[0x06], space[0x34]) = (0x10, 0x40);
    (space[0x40], space[0x41], space[0x60]) = (0x01, 0x60, 0x10);
    space[0x64..0x66].copy_from_slice(&able.to_le_bytes());
    space[0x68..0x6a].copy_from_slice(&(now << 5 | request << 12).to_le_bytes());
    space
}
