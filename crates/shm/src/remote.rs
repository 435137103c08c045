//! Access of the daemon to a program's memory, with the program's consent: `process_vm_readv` and `process_vm_writev`
//! between the program's buffers and rings that are mapped here.
//!
//! A pid may belong to another process by the time of the call. So each call first checks that the process lives and still belongs
//! to the same user ([`Peer`]), and the program maps a *guard*: a page at an address that the daemon chose at random, which begins
//! with a random number of the daemon's. The guard is the first `iovec` of each call. The kernel looks the process up once per call and
//! walks the `iovec`s in order: in any other process, and after the program withdrew its consent by unmapping the page, the call ends
//! before the first byte of a buffer. A call that reads checks the number as well. A call that writes cannot, so guards lie where the
//! kernel never places a mapping by itself ([`guard_at`]): what is mapped there was put there on purpose.

use crate::peer::{Peer, PeerError};
use crate::{Inbound, Outbound, Store};
use core::ops::Range;
use crosslane_wire::segment::PAGE;
use libc::{c_ulong, c_void, iovec};
use std::sync::Arc;
use thiserror::Error;

/// Most `iovec`s of one call, on either side.
pub const PLACES: usize = 8;
/// Bytes of the guard that each call contains.
const GUARD: usize = 8;

/// Where guards may lie: ranges of 47-bit addresses in which neither kernel nor loader places a program, heap, library or stack, unless
/// a program asks for terabytes. Those lie (x86-64 and AArch64) at the bottom, from 0x2aaa_..., from 0x5555_... and at the top.
const GUARDS: [Range<u64>; 2] = [0x2e00_0000_0000..0x5400_0000_0000, 0x5a00_0000_0000..0x7a00_0000_0000];

/// Address of a guard, one of about 2^33, for a random number.
pub fn guard_at(random: u64) -> u64 {
    let pages: u64 = GUARDS.iter().map(pages_of).sum();
    let mut page = random % pages;
    for range in &GUARDS {
        if page < pages_of(range) {
            return range.start + page * PAGE;
        }
        page -= pages_of(range);
    }
    GUARDS[0].start
}

fn pages_of(range: &Range<u64>) -> u64 {
    (range.end - range.start) / PAGE
}

/// Bytes of a program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Address in the program. Not trusted: the kernel checks that it is mapped.
    pub address: u64,
    /// Length, bytes.
    pub len: usize,
}

/// Why no bytes, or not all, were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RemoteError {
    /// The guard is not mapped: it is another process, or the program has withdrawn its consent.
    #[error("the program's guard page is not there")]
    Unguarded,
    /// The program's memory ends before the bytes do, or is not mapped.
    #[error("the program's buffer is not mapped")]
    Fault,
    /// The kernel denied access (`EPERM`).
    #[error("the kernel refuses to reach the program's memory: {0}")]
    Refused(rustix::io::Errno),
}

impl From<PeerError> for RemoteError {
    fn from(why: PeerError) -> Self {
        match why {
            PeerError::Gone => Self::Unguarded,
            PeerError::OtherUser | PeerError::NoProc => Self::Refused(rustix::io::Errno::PERM),
            PeerError::Unknown(errno) => Self::Refused(errno),
        }
    }
}

/// A process that has consented to such access.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The process.
    pub peer: Arc<Peer>,
    /// Address of its guard.
    pub guard: u64,
    /// The random number at the guard's start.
    pub nonce: u64,
}

impl Remote {
    /// Copies the spans `from`, in order, to `places` of a ring: offset from the segment's start, and length. Both lists
    /// have at most [`PLACES`] entries and equal total length. Copies all bytes or fails.
    pub fn fetch(&self, from: &[Span], to: &Outbound, places: &[(usize, usize)]) -> Result<(), RemoteError> {
        if !to.is_direct() {
            return self.fetch_by_copy(from, to, places);
        }
        let local = places.iter().map(|&(at, len)| io(to.at(at, len).cast(), len));
        self.read(from, local)
    }

