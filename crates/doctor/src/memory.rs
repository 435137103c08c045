//! Memory behind the windows: whether as much of it as a window is long can be had in one piece, as the bridge sees it.

use crate::finding::{Check, Finding, Severity};
use crate::known::{Alignment, Family};
use crate::pci::{Bar, Function};
use crate::tree::Tree;

/// The longest piece that the kernel's allocator has without an IOMMU or CMA, bytes: x86-64, Linux 6.1, `MAX_ORDER` 11. For longer ones
/// `crosslane_ntb` has other memory moved away (`CONFIG_CONTIG_ALLOC`), as long as enough of it can be.
const PIECE: u64 = 4 << 20;
/// Below this there is room for few streams, bytes.
const FEW: u64 = 64 << 20;

/// Says how long the windows are, and whether there is memory for them.
pub(crate) fn examine(tree: &Tree, function: &Function, family: Family, found: &mut Vec<Finding>) {
    if family.windows.is_empty() {
        return;
    }
    let at = |finding: Finding| finding.about(&function.address);
    let list: Vec<String> =
        function.bars.iter().map(|bar| format!("BAR {} {}", bar.index, bytes(bar.len))).collect();
    let seen = if list.is_empty() { "no memory BAR".to_owned() } else { list.join(", ") };
    let windows = |severity| at(Finding::new(Check::Windows, severity, &seen));
    if function.bars.iter().any(|bar| !bar.assigned) {
        found.push(windows(Severity::Error).why(UNASSIGNED).fix(ROOM));
        return;
    }
    // All windows of a port are as long as its shortest.
    let bars = windows_of(function, family).map(|bar| bar.len).min();
    let Some(shortest) = bars else {
        found.push(
            windows(Severity::Error).why("no BAR of this bridge can be a window").fix("set the sizes of the NTB BARs in the firmware's setup, or in the switch's configuration; then start again"),
        );
        return;
    };
    let bound = bound_of_driver(tree, family);
    if let Some(most) = bound.filter(|most| *most < shortest) {
        let reason = format!(
            "its driver gives windows of at most {}, and the shortest BAR has {}",
            bytes(most),
            bytes(shortest)
        );
        let action = format!(
            "`options {} max_mw_size={shortest}` in /etc/modprobe.d, at both ends, and load the driver again",
            family.driver
        );
        found.push(windows(Severity::Warning).why(reason).fix(action));
        found.extend(obtainable(tree, function, family, most).map(at));
        return;
    }
    let usable = format!("all windows of a port are as long as the shortest, here {}", bytes(shortest));
    found.push(if shortest < FEW {
        let reason = format!("{usable}: streams have short rings there, and there is room for few");
        windows(Severity::Warning).why(reason).fix("make the NTB BARs longer, in the firmware's setup or in the switch's configuration: 64 MiB or more, at both ends")
    } else {
        windows(Severity::Ok).why(usable)
    });
    found.extend(obtainable(tree, function, family, shortest).map(at));
}

/// The longest window that the bridge's driver gives, bytes, where it has a parameter for that and is loaded.
fn bound_of_driver(tree: &Tree, family: Family) -> Option<u64> {
    let most = tree.number(&format!("sys/module/{}/parameters/max_mw_size", family.driver))?;
    u64::try_from(most).ok()
}

/// The BARs that may be windows.
fn windows_of(function: &Function, family: Family) -> impl Iterator<Item = &Bar> {
    function.bars.iter().filter(move |bar| family.windows.contains(&bar.index))
}

const UNASSIGNED: &str =
    "a BAR has no address: the firmware or the kernel found no room for it, and the driver cannot start";
const ROOM: &str = "in the firmware's setup switch on addresses above 4 GB for PCI, or choose smaller NTB BARs; `dmesg | grep BAR` says which did not fit";

/// Nothing if what is missing is said already.
fn obtainable(tree: &Tree, function: &Function, family: Family, len: u64) -> Option<Finding> {
    if len <= PIECE {
        return None;
    }
    let reserved = cma(tree);
    if function.domain.as_deref().is_some_and(|domain| domain.starts_with("DMA")) {
        let seen = "the IOMMU translates for this bridge";
        let finding = Finding::new(Check::Memory, Severity::Ok, seen);
        return Some(
            finding.why("memory for a window need not lie in one piece, since the IOMMU makes one of it"),
        );
    }
    if reserved > 0 {
        let seen = format!("{} are reserved for devices (CMA)", bytes(reserved));
        let severity = if reserved < len { Severity::Warning } else { Severity::Ok };
        let finding = Finding::new(Check::Memory, severity, seen).why(format!(
            "without an IOMMU the memory behind a window comes in one piece from there; a window has {}",
            bytes(len)
        ));
        return Some(if severity == Severity::Ok {
            finding
        } else {
            finding.fix("a larger `cma=` on the kernel's command line")
        });
    }
    let place = match family.alignment {
        Alignment::Window => "; this family also wants it at a multiple of the window's length",
        Alignment::Page => "",
    };
    let seen =
        format!("windows of up to {}, and neither a translating IOMMU nor reserved memory (CMA)", bytes(len));
    Some(
        Finding::new(Check::Memory, Severity::Warning, seen)
            .why(format!("more than {} in one piece is had by moving other memory away: soon after boot there is much, later there may be none, and the link stays down{place}", bytes(PIECE)))
            .fix("start the daemon at boot, or switch on the IOMMU and leave it translating (`intel_iommu=on` on Intel; no `iommu=pt`), or make the NTB BARs 4 MiB, or run a kernel with CONFIG_DMA_CMA and `cma=`"),
    )
}

/// Memory that is reserved for devices, bytes.
fn cma(tree: &Tree) -> u64 {
    let text = tree.text("proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CmaTotal:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// A number of bytes with a unit.
pub(crate) fn bytes(len: u64) -> String {
    let (mut value, mut unit) = (len, 0);
    while value >= 1024 && value.is_multiple_of(1024) && unit < 4 {
        (value, unit) = (value / 1024, unit + 1);
    }
    format!("{value} {}", ["B", "KiB", "MiB", "GiB", "TiB"][unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_whole_unit() {
        assert_eq!([bytes(64 << 20), bytes(1025), bytes(1 << 40)], ["64 MiB", "1025 B", "1 TiB"]);
        assert_eq!(bytes(u64::MAX), "18446744073709551615 B");
        assert_eq!(bytes(0), "0 B");
    }
}
