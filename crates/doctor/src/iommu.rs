//! The IOMMU: what bridges may reach of this machine's memory.

use crate::finding::{Check, Finding, Severity};
use crate::pci::{Function, Machine};
use crate::tree::Tree;

/// What the kernel says of it.
#[derive(Debug)]
pub(crate) struct Iommu {
    /// How many there are.
    units: usize,
    /// What the kernel was told at its start: words of its command line.
    told: Vec<String>,
}

impl Iommu {
    /// Reads it.
    pub(crate) fn read(tree: &Tree) -> Self {
        let line = tree.text("proc/cmdline").unwrap_or_default();
        let matters = |word: &&str| {
            ["intel_iommu=", "amd_iommu=", "iommu=", "iommu."].iter().any(|begin| word.starts_with(begin))
        };
        let told = line.split_whitespace().filter(matters).map(str::to_owned).collect();
        Self { units: tree.names("sys/class/iommu").map_or(0, |names| names.len()), told }
    }

    /// What it does for one bridge.
    pub(crate) fn about(&self, function: &Function) -> Option<Finding> {
        let finding = |severity, seen: &str| Finding::new(Check::Iommu, severity, seen);
        Some(match function.domain.as_deref() {
            Some(domain) if domain.starts_with("DMA") => finding(Severity::Ok, &format!("the IOMMU translates for it ({domain})"))
                .why("the neighbour reaches nothing but the memory behind the windows, whatever the bridge lets through"),
            Some("identity") => finding(Severity::Warning, "the IOMMU passes it through (identity)")
                .why("only the bridge's own translation keeps the neighbour from the rest of this machine's memory, and memory behind a window must lie in one piece")
                .fix("leave out `iommu=pt` and `iommu.passthrough=1`, or `echo DMA >/sys/kernel/iommu_groups/N/type` before its driver is loaded"),
            Some(other) => finding(Severity::Info, &format!("its group in the IOMMU is of type {other}")),
            None if self.units > 0 => finding(Severity::Warning, "it is in no group of the IOMMU")
                .why("the IOMMU does nothing for it: only the bridge's own translation keeps the neighbour from the rest of this machine's memory")
                .fix("`dmesg | grep -e DMAR -e IOMMU` says why; the firmware may leave it out of its tables"),
            None => return None,
        })
    }
}

/// Says whether there is one.
pub(crate) fn examine(iommu: &Iommu, machine: &Machine, found: &mut Vec<Finding>) {
    let told = if iommu.told.is_empty() {
        String::new()
    } else {
        format!("; command line: {}", iommu.told.join(" "))
    };
    if iommu.units > 0 {
        let seen = format!("{} of them are on{told}", iommu.units);
        found.push(Finding::new(
            Check::Iommu,
            Severity::Ok,
            if iommu.units == 1 { format!("one is on{told}") } else { seen },
        ));
        return;
    }
    let finding = |severity| Finding::new(Check::Iommu, severity, format!("none is on{told}"));
    found.push(if machine.has_bridge() {
        finding(Severity::Warning)
            .why("only the bridge's own translation keeps the neighbour from the rest of this machine's memory, and memory behind a window must lie in one piece")
            .fix("switch it on in the firmware (VT-d, AMD-Vi), and `intel_iommu=on` on the kernel's command line on Intel")
    } else {
        finding(Severity::Info).why("it matters for bridges only, and there is none")
    });
}
