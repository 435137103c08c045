//! Hosts that are virtual machines, each with a kernel of its own, joined by cables that their kernels see as NTB bridges.
//!
//! The keeper starts QEMU where it would start a daemon. The machine's root is this machine's, by 9p and read-only below what the machine
//! writes (its memory), so that every program that is installed here runs there. Its first program is `crosslane-keeper machine`
//! ([`guest`]), which starts the daemon, and programs for clients ([`client`]) that come by the ports of a virtual serial device.
//! Cables are files of shared memory ([`cable`]): QEMU's ivshmem devices, of which the kernel module `ntb_soft` makes bridges.

pub(crate) mod cable;
pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod guest;
pub(crate) mod image;
pub(crate) mod qemu;
pub(crate) mod session;

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Control socket of the daemon in a machine; each machine has a file system of its own for what it writes.
pub(crate) const CONTROL: &str = "/run/crosslane-machine.sock";
/// How many programs may run at once in a machine for clients outside: ports of its serial device.
pub(crate) const PORTS: u32 = 24;

/// What the machines of a lab are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    /// Folder with the kernel's image `vmlinuz` and the first file system `initrd.gz`, which `make vm-image` builds.
    pub image: PathBuf,
    /// Memory of each, MB: programs, and all files that they write.
    pub memory_mb: u32,
    /// Processors of each.
    pub processors: u8,
}

impl Machines {
    /// Machines of 512 MB and two processors, with the image that is found: in `image` if given, else in `$CROSSLANE_VM_IMAGE`, else where
    /// `make vm-image` or an installation puts it, as seen from this program's folder.
    ///
    /// # Errors
    /// [`crate::LabError::Missing`] if there is none.
    pub fn find(image: Option<PathBuf>) -> Result<Self, crate::LabError> {
        Ok(Self { image: image::find(image)?, memory_mb: 512, processors: 2 })
    }
}

/// What a client asks of a machine, one request a connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Run a program.
    Run(Program),
    /// The daemon's status, as JSON on the output.
    Status,
    /// End the daemon by this signal and wait until it is gone.
    Kill(i32),
    /// Start the daemon again.
    Start,
}

/// A program to run. Paths, arguments and environment are bytes, as the kernel has them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) command: Vec<Vec<u8>>,
    /// `NAME=VALUE` each.
    pub(crate) environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) folder: Vec<u8>,
}

pub(crate) fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