    /// As [`Self::fetch`] to a segment whose stores go through a queue.
    #[cold]
    fn fetch_by_copy(
        &self,
        from: &[Span],
        to: &Outbound,
        places: &[(usize, usize)],
    ) -> Result<(), RemoteError> {
        let mut bytes = vec![0; places.iter().map(|(_, len)| len).sum()];
        self.read_into(from, &mut bytes)?;
        let mut rest = &bytes[..];
        for &(at, len) in places {
            let (part, later) = rest.split_at(len);
            to.write(at, part);
            rest = later;
        }
        Ok(())
    }

    /// As [`Self::fetch`], into private memory of the same length.
    pub fn read_into(&self, from: &[Span], to: &mut [u8]) -> Result<(), RemoteError> {
        self.read(from, core::iter::once(io(to.as_mut_ptr().cast(), to.len())))
    }

    /// Copies from `places` of a ring into `to`, in that order.
    pub fn store(&self, places: &[(usize, usize)], from: &Inbound, to: &[Span]) -> Result<(), RemoteError> {
        let local = places.iter().map(|&(at, len)| io(from.at(at, len).cast_mut().cast(), len));
        self.write(local, to)
    }

    /// As [`Self::store`], from private memory.
    pub fn write_from(&self, from: &[u8], to: &[Span]) -> Result<(), RemoteError> {
        self.write(core::iter::once(io(from.as_ptr().cast_mut().cast(), from.len())), to)
    }

    fn read(&self, from: &[Span], local: impl Iterator<Item = iovec>) -> Result<(), RemoteError> {
        let mut nonce = 0_u64;
        let (count, whole) = self.copy(libc::process_vm_readv, &mut nonce, local, from)?;
        if whole != Err(RemoteError::Unguarded) && count > 0 && nonce != self.nonce {
            return Err(RemoteError::Unguarded);
        }
        whole
    }

    fn write(&self, local: impl Iterator<Item = iovec>, to: &[Span]) -> Result<(), RemoteError> {
        let mut nonce = self.nonce;
        self.copy(libc::process_vm_writev, &mut nonce, local, to)?.1
    }

    /// Copies between `local` and `spans` of the program's memory, and before these between `nonce` and the guard: the bytes
    /// of both, and whether that is all.
    fn copy(
        &self,
        call: Call,
        nonce: &mut u64,
        local: impl Iterator<Item = iovec>,
        spans: &[Span],
    ) -> Result<(isize, Result<(), RemoteError>), RemoteError> {
        self.peer.check()?;
        let local = Places::of(io(core::ptr::from_mut(nonce).cast(), GUARD), local);
        let remote = self.guarded(spans);
        // SAFETY: the local places are this process's memory, and if they are written no other reference to it exists during the
        // call, since the caller gave up its own; the kernel checks the others, the guard first.
        let count =
            unsafe { call(self.peer.pid(), local.ptr(), local.count(), remote.ptr(), remote.count(), 0) };
        Ok((count, outcome(count, local.bytes())))
    }

    fn guarded(&self, spans: &[Span]) -> Places {
        let spans = spans.iter().map(|span| io(address(span.address), span.len));
        Places::of(io(address(self.guard), GUARD), spans)
    }
}

/// `process_vm_readv` or `process_vm_writev`.
type Call =
    unsafe extern "C" fn(libc::pid_t, *const iovec, c_ulong, *const iovec, c_ulong, c_ulong) -> libc::ssize_t;

/// Places of one call, the guard's first.
struct Places {
    places: [iovec; PLACES + 1],
    count: usize,
}

impl Places {
    fn of(guard: iovec, others: impl Iterator<Item = iovec>) -> Self {
        let mut made = Self { places: [guard; PLACES + 1], count: 1 };
        for place in others.take(PLACES) {
            made.places[made.count] = place;
            made.count += 1;
        }
        made
    }

    fn ptr(&self) -> *const iovec {
        self.places.as_ptr()
    }

    fn count(&self) -> c_ulong {
        self.count as c_ulong
    }

    fn bytes(&self) -> usize {
        self.places[..self.count].iter().map(|place| place.iov_len).sum()
    }
}

fn io(base: *mut c_void, len: usize) -> iovec {
    iovec { iov_base: base, iov_len: len }
}

/// An address in another process; never dereferenced here.
fn address(of: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(usize::try_from(of).unwrap_or(usize::MAX))
}

