//! The PCI functions of a machine.

use crate::config_space::{Express, express};
use crate::known::{Family, family_of, is_ivshmem};
use crate::link::Link;
use crate::tree::{Tree, Unread};

const DEVICES: &str = "sys/bus/pci/devices";
/// Length of the configuration space of PCI Express, bytes.
const CONFIG: u64 = 4096;
/// Most bridges and shared memories that are looked at closely.
const CLOSELY: usize = 64;
/// Flags of a resource, of Linux' `include/linux/ioport.h`.
const MEMORY: u64 = 0x200;
const UNSET: u64 = 0x2000_0000;
/// BARs of a function; what follows in the file is its ROM and what a bridge passes on.
const BARS: usize = 6;

/// A memory BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) index: usize,
    /// Bytes.
    pub(crate) len: u64,
    /// Whether it has an address.
    pub(crate) assigned: bool,
}

/// A bridge or shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// As `0000:3b:00.0`.
    pub(crate) address: String,
    pub(crate) vendor: u32,
    pub(crate) device: u32,
    /// The name of the driver that has it.
    pub(crate) driver: Option<String>,
    pub(crate) link: Link,
    pub(crate) bars: Vec<Bar>,
    /// Sizes of packets; what was not read is said.
    pub(crate) express: Result<Express, Unread>,
    /// The node of memory that it is near, if the machine says so.
    pub(crate) node: Option<i64>,
    /// What the IOMMU does for it: `DMA`, `DMA-FQ`, `identity`.
    pub(crate) domain: Option<String>,
    /// Errors that its link has counted: correctable, not fatal, fatal.
    pub(crate) errors: [u64; 3],
    /// The port above it.
    pub(crate) upstream: Option<Upstream>,
}

/// The port that a function hangs on.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) address: String,
    pub(crate) link: Link,
    pub(crate) express: Result<Express, Unread>,
}

/// What of a machine's PCI functions matters here.
#[derive(Debug)]
pub(crate) struct Machine {
    /// How many functions there are, or why they cannot be listed.
    pub(crate) functions: Result<usize, Unread>,
    pub(crate) bridges: Vec<(Function, Family)>,
    pub(crate) ivshmem: Vec<Function>,
}

impl Machine {
    /// Reads it.
    pub(crate) fn read(tree: &Tree) -> Self {
        let names = tree.names(DEVICES).map(|mut names| {
            names.retain(|name| is_address(name));
            names
        });
        let (mut bridges, mut ivshmem) = (Vec::new(), Vec::new());
        for name in names.iter().flatten() {
            let path = format!("{DEVICES}/{name}");
            let number = |file: &str| tree.hex(&format!("{path}/{file}"));
            let (Some(vendor), Some(device)) = (number("vendor"), number("device")) else { continue };
            let family = family_of(vendor, device, number("class").unwrap_or(0));
            if bridges.len() + ivshmem.len() >= CLOSELY {
                break;
            } else if let Some(family) = family {
                bridges.push((function(tree, name, vendor, device), family));
            } else if is_ivshmem(vendor, device) {
                ivshmem.push(function(tree, name, vendor, device));
            }
        }
        Self { functions: names.map(|names| names.len()), bridges, ivshmem }
    }

    /// Whether there is a bridge of the machine, of hardware or software.
    pub(crate) fn has_bridge(&self) -> bool {
        !self.bridges.is_empty()
    }
}

fn function(tree: &Tree, address: &str, vendor: u32, device: u32) -> Function {
    let path = format!("{DEVICES}/{address}");
    Function {
        address: address.to_owned(),
        vendor,
        device,
        driver: tree.target_name(&format!("{path}/driver")),
        link: Link::read(tree, &path),
        bars: bars(&tree.text(&format!("{path}/resource")).unwrap_or_default()),
        express: tree.bytes(&format!("{path}/config"), CONFIG).map(|space| express(&space)),
        node: tree.number(&format!("{path}/numa_node")).filter(|node| *node >= 0),
        domain: tree.text(&format!("{path}/iommu_group/type")).ok(),
        errors: [("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")].map(
            |(file, total)| {
                let text = tree.text(&format!("{path}/aer_dev_{file}")).unwrap_or_default();
                total_of(&text, &format!("TOTAL_ERR_{total}"))
            },
        ),
        upstream: upstream(tree, &path),
    }
}

fn upstream(tree: &Tree, path: &str) -> Option<Upstream> {
    let real = tree.real(path)?;
    let (above, _) = real.rsplit_once('/')?;
    let address = above.rsplit('/').next().filter(|name| is_address(name))?;
    Some(Upstream {
        address: address.to_owned(),
        link: Link::read(tree, above),
        express: tree.bytes(&format!("{above}/config"), CONFIG).map(|space| express(&space)),
    })
}

fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let hex = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // A software bus may have a domain of more than four digits.
    name.len() <= 16 && parts.len() == 4 && parts.iter().all(hex)
}

/// The memory BARs in the lines of `resource`: first address, last address, flags.
fn bars(text: &str) -> Vec<Bar> {
    let lines = text.lines().take(BARS).enumerate();
    lines.filter_map(|(index, line)| bar(index, line)).collect()
}

fn bar(index: usize, line: &str) -> Option<Bar> {
    let mut numbers =
        line.split_whitespace().map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (first, last, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let len = last.checked_sub(first)?.checked_add(1)?;
    let is_memory = flags & MEMORY != 0 && last > 0;
    is_memory.then_some(Bar { index, len, assigned: flags & UNSET == 0 && first != 0 })
}

/// The number behind `name` in lines of names and numbers.
fn total_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_bars_are_read_and_nonsense_is_left_out() {
        let text = "0x00000000f0000000 0x00000000f000ffff 0x0000000000040200\n\
                    0x000000000000d000 0x000000000000d07f 0x0000000000040101\n\
                    0x0000000000000000 0x00000000000fffff 0x000000002014220c\n\
                    0x0000000000000000 0xffffffffffffffff 0x0000000000000200\n\
                    0x10 0x0 0x200\nrubbish";
        let found = bars(text);
        let bar = |index, len, assigned| Bar { index, len, assigned };
        assert_eq!(found, [bar(0, 0x10000, true), bar(2, 0x10_0000, false)]);
    }

    #[test]
    fn pci_addresses_are_told_from_other_names() {
        assert!(is_address("0000:3b:00.0") && is_address("584c:00:01.0") && is_address("10000:00:00.0"));
        assert!(
            !is_address("pci0000:00")
                && !is_address("0000:3b:00.0/..")
                && !is_address("::.")
                && !is_address("x:0:0.0")
        );
    }

    #[test]
    fn pci_error_totals_are_read() {
        assert_eq!(total_of("RxErr 1\nTOTAL_ERR_COR 12\n", "TOTAL_ERR_COR"), 12);
        assert_eq!(total_of("TOTAL_ERR_COR -1", "TOTAL_ERR_COR") + total_of("", "TOTAL_ERR_COR"), 0);
    }
}
