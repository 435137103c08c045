//! Bridges by their PCI numbers, as the drivers of Linux 6.1 list them (`drivers/ntb/hw`, `drivers/pci/switch/switchtec.c`).

/// What a driver wants of the address of memory behind a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alignment {
    /// A multiple of the window's own length: `mw_get_align` gives the length of the BAR, or `mw_set_trans` refuses others.
    Window,
    /// A multiple of a page.
    Page,
}

/// Whether Crosslane can use bridges of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// As far as its driver has what the module needs. It was run on none of them.
    Possible,
    /// Possible as well; where stores go in a host's memory its neighbour decides.
    NeighbourTranslates,
    /// Linux has no driver.
    NoDriver,
}

/// A family of bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// For people.
    pub(crate) name: &'static str,
    /// The kernel's module.
    pub(crate) driver: &'static str,
    /// What the driver of the PCI function is called where that is another one.
    pub(crate) function_driver: &'static str,
    /// The BARs that may be windows.
    pub(crate) windows: &'static [usize],
    pub(crate) alignment: Alignment,
    pub(crate) support: Support,
}

const fn family(
    name: &'static str,
    driver: &'static str,
    windows: &'static [usize],
    alignment: Alignment,
) -> Family {
    Family { name, driver, function_driver: driver, windows, alignment, support: Support::Possible }
}

const XEON: Family =
    family("Intel Xeon, first generation of its NTB", "ntb_hw_intel", &[2, 4, 5], Alignment::Window);
const SKYLAKE: Family =
    family("Intel Xeon, third generation of its NTB", "ntb_hw_intel", &[2, 4], Alignment::Window);
const ICE_LAKE: Family =
    family("Intel Xeon, fourth generation of its NTB", "ntb_hw_intel", &[2, 4], Alignment::Window);
const GRANITE: Family =
    family("Intel Xeon, fifth generation of its NTB", "ntb_hw_intel", &[2, 4], Alignment::Page);
const AMD_FIRST: Family =
    family("AMD or Hygon processor, first generation", "ntb_hw_amd", &[1, 2, 4], Alignment::Page);
const AMD: Family = family("AMD processor", "ntb_hw_amd", &[2, 4], Alignment::Page);
const EPF: Family = family("endpoint with the NTB function", "ntb_hw_epf", &[2, 3, 4, 5], Alignment::Page);
const SOFT: Family = family("bridge of software (ntb_soft)", "ntb_soft", &[], Alignment::Page);
const SWITCHTEC: Family = Family {
    name: "Microchip Switchtec switch",
    driver: "ntb_hw_switchtec",
    function_driver: "switchtec",
    windows: &[2, 4],
    alignment: Alignment::Window,
    support: Support::Possible,
};
const IDT: Family = Family {
    name: "IDT switch",
    driver: "ntb_hw_idt",
    function_driver: "ntb_hw_idt",
    windows: &[2, 3, 4, 5],
    alignment: Alignment::Page,
    support: Support::NeighbourTranslates,
};
const PLX: Family = Family {
    name: "PLX or Broadcom switch",
    driver: "",
    function_driver: "",
    windows: &[2, 3, 4, 5],
    alignment: Alignment::Page,
    support: Support::NoDriver,
};

/// Class codes: a bridge of another kind, memory of another kind, RAM.
const OTHER_BRIDGE: u32 = 0x0680;
const RAM: u32 = 0x0500;

/// The family of a PCI function, if it is a bridge. `class` has 24 bits.
pub(crate) fn family_of(vendor: u32, device: u32, class: u32) -> Option<Family> {
    let kind = class >> 8;
    Some(match (vendor, device) {
        (0x8086, 0x3725..=0x3727 | 0x3c0d..=0x3c0f | 0x0e0d..=0x0e0f | 0x2f0d..=0x2f0f | 0x6f0d..=0x6f0f) => {
            XEON
        }
        (0x8086, 0x201c) => SKYLAKE,
        (0x8086, 0x347e) => ICE_LAKE,
        (0x8086, 0x0db4) => GRANITE,
        (0x1022 | 0x1d94, 0x145b) => AMD_FIRST,
        (0x1022, 0x148b | 0x14c0 | 0x14c3 | 0x155a) => AMD,
        (0x111d, 0x8091 | 0x808f | 0x8088 | 0x8092 | 0x8090 | 0x808e | 0x808c | 0x808a)
            if kind == OTHER_BRIDGE =>
        {
            IDT
        }
        // The switches' other class is their management alone.
        (0x11f8, 0x8531..=0x8576 | 0x4000..=0x45ff | 0x5000..=0x5fff) if kind == OTHER_BRIDGE => SWITCHTEC,
        (0x104c, 0xb00d) | (0x1957, 0x0809) if kind == RAM => EPF,
        (0x10b5, 0x87b0 | 0x87b1) => PLX,
        (0x584c, _) => SOFT,
        _ => return None,
    })
}

/// Whether a PCI function is QEMU's memory shared between virtual machines.
pub(crate) fn is_ivshmem(vendor: u32, device: u32) -> bool {
    (vendor, device) == (0x1af4, 0x1110)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_depends_on_the_class_where_the_driver_looks_at_it() {
        let driver = |vendor, device, class| family_of(vendor, device, class).map(|family| family.driver);
        assert_eq!(driver(0x8086, 0x201c, 0x06_8000), Some("ntb_hw_intel"));
        assert_eq!(driver(0x11f8, 0x8535, 0x06_8000), Some("ntb_hw_switchtec"));
        assert_eq!(driver(0x11f8, 0x8535, 0x05_8000), None);
        assert_eq!(driver(0x104c, 0xb00d, 0x05_0000), Some("ntb_hw_epf"));
        assert_eq!(driver(0x104c, 0xb00d, 0x06_0000), None);
        assert_eq!(driver(0x8086, 0x0d57, 0x06_0000), None);
    }
}
