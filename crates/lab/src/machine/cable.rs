//! Cables between machines: files of shared memory, whose head `kernel/ntb_soft/ivshmem.c` describes.

use crate::LabError;
use crate::plan::Cable;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Length of a cable's memory, bytes, a power of two: registers, and a window of 16 MB for each end. Sparse.
const LEN: u64 = 64 << 20;
/// Where the word lies that is not 0 while the cable is pulled.
const CUT: u64 = 8;

/// The memory of `cable` of the lab in `folder`.
pub(super) fn path(folder: &Path, cable: &Cable) -> PathBuf {
    folder.join(format!("c{}.memory", cable.number))
}

/// Makes the memory of a cable.
pub(crate) fn create(folder: &Path, cable: &Cable) -> Result<(), LabError> {
    let path = path(folder, cable);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|file| file.set_len(LEN)).map_err(LabError::io(format!("create {}", path.display())))
}

/// Pulls the cable, or plugs it in again: both bridges see their link go, or come.
pub(crate) fn set_cut(folder: &Path, cable: &Cable, cut: bool) -> Result<(), LabError> {
    let path = path(folder, cable);
    let file = OpenOptions::new().write(true).open(&path);
    file.and_then(|file| file.write_all_at(&u32::from(cut).to_ne_bytes(), CUT))
        .map_err(LabError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cable_is_cut_by_the_word_behind_the_magic_number() {
        let folder = tempfile::tempdir().expect("folder");
        let cable = Cable { number: 3, a: 1, b: 2, column: false, beside: 0 };
        create(folder.path(), &cable).expect("create");
        assert!(create(folder.path(), &cable).is_err(), "a cable of another lab is not taken over");
        let head = || std::fs::read(path(folder.path(), &cable)).expect("read")[..16].to_vec();
        set_cut(folder.path(), &cable, true).expect("cut");
        assert_eq!(head()[8..12], 1u32.to_ne_bytes());
        set_cut(folder.path(), &cable, false).expect("mend");
        assert_eq!(head(), [0; 16]);
    }
}
