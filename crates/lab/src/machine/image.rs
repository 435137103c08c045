//! Where the kernel that machines boot is, and whether QEMU can use KVM here.

use crate::LabError;
use crate::plan::Machines;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The emulator.
pub(super) const QEMU: &str = "qemu-system-x86_64";
/// QEMU's accelerator that every machine has.
pub(super) const EMULATOR: &str = "tcg";
/// The kernel's image in the folder.
pub(super) const KERNEL: &str = "vmlinuz";
/// The first file system in the folder.
pub(super) const INITRD: &str = "initrd.gz";

impl Machines {
    /// Machines of 512 MB and two processors, with the image that is found: in `image` if given, else in `$CROSSLANE_VM_IMAGE`, else where
    /// `make vm-image` or an installation puts it, as seen from this program's folder.
    ///
    /// # Errors
    /// [`LabError::Missing`] if there is none.
    pub fn find(image: Option<PathBuf>) -> Result<Self, LabError> {
        Ok(Self { image: find(image)?, memory_mb: 512, processors: 2 })
    }
}

fn find(given: Option<PathBuf>) -> Result<PathBuf, LabError> {
    let places = given.map_or_else(places, |folder| vec![folder]);
    let whole = |folder: &&PathBuf| folder.join(KERNEL).is_file() && folder.join(INITRD).is_file();
    let found = places.iter().find(whole).and_then(|folder| folder.canonicalize().ok());
    found.ok_or_else(|| LabError::Missing {
        what: format!("{KERNEL} and {INITRD} of virtual machines (`make vm-image` builds them)"),
        places: places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn places() -> Vec<PathBuf> {
    if let Some(given) = env::var_os("CROSSLANE_VM_IMAGE") {
        return vec![given.into()];
    }
    let own = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let beside = env::var_os("CROSSLANE_BIN").map(PathBuf::from).or(own).unwrap_or_default();
    // target/release, target/debug/deps of tests, PREFIX/bin.
    ["../kernel/machine", "../../kernel/machine", "../lib/crosslane/machine"]
        .map(|place| beside.join(place))
        .to_vec()
}

/// The accelerator to use: KVM where a machine can be made with it, else QEMU's own translation. That `/dev/kvm` is there does not show
/// that it serves; a virtual processor that has been made does.
pub(crate) fn accelerator() -> Result<&'static str, LabError> {
    let mut qemu = Command::new(QEMU)
        .args([
            "-M",
            "q35,accel=kvm",
            "-cpu",
            "max",
            "-m",
            "64",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-S",
        ])
        .args(["-monitor", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(LabError::io(format!("run {QEMU} (install the package qemu-system-x86)")))?;
    // It may have ended already: then it does not serve.
    let _ = qemu.stdin.take().map(|mut monitor| monitor.write_all(b"quit\n"));
    let ended = qemu.wait().map_err(LabError::io(format!("wait for {QEMU}")))?;
    Ok(if ended.success() { "kvm" } else { EMULATOR })
}
