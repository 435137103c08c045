//! Checks of descriptors that the peer sent.

use crosslane_shm::mem::check_memory;
use rustix::fs::{OFlags, SealFlags};
use std::os::fd::AsFd;

/// Accepts only memory of exactly `len` bytes that can be mapped for loads and stores and never resized.
pub(super) fn check_segment(fd: &impl AsFd, len: u64) -> Result<(), String> {
    let seals = check_memory(fd, len).map_err(|error| error.to_string())?;
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err("segment is sealed against stores".into());
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(|errno| errno.to_string())?;
    if flags & OFlags::RWMODE != OFlags::RDWR {
        return Err("segment is not open for loads and stores".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    #[test]
    fn soft_memory_must_be_sealed_and_of_the_right_length() {
        let good = crosslane_shm::mem::new_segment("test", 8192).unwrap();
        assert_eq!(check_segment(&good, 8192), Ok(()));
        assert!(check_segment(&good, 4096).is_err());
        let open = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 8192).unwrap();
        assert!(check_segment(&open, 8192).is_err());
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
        fcntl_add_seals(&open, seals).unwrap();
        assert!(check_segment(&open, 8192).unwrap_err().contains("against stores"));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(check_segment(&pipe, 8192).is_err());
    }
}
