//! Memory of another process of this machine, read by the kernel for us (`process_vm_readv`).
//!
//! A number names a process only until that process ends. So whoever lets others read its memory also names a place where
//! a random number stands that only it has; the number is read in the same call as the bytes, which the kernel makes on one
//! process as a whole, and if it is another one the bytes are nobody's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::io::Errno;

/// What proves that a process is the one that it is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number, as it knows itself.
    pub pid: u32,
    /// A number that stands in its memory, and in no other's.
    pub proof: u64,
    /// Where.
    pub proof_at: u64,
}

/// Bytes that [`can_read`] has the kernel read at a time.
const PIECE: usize = 64 * 1024;

static PROOF: AtomicU64 = AtomicU64::new(0);
/// The process that [`PROOF`] was drawn for; a child of `fork` draws its own.
static DRAWN_BY: AtomicU32 = AtomicU32::new(0);

/// This process; `None` if the kernel gives no random numbers.
pub fn identity() -> Option<Identity> {
    let pid = std::process::id();
    if DRAWN_BY.load(Ordering::Acquire) != pid {
        let mut bytes = [0; 8];
        let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        if drawn != Ok(bytes.len()) {
            return None;
        }
        // Threads that come at the same time draw different numbers; the last one stays, and a reader that saw an earlier
        // one refuses once.
        PROOF.store(u64::from_ne_bytes(bytes) | 1, Ordering::Relaxed);
        DRAWN_BY.store(pid, Ordering::Release);
    }
    Some(Identity { pid, proof: PROOF.load(Ordering::Relaxed), proof_at: (&raw const PROOF) as u64 })
}

/// Copies `target.len()` bytes from address `from` of that process.
///
/// # Errors
/// `EPERM`, `ENOSYS`: not allowed. `EFAULT`: not all of it is readable. `ESRCH`: no such process, or it is another one.
pub fn read(whose: Identity, from: u64, target: &mut [u8]) -> Result<(), Errno> {
    let mut proof = [0u8; 8];
    let pid = i32::try_from(whose.pid).map_err(|_| Errno::SRCH)?;
    let local = [
        libc::iovec { iov_base: proof.as_mut_ptr().cast(), iov_len: proof.len() },
        libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() },
    ];
    let place = |at: u64| core::ptr::with_exposed_provenance_mut(usize::try_from(at).unwrap_or(0));
    let far = [
        libc::iovec { iov_base: place(whose.proof_at), iov_len: proof.len() },
        libc::iovec { iov_base: place(from), iov_len: target.len() },
    ];
    // SAFETY: the local places are ours and as long as said; the far ones are the kernel's to check.
    let read = unsafe { libc::process_vm_readv(pid, local.as_ptr(), 2, far.as_ptr(), 2, 0) };
    match usize::try_from(read) {
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT)),
        Ok(count) if count != proof.len() + target.len() => Err(Errno::FAULT),
        Ok(_) if u64::from_ne_bytes(proof) != whose.proof => Err(Errno::SRCH),
        Ok(_) => Ok(()),
    }
}

/// Whether these bytes of this process can still be read: another thread may have unmapped them, whatever a reference says.
/// The kernel reads them, in pieces; if it may not, they are taken to be there.
pub fn can_read(bytes: &[u8]) -> bool {
    let Some(me) = identity() else { return true };
    let mut piece = vec![0; bytes.len().min(PIECE)];
    bytes.chunks(PIECE).all(|part| {
        let target = &mut piece[..part.len()];
        read(me, part.as_ptr().expose_provenance() as u64, target) != Err(Errno::FAULT)
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_itself_and_nobody_under_its_number() {
        let (me, source) = (identity().unwrap(), vec![7u8; 100_000]);
        let mut target = vec![0; source.len()];
        let from = source.as_ptr().expose_provenance() as u64;
        assert_eq!(read(me, from, &mut target), Ok(()));
        assert_eq!(target, source);
        assert_eq!(read(Identity { proof: me.proof ^ 2, ..me }, from, &mut target), Err(Errno::SRCH));
        assert_eq!(read(Identity { proof_at: 8, ..me }, from, &mut target), Err(Errno::FAULT));
        assert_eq!(read(me, 8, &mut target), Err(Errno::FAULT));
        assert_eq!(read(Identity { pid: 0x3fff_fff0, ..me }, from, &mut target), Err(Errno::SRCH));
        assert_eq!(identity(), Some(me));
    }

    #[test]
    fn memory_that_ends_in_the_middle_is_an_error() {
        let page = 4096;
        // SAFETY: fresh private memory; its second page is unmapped again, and none of it is used by anybody else.
        let base = unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(core::ptr::null_mut(), 2 * page, prot, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::munmap(base.byte_add(page), page), 0);
            base
        };
        let me = identity().unwrap();
        assert_eq!(read(me, base as u64, &mut vec![0; page + 1]), Err(Errno::FAULT));
        assert_eq!(read(me, base as u64, &mut vec![0; page]), Ok(()));
        // SAFETY: nothing is read through the reference: that is what is shown here.
        assert!(!can_read(unsafe { core::slice::from_raw_parts(base.cast(), 2 * page) }));
        // SAFETY: the first page is mapped.
        assert!(can_read(unsafe { core::slice::from_raw_parts(base.cast(), page) }));
        // SAFETY: mapped above and not used any more.
        unsafe { libc::munmap(base, page) };
    }
}