fn outcome(count: isize, wanted: usize) -> Result<(), RemoteError> {
    match usize::try_from(count) {
        Ok(count) if count == wanted => Ok(()),
        Ok(count) if count < GUARD => Err(RemoteError::Unguarded),
        Ok(_) => Err(RemoteError::Fault),
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT | libc::ESRCH) => Err(RemoteError::Unguarded),
            errno => {
                Err(RemoteError::Refused(rustix::io::Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))))
            }
        },
    }
}

#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, Store, mem::new_segment};

    const NONCE: u64 = 0x1234_5678_9abc_def0;

    fn remote(guard: &mut u64) -> Remote {
        Remote {
            peer: Arc::new(Peer::own().unwrap()),
            guard: core::ptr::from_mut(guard) as u64,
            nonce: NONCE,
        }
    }

    fn span(bytes: &[u8]) -> Span {
        Span { address: bytes.as_ptr() as u64, len: bytes.len() }
    }

    #[test]
    fn remote_copies_go_to_the_ring_and_back_and_nowhere_else() {
        let fd = new_segment("remote", 8192).unwrap();
        let (out, inb) = (Outbound::sealed(&fd, 8192).unwrap(), Inbound::sealed(&fd, 8192).unwrap());
        let (mut guard, source) = (Box::new(NONCE), b"hello, world".to_vec());
        let remote = remote(&mut guard);
        remote.fetch(&[span(&source[..3]), span(&source[3..])], &out, &[(100, 5), (200, 7)]).unwrap();
        let mut bytes = [0; 6];
        inb.read(99, &mut bytes);
        assert_eq!(&bytes, b"\0hello");
        let mut target = vec![0; 13];
        remote.store(&[(100, 5), (200, 7)], &inb, &[span(&target[..12])]).unwrap();
        assert_eq!(std::hint::black_box(&mut target), b"hello, world\0");
        assert_eq!(Store::len(&out), 8192);
    }

    #[test]
    fn remote_copies_need_the_guard_and_its_number() {
        let (mut guard, source) = (Box::new(NONCE + 1), [7; 8]);
        let mut target = [0; 8];
        assert_eq!(remote(&mut guard).read_into(&[span(&source)], &mut target), Err(RemoteError::Unguarded));
        let gone = Remote { guard: 8, ..remote(&mut guard) };
        let mut into = [9; 8];
        assert_eq!(gone.read_into(&[span(&source)], &mut into), Err(RemoteError::Unguarded));
        assert_eq!(into, [9; 8]);
        assert_eq!(gone.write_from(&[1; 8], &[span(&into)]), Err(RemoteError::Unguarded));
        assert_eq!(std::hint::black_box(into), [9; 8]);
    }

    #[test]
    fn remote_copy_distinguishes_missing_buffer_and_missing_guard() {
        let mut guard = Box::new(NONCE);
        let mut target = [0; 8];
        let nowhere = Span { address: 4096, len: 8 };
        assert_eq!(remote(&mut guard).read_into(&[nowhere], &mut target), Err(RemoteError::Fault));
    }

    #[test]
    fn remote_copies_end_when_the_process_is_no_longer_its_users() {
        let (mut guard, source, mut target) = (Box::new(NONCE), [7; 8], [9; 8]);
        let other = Remote { peer: Arc::new(Peer::own().unwrap().changed()), ..remote(&mut guard) };
        let refused = Err(RemoteError::Refused(rustix::io::Errno::PERM));
        assert_eq!(other.read_into(&[span(&source)], &mut target), refused);
        assert_eq!(other.write_from(&[1; 8], &[span(&target)]), refused);
        assert_eq!((std::hint::black_box(target), *guard), ([9; 8], NONCE));
    }

    #[test]
    fn guard_lies_where_the_kernel_maps_nothing() {
        let pages: u64 = GUARDS.iter().map(pages_of).sum();
        for random in [0, 1, pages / 2, pages - 1, pages, u64::MAX] {
            let at = guard_at(random);
            assert!(at.is_multiple_of(PAGE) && GUARDS.iter().any(|range| range.contains(&at)), "{at:x}");
        }
        // Of a program that no measuring tool changes.
        let maps = std::process::Command::new("cat").arg("/proc/self/maps").output().unwrap();
        for line in String::from_utf8(maps.stdout).unwrap().lines() {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
            assert!(GUARDS.iter().all(|range| to <= range.start || from >= range.end), "{line}");
        }
    }
}
