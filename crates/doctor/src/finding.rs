//! What was found, as a value.

use serde::{Serialize, Serializer};
use std::fmt;
use std::path::Path;

/// The version of the JSON document. It is raised when a field or a check goes away or changes its meaning; new ones leave it.
pub const VERSION: u32 = 1;
/// Most characters of one text; what is longer comes from a file that is not what it should be.
const TEXT: usize = 400;

/// How bad a finding is. The worst is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that was meant to work cannot.
    Error,
    /// It works, but worse than it could, or may fail later.
    Warning,
    /// Worth knowing; nothing has to be done.
    Info,
    /// As it should be.
    Ok,
}

impl Severity {
    /// As the document has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Ok => "ok",
        }
    }
}

/// Names of checks, as the document has them.
macro_rules! checks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What was looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Check {
            $($(#[$doc])* $variant,)+
        }

        impl Check {
            /// All checks.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As the document has it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

checks! {
    /// Whether PCI devices can be listed.
    PciList = "pci.list",
    /// Which bridges there are.
    Bridge = "ntb.bridge",
    /// Whether Crosslane can use such a bridge.
    Support = "ntb.support",
    /// Whether a driver has the bridge.
    Driver = "ntb.driver",
    /// Its link, against what both ends of it could do.
    Link = "ntb.link",
    /// What the slot could do, against what the bridge could.
    Slot = "ntb.slot",
    /// The largest payload of a packet (MPS).
    Payload = "ntb.payload",
    /// The largest read request (MRRS).
    ReadRequest = "ntb.read_request",
    /// Whether the configuration space could be read.
    Config = "ntb.config",
    /// Sizes of its memory windows.
    Windows = "ntb.windows",
    /// Whether memory of that size can be had for them.
    Memory = "ntb.memory",
    /// Errors that its link has counted.
    LinkErrors = "ntb.errors",
    /// Which processors are near it.
    Node = "ntb.node",
    /// Power saving of links.
    LinkPower = "pci.aspm",
    /// Shared memory between virtual machines.
    Ivshmem = "ivshmem",
    /// Translation of what devices address.
    Iommu = "iommu",
    /// NTB in the kernel.
    KernelNtb = "kernel.ntb",
    /// Crosslane's module.
    Module = "kernel.module",
    /// Who uses each NTB device of the kernel.
    Client = "kernel.client",
    /// The module's devices.
    Device = "kernel.device",
    /// How many processors there are.
    Cores = "cpu.cores",
    /// How long they take to wake.
    Idle = "cpu.idle",
    /// How their clock follows the load.
    Governor = "cpu.governor",
    /// Huge pages.
    HugePages = "memory.huge_pages",
    /// TUN, for the daemon's interface.
    Tun = "rights.tun",
    /// The limit of open files.
    Files = "rights.files",
    /// The limit of locked memory.
    Locked = "rights.memlock",
    /// User namespaces, for labs of ordinary users.
    Namespaces = "rights.user_namespaces",
    /// Whether the daemon may copy for programs.
    Ptrace = "rights.ptrace",
    /// Whether a daemon answers.
    Daemon = "daemon",
    /// Its release.
    Release = "daemon.release",
    /// Its cables.
    Cable = "daemon.cable",
    /// Breaches of the protocol.
    Violations = "daemon.violations",
    /// Connections that stayed TCP.
    Plain = "daemon.tcp",
    /// Refusals for want of something scarce.
    Quota = "daemon.quota",
    /// Whether its host id is its own.
    HostId = "daemon.host_id",
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One thing that was found. Its texts have no control characters and are bounded, whatever files and daemon said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// Which device, port or file it is about, if there may be several.
    pub about: Option<String>,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub reason: String,
    /// What to do; empty if nothing has to be done.
    pub action: String,
}

impl Finding {
    pub(crate) fn new(check: Check, severity: Severity, seen: impl AsRef<str>) -> Self {
        let (reason, action) = (String::new(), String::new());
        Self { check, severity, about: None, seen: clean(seen.as_ref()), reason, action }
    }

    pub(crate) fn about(mut self, about: impl AsRef<str>) -> Self {
        self.about = Some(clean(about.as_ref()));
        self
    }

    pub(crate) fn why(mut self, reason: impl AsRef<str>) -> Self {
        self.reason = clean(reason.as_ref());
        self
    }

    pub(crate) fn fix(mut self, action: impl AsRef<str>) -> Self {
        self.action = clean(action.as_ref());
        self
    }
}

/// A text that a terminal may show: bounded, without control characters and marks that turn the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns { '\u{fffd}' } else { c }
    };
    text.chars().take(TEXT).map(harmless).collect()
}

/// All findings, the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// Where the machine's files were read.
    pub root: String,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(root: &Path, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.severity);
        Self { version: VERSION, root: clean(&root.to_string_lossy()), findings }
    }

    /// How many findings are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_texts_are_cleaned_and_bounded() {
        let finding =
            Finding::new(Check::Bridge, Severity::Ok, "a\x1b[31mb\u{202e}\n").about("x".repeat(5000));
        assert_eq!(finding.seen, "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        assert_eq!(finding.about.map(|about| about.len()), Some(TEXT));
    }

    #[test]
    fn report_begins_with_the_worst() {
        let all = [Severity::Ok, Severity::Error, Severity::Info, Severity::Warning];
        let findings = all.map(|severity| Finding::new(Check::Iommu, severity, "")).to_vec();
        let report = Report::new(Path::new("/"), findings);
        let sorted: Vec<_> = report.findings.iter().map(|finding| finding.severity.name()).collect();
        assert_eq!(sorted, ["error", "warning", "info", "ok"]);
        assert_eq!(report.count(Severity::Error), 1);
    }
}
