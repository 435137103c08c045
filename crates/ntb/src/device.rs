//! The device and its calls.

use crate::abi::{self, Info, Range, Register, Translate, Waker};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl};
use std::ffi::c_void;
use std::path::Path;

/// Whose memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This host's, which the peer stores into.
    Inbound,
    /// The peer's: stores only.
    Outbound,
}

/// What a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A life of the link has ended: all ranges, wakers and bells of it have.
    Down,
    /// A life has begun.
    Up,
    /// These doorbells were rung, and are not masked.
    Doorbells(u64),
}

/// One end of a cable. This process is its owner: all that it makes by the device ends when the device is closed.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    info: Info,
}

impl Device {
    /// Opens the device at `path`.
    ///
    /// # Errors
    /// `EBUSY`: another process has it. `EPROTO`: the module is of another version ([`abi::VERSION`]). Or what `open` says.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
        // SAFETY: the call fills in one `Info`.
        let info = unsafe { ioctl(&fd, Getter::<{ abi::INFO }, Info>::new()) }?;
        if info.version != abi::VERSION || info.windows as usize > abi::WINDOWS {
            return Err(Errno::PROTO);
        }
        Ok(Self { fd, info })
    }

    /// What the device had when it was opened.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Wants memory of `len` bytes behind an inbound window; 0: none.
    ///
    /// # Errors
    /// `EBUSY` while ranges are carved from it, and for window 0 while the link is up; `EINVAL`, `ENXIO`, `ENOMEM`.
    pub fn translate(&self, window: u32, len: u64) -> Result<()> {
        self.set::<{ abi::TRANSLATE }, _>(Translate { window, reserved: 0, len })
    }

    /// A descriptor of a range, to map or to pass on.
    ///
    /// # Errors
    /// `EEXIST` if it overlaps one that is carved, `ENOTCONN` while the link is down, `EINVAL`, `ENXIO`, `EMFILE`, `ENOMEM`.
    pub fn carve(&self, side: Side, window: u32, offset: u64, len: u64) -> Result<OwnedFd> {
        let range = range(side, window, offset, len);
        // SAFETY: the call reads one `Range`, and returns a new descriptor.
        unsafe { ioctl(&self.fd, Descriptor::<{ abi::CARVE }, _>(range)) }
    }

    /// Ends exactly this range: whoever maps it has pages of its own there.
    ///
    /// # Errors
    /// `ENOENT`: it is not carved.
    pub fn take_back(&self, side: Side, window: u32, offset: u64, len: u64) -> Result<()> {
        self.set::<{ abi::TAKE_BACK }, _>(range(side, window, offset, len))
    }

    /// Switches the link on or off.
    ///
    /// # Errors
    /// The bridge cannot.
    pub fn link(&self, on: bool) -> Result<()> {
        self.set::<{ abi::LINK }, _>(u32::from(on))
    }

    /// One of this host's scratchpads, which the peer writes.
    ///
    /// # Errors
    /// `ENXIO`: there is none.
    pub fn read_pad(&self, index: u32) -> Result<u32> {
        let mut pad = Register { index, value: 0 };
        // SAFETY: the call reads one `Register`, and fills it in.
        unsafe { ioctl(&self.fd, Updater::<{ abi::READ_PAD }, Register>::new(&mut pad)) }?;
        Ok(pad.value)
    }

    /// Writes a scratchpad of the peer.
    ///
    /// # Errors
    /// `ENXIO`: there is none. `ENOTCONN` while the link is down.
    pub fn write_peer_pad(&self, index: u32, value: u32) -> Result<()> {
        self.set::<{ abi::WRITE_PEER_PAD }, _>(Register { index, value })
    }

    /// Rings doorbells of the peer, behind all that was stored before.
    ///
    /// # Errors
    /// `ENOTCONN` while the link is down.
    pub fn ring(&self, bits: u64) -> Result<()> {
        self.set::<{ abi::RING }, _>(bits)
    }

    /// Sets which doorbells make no event.
    ///
    /// # Errors
    /// None is known.
    pub fn mask(&self, bits: u64) -> Result<()> {
        self.set::<{ abi::MASK }, _>(bits)
    }

    /// A handle by which the peer may wake the sleeper that this socket is connected to, in this life of the link: the module sends `word`
    /// ([`Waker::word`]).
    ///
    /// # Errors
    /// `ENOTCONN`, `ENOSPC` beyond 65536, `EINVAL`: it is no datagram socket of family `AF_UNIX`.
    pub fn waker(&self, socket: BorrowedFd<'_>, word: u64) -> Result<u32> {
        let mut waker = Waker { socket: socket.as_raw_fd(), handle: 0, word };
        // SAFETY: the call reads one `Waker`, and fills it in.
        unsafe { ioctl(&self.fd, Updater::<{ abi::WAKER }, Waker>::new(&mut waker)) }?;
        Ok(waker.handle)
    }

    /// Ends a waker.
    ///
    /// # Errors
    /// `ENOENT`: there is none of this handle.
    pub fn drop_waker(&self, handle: u32) -> Result<()> {
        self.set::<{ abi::DROP_WAKER }, _>(handle)
    }

    /// A descriptor for a waker of the peer: each `write` to it wakes.
    ///
    /// # Errors
    /// `ENOTCONN`, `EMFILE`, `ENOMEM`.
    pub fn bell(&self, handle: u32) -> Result<OwnedFd> {
        // SAFETY: the call reads one `u32`, and returns a new descriptor.
        unsafe { ioctl(&self.fd, Descriptor::<{ abi::BELL }, _>(handle)) }
    }

    /// The next event, if any. The device is readable (`poll`) while there are some.
    ///
    /// # Errors
    /// `ENODEV`: the bridge has gone.
    pub fn event(&self) -> Result<Option<Event>> {
        let mut bytes = [0; size_of::<abi::Event>()];
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(_) => Ok(match word(&bytes[..4]) {
                1 => Some(Event::Down),
                2 => Some(Event::Up),
                _ => Some(Event::Doorbells(word(&bytes[8..16]))),
            }),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set<const CALL: Opcode, T>(&self, argument: T) -> Result<()> {
        // SAFETY: each caller names the type that the call `CALL` reads, of which `abi` and the kernel's header have the size.
        unsafe { ioctl(&self.fd, Setter::<CALL, T>::new(argument)) }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn range(side: Side, window: u32, offset: u64, len: u64) -> Range {
    Range { window, side: u32::from(side == Side::Outbound), offset, len }
}

/// A call that reads a `T` and returns a new descriptor.
struct Descriptor<const CALL: Opcode, T>(T);

// SAFETY: the opcode says that the kernel reads one `T` at the pointer, which is that of a `T`; what it returns is a new descriptor.
unsafe impl<const CALL: Opcode, T> Ioctl for Descriptor<CALL, T> {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        CALL
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<OwnedFd> {
        // SAFETY: the call has just made this descriptor for this process.
        Ok(unsafe { OwnedFd::from_raw_fd(output) })
    }
}
