//! `crosslane doctor`: looks at a machine and says what is in the way of NTB cables, of programs and of the daemon.
//!
//! [`examine`] reads `/sys`, `/proc`, `/dev`, `/boot` and `/lib/modules` below the root of a [`Tree`], so that it works on a
//! recorded machine as well as on this one, and takes what a daemon answered ([`Daemon`]). It gives a [`Report`] of [`Finding`]s.
//! Nothing is written, no register is touched and no device is opened. Whatever the files say is bounded and cleaned, and none of it
//! can make this fail. `docs/doctor.md` has every check; a test compares it with [`Check`].
#![forbid(unsafe_code)]

mod bridge;
mod config_space;
mod daemon;
mod finding;
mod host;
mod iommu;
mod kernel;
mod known;
mod link;
mod memory;
mod pci;
mod rights;
mod tree;

pub use daemon::Daemon;
pub use finding::{Check, Finding, Report, Severity, VERSION};
pub use tree::{Tree, Unread};

/// Everything that can be said about the machine below `tree`, and about the daemon that answered, or did not.
pub fn examine(tree: &Tree, daemon: &Daemon) -> Report {
    let mut found = Vec::new();
    let machine = pci::Machine::read(tree);
    let groups = iommu::Iommu::read(tree);
    bridge::examine(tree, &machine, &groups, &mut found);
    iommu::examine(&groups, &machine, &mut found);
    kernel::examine(tree, &machine, &mut found);
    host::examine(tree, &machine, &mut found);
    rights::examine(tree, &mut found);
    daemon::examine(daemon, &mut found);
    Report::new(tree.root(), found)
}
