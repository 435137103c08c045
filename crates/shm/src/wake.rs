//! Waking a sleeper of another program. Neither side trusts the other.
//!
//! ```text
//!   waker A: own socket ---\                       SOCK_DGRAM, AF_UNIX
//!   waker B: own socket ----+--> [filter: the word] --> the sleeper's socket: polled, drained
//! ```
//! A sleeper polls a datagram socket, its *wake event* ([`Receiver`]). Each process that may wake the sleeper holds
//! another socket, connected to that one ([`Waker`]), which no other process holds. So
//! - no wake blocks: each send has the flag `MSG_DONTWAIT`, and does not depend on `O_NONBLOCK`, which others could clear;
//! - no waker can take away, close or redirect another waker's wakes: it has only its own socket;
//! - no other process can wake: a filter on the sleeper's socket drops, before they are queued, all datagrams but those
//!   of 16 bytes with the event's random word. A wake may name a stream, to spare the sleeper a look at all others; whoever names another
//!   one than its own has the sleeper look there in vain, and its own stream wait;
//! - no descriptors arrive: Linux 6.16 and newer refuse them; on older kernels another thread closes them.
//!
//! Over a bridge there is no socket to hand out: the waker holds a *bell*, a descriptor of the kernel module (`crosslane_ntb`). A write to it
//! has the far host's module send the same datagram by a socket of the sleeper's daemon. Where a port posts stores by queues, a wake must not
//! overtake them: the waker is a number there, which an entry of the queue names, and the port's lander sends.
//!
//! A full queue means that the sleeper is awake, or is about to wake up.

use crate::segment::DEVICE_MAGIC;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, recv, recvmsg, send, sendto, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;

/// Length of a wake, bytes: four zeros, so that no other protocol takes the datagram for a message of its own, the name of a stream or
/// zeros, and the word.
const LEN: usize = 16;
/// No name: the sleeper is to look at everything.
pub const NOBODY: u32 = 0;
/// Most wakes that one [`clear`] takes; if more are queued, the socket stays readable and the sleeper looks once more.
const BATCH: usize = 8;
/// Most wakes that [`Receiver::discard`] and [`take_names`] take; the queue is shorter as a rule.
const MANY: usize = 1024;
/// Most descriptors of one datagram, the kernel's `SCM_MAX_FD`.
const MAX_DESCRIPTORS: usize = 253;
/// `SO_PASSRIGHTS`, of Linux 6.16: 0 = senders cannot attach descriptors.
const SO_PASSRIGHTS: libc::c_int = 83;

/// The sleeper's end of a wake event.
#[derive(Debug)]
pub struct Receiver {
    socket: OwnedFd,
    address: SocketAddrUnix,
    word: u64,
}

/// One waker's end of a wake event: a socket, or a bell of the kernel module, which has the far host's module send.
#[derive(Debug)]
pub struct Waker {
    descriptor: OwnedFd,
    word: u64,
    by: By,
}

/// How a program or a pump wakes a sleeper of a neighbour.
#[derive(Debug)]
pub enum FarWaker {
    /// By a descriptor that nobody else holds.
    Own(Waker),
    /// By an entry with this number in a queue of stores to that neighbour ([`Outbound::wake`](crate::Outbound::wake)).
    Queued(u64),
}

/// The system call that wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `send`, which does not depend on flags that others could change: for sockets.
    Send,
    /// `write`: for bells, and for sockets of processes that may no longer call `send`, which must be non-blocking and nobody else's.
    Write,
}

impl Receiver {
    /// Makes a new wake event, in this thread's network namespace.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> Result<Self, Errno> {
        let (word, name) = (random()?, [random()?, random()?]);
        let socket = new_socket()?;
        // Before the socket gets an address, so that no other process's datagram is in the queue.
        attach_filter(&socket, word)?;
        refuse_descriptors(&socket);
        // Not a name that the kernel chooses: there are only a million of those, and one process could take them all.
        let name = format!("crosslane-wake-{:016x}{:016x}", name[0], name[1]);
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Self::of(socket, word)
    }

    /// The receiver from a socket and a word that a daemon gave to its program.
    ///
    /// # Errors
    /// The socket is not a local datagram socket.
    pub fn of(socket: OwnedFd, word: u64) -> Result<Self, Errno> {
        check(&socket)?;
        let address = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { socket, address, word })
    }

    /// A new socket for one waker. Only in the network namespace in which the event was made.
    ///
    /// # Errors
    /// There are no descriptors left, or this is another namespace.
    pub fn waker(&self) -> Result<Waker, Errno> {
        Ok(Waker { descriptor: connect(&self.address)?, word: self.word, by: By::Send })
    }

    /// Wakes the sleeper, through the sleeper's own socket. Never blocks.
    pub fn wake(&self) {
        wake_self(self.socket.as_fd(), &self.address, self.word, NOBODY);
    }

    /// Wakes all threads that poll this socket edge-triggered (`EPOLLET`) and never [`Self::clear`] it; only the process
    /// that wakes clears it.
    pub fn wake_anew(&self) {
        self.clear();
        self.wake();
    }

    /// Takes queued wakes from the socket; returns whether there was one. Never blocks.
    pub fn clear(&self) -> bool {
        clear(self.socket.as_fd())
    }

    /// Sleeps until a waker wakes this thread, for at most `timeout`; `None` is for ever. A signal ends the sleep as well.
    pub fn sleep(&self, timeout: Option<&Timespec>) {
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout);
    }

    /// Closes the socket. On kernels that let wakers attach descriptors, another thread closes the descriptors that are queued.
    pub fn discard(self) {
        let _ = (0..MANY).map_while(|_| take_as_may_be(self.socket.as_fd())).count();
    }

    /// The socket's address, valid in its network namespace ([`connect`]).
    pub fn address(&self) -> &SocketAddrUnix {
        &self.address
    }

    /// The word that a wake must contain.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// The socket and its address, for a caller that keeps descriptors in its own way ([`wake_self`], [`clear`]).
    pub fn into_parts(self) -> (OwnedFd, SocketAddrUnix) {
        (self.socket, self.address)
    }
}

impl AsFd for Receiver {
    /// The socket, to poll for input.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Waker {
    /// A waker from a descriptor that another process sent.
    ///
    /// # Errors
    /// The descriptor is of another kind, to which a write could block.
    pub fn of(descriptor: OwnedFd, word: u64) -> Result<Self, Errno> {
        let by = check(&descriptor)?;
        Ok(Self { descriptor, word, by })
    }

    /// Wakes the sleeper; `false` if its socket is closed, or the cable of its bell was cut. Never blocks.
    pub fn wake(&self) -> bool {
        self.wake_for(NOBODY)
    }

    /// As [`Self::wake`], for the stream of this name.
    pub fn wake_for(&self, name: u32) -> bool {
        wake(self.descriptor.as_fd(), self.word, self.by, name)
    }

    /// The word that this waker sends.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// How this waker wakes.
    pub fn by(&self) -> By {
        self.by
    }

    /// The descriptor, for a caller that keeps descriptors in its own way ([`wake`]).
    pub fn into_fd(self) -> OwnedFd {
        self.descriptor
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Refuses all descriptors but those to which a write never waits: datagram sockets of this machine, and the kernel module's bells; how
/// one wakes by the descriptor. Never blocks.
///
/// # Errors
/// `NOTSOCK`, `PROTOTYPE`.
pub fn check(waker: impl AsFd) -> Result<By, Errno> {
    let local = match sockopt::socket_domain(&waker) {
        Err(Errno::NOTSOCK) => return check_bell(waker),
        domain => domain? == AddressFamily::UNIX,
    };
    let datagrams = sockopt::socket_type(&waker)? == SocketType::DGRAM;
    if local && datagrams { Ok(By::Send) } else { Err(Errno::PROTOTYPE) }
}

/// Nothing else of the module's file system can be written to.
fn check_bell(waker: impl AsFd) -> Result<By, Errno> {
    let kind = rustix::fs::fstatfs(waker)?.f_type;
    if u64::try_from(kind).is_ok_and(|kind| kind == DEVICE_MAGIC) {
        Ok(By::Write)
    } else {
        Err(Errno::NOTSOCK)
    }
}

/// As [`Receiver::waker`].
///
/// # Errors
/// There are no descriptors left, or this is another network namespace.
pub fn connect(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

/// As [`Waker::wake_for`].
pub fn wake(waker: BorrowedFd<'_>, word: u64, by: By, name: u32) -> bool {
    let message = message(name, word);
    told(match by {
        By::Send => send(waker, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        By::Write => rustix::io::write(waker, &message),
    })
}

/// As [`Receiver::wake`], for the stream of this name.
pub fn wake_self(socket: BorrowedFd<'_>, address: &SocketAddrUnix, word: u64, name: u32) -> bool {
    told(sendto(socket, &message(name, word), SendFlags::DONTWAIT | SendFlags::NOSIGNAL, address))
}

/// How many wakes of one waker the sleeper's queue takes: fills it, and empties it again, so that wakes which came meanwhile may be lost.
/// Where fewer are queued, none was dropped.
///
/// # Errors
/// There are no descriptors left, or the sleeper's socket is of another network namespace.
pub fn capacity(socket: BorrowedFd<'_>, address: &SocketAddrUnix, word: u64) -> Result<usize, Errno> {
    // By a socket of its own: what the sleeper's own one sends to itself is not bounded.
    let (waker, wake) = (connect(address)?, message(NOBODY, word));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let room = (0..MANY).take_while(|_| send(&waker, &wake, flags).is_ok()).count();
    Ok((0..room).map_while(|_| take_as_may_be(socket)).count())
}

/// As [`Receiver::clear`].
pub fn clear(socket: BorrowedFd<'_>) -> bool {
    (0..BATCH).map_while(|_| take_as_may_be(socket)).count() > 0
}

/// As [`clear`], by `read`: for processes that may no longer call `recv`.
pub fn clear_by_read(socket: BorrowedFd<'_>) -> bool {
    (0..BATCH).take_while(|_| rustix::io::read(socket, &mut [0; LEN]).is_ok()).count() > 0
}

/// As [`clear`], but takes all wakes, and calls `named` with the name in each, which may be [`NOBODY`] and is whatever the waker says.
/// Returns how many there were.
pub fn take_names(socket: BorrowedFd<'_>, named: impl FnMut(u32)) -> usize {
    (0..MANY).map_while(|_| take_as_may_be(socket)).map(named).count()
}

fn told(outcome: Result<usize, Errno>) -> bool {
    matches!(outcome, Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM))
}

fn message(name: u32, word: u64) -> [u8; LEN] {
    (u128::from(name) << 64 | u128::from(word)).to_be_bytes()
}

fn name_in(message: [u8; LEN]) -> u32 {
    let [_, _, _, _, n0, n1, n2, n3, ..] = message;
    u32::from_be_bytes([n0, n1, n2, n3])
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// Takes a wake; the name in it.
fn take_as_may_be(socket: BorrowedFd<'_>) -> Option<u32> {
    if takes_descriptors(socket) { take_all(socket) } else { take(socket) }
}

fn take(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut message = [0; LEN];
    recv(socket, &mut message, RecvFlags::DONTWAIT).ok()?;
    Some(name_in(message))
}

/// Takes a wake and the descriptors that came with it. Closing the last descriptor of a file may block (a lingering
/// socket), so another thread closes them.
fn take_all(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut message = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let taken = recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut control, flags).is_ok();
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    };
    let sent: Vec<OwnedFd> = control.drain().filter_map(rights).flatten().collect();
    if !sent.is_empty() {
        let closing = std::thread::Builder::new().name("discard".into());
        let _ = closing.spawn(move || drop(sent));
    }
    taken.then(|| name_in(message))
}

/// Whether this kernel lets wakers attach descriptors; asked once.
fn takes_descriptors(socket: BorrowedFd<'_>) -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static TAKES: AtomicU8 = AtomicU8::new(UNKNOWN);
    if TAKES.load(Relaxed) == UNKNOWN {
        TAKES.store(if refuse_descriptors(&socket.as_fd()) { NO } else { YES }, Relaxed);
    }
    TAKES.load(Relaxed) == YES
}

/// Sets the option by which the kernel refuses descriptors; `false` if the kernel does not have it.
fn refuse_descriptors(socket: &impl AsFd) -> bool {
    set(socket, SO_PASSRIGHTS, &0_i32).is_ok()
}

/// Attaches the filter by which the kernel drops, before queuing, all datagrams but wakes with this word, and locks it:
/// no holder of the socket can remove it.
fn attach_filter(socket: &OwnedFd, word: u64) -> Result<(), Errno> {
    let (high, low) = ((word >> 32) as u32, (word & 0xffff_ffff) as u32);
    let load = |from: u32, at: u32| instruction(libc::BPF_LD | libc::BPF_W | from, (0, 0), at);
    let unless =
        |value: u32, skip: u8| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, skip), value);
    let end = |bytes: u32| instruction(libc::BPF_RET | libc::BPF_K, (0, 0), bytes);
    let mut program = [
        load(libc::BPF_LEN, 0),
        unless(16, 5),
        load(libc::BPF_ABS, 8),
        unless(high, 3),
        load(libc::BPF_ABS, 12),
        unless(low, 1),
        end(16),
        end(0),
    ];
    let filter = libc::sock_fprog { len: 8, filter: program.as_mut_ptr() };
    set(socket, libc::SO_ATTACH_FILTER, &filter)?;
    set(socket, libc::SO_LOCK_FILTER, &1_i32)
}

fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
}

/// Sets an option of a socket by a direct system call, past any library that interposes the C library's functions.
fn set<T>(socket: &impl AsFd, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let (fd, value) = (socket.as_fd().as_raw_fd(), core::ptr::from_ref(value));
    // SAFETY: the kernel reads `size_of::<T>()` bytes from `value`, and the memory that a filter points to, which outlives the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, option, value, size_of::<T>()) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
    use std::io::IoSlice;

    fn is_readable(receiver: &Receiver) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(receiver, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn wake_stays_until_it_is_cleared() {
        let receiver = Receiver::new().unwrap();
        let waker = receiver.waker().unwrap();
        assert!(!is_readable(&receiver) && !receiver.clear());
        assert!(waker.wake());
        assert!(is_readable(&receiver) && receiver.clear() && !is_readable(&receiver));
        receiver.wake();
        assert!(is_readable(&receiver) && receiver.clear() && !is_readable(&receiver));
        assert!(wake(waker.as_fd(), waker.word(), By::Write, 5) && clear_by_read(receiver.as_fd()));
        drop(receiver);
        assert!(!waker.wake(), "the sleeper is gone");
    }

    #[test]
    fn wake_names_streams_and_the_queue_takes_so_many() {
        let receiver = Receiver::new().unwrap();
        let waker = receiver.waker().unwrap();
        let room = capacity(receiver.as_fd(), receiver.address(), receiver.word()).unwrap();
        assert!(room > 0 && !is_readable(&receiver), "{room}");
        for name in [7, u32::MAX, NOBODY] {
            assert!(waker.wake_for(name));
        }
        let mut names = Vec::new();
        assert_eq!(take_names(receiver.as_fd(), |name| names.push(name)), 3);
        assert_eq!(names, [7, u32::MAX, NOBODY]);
        for name in 0..2000 {
            assert!(waker.wake_for(name));
        }
        assert!(take_names(receiver.as_fd(), |_| {}) >= room, "some were dropped");
    }

    #[test]
    fn wake_never_blocks_on_a_full_queue() {
        let receiver = Receiver::new().unwrap();
        let waker = receiver.waker().unwrap();
        for fd in [receiver.as_fd(), waker.as_fd()] {
            fcntl_setfl(fd, fcntl_getfl(fd).unwrap() - OFlags::NONBLOCK).unwrap();
        }
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for _ in 0..10_000 {
                assert!(waker.wake());
                receiver.wake();
            }
            while receiver.clear() {}
            assert!(!is_readable(&receiver));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("no wake waits");
    }

    #[test]
    fn wake_is_not_possible_for_strangers_or_by_other_messages() {
        let receiver = Receiver::new().unwrap();
        let stranger = new_socket().unwrap();
        rustix::net::connect(&stranger, &receiver.address).unwrap();
        for bytes in [&[0; LEN][..], &[0; 1], &[7; 4000], &message(0, receiver.word ^ 1), &[0; 0]] {
            let _ = send(&stranger, bytes, SendFlags::DONTWAIT);
        }
        let longer = [&message(0, receiver.word)[..], &[0]].concat();
        let _ = send(&stranger, &longer, SendFlags::DONTWAIT);
        assert!(!is_readable(&receiver));
    }

    #[test]
    fn wake_of_others_survives_a_hostile_waker() {
        let receiver = Receiver::new().unwrap();
        let (hostile, honest) = (receiver.waker().unwrap(), receiver.waker().unwrap());
        let elsewhere = Receiver::new().unwrap();
        rustix::net::connect(&hostile, &elsewhere.address).unwrap();
        rustix::net::shutdown(&hostile, rustix::net::Shutdown::Both).unwrap();
        assert!(take(hostile.as_fd()).is_none(), "nothing to steal");
        assert!(!is_readable(&receiver));
        assert!(honest.wake() && is_readable(&receiver) && receiver.clear());
        drop(hostile);
        assert!(!is_readable(&receiver) && honest.wake() && receiver.clear());
    }

    #[test]
    fn wake_with_descriptors_is_refused_or_they_are_closed_aside() {
        let receiver = Receiver::new().unwrap();
        let waker = receiver.waker().unwrap();
        let attach = |fd: BorrowedFd<'_>| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let rights = [fd];
            control.push(SendAncillaryMessage::ScmRights(&rights));
            sendmsg(&waker, &[IoSlice::new(&message(NOBODY, waker.word))], &mut control, SendFlags::DONTWAIT)
        };
        let (read, write) = rustix::pipe::pipe().unwrap();
        if takes_descriptors(receiver.as_fd()) {
            assert!(attach(write.as_fd()).is_ok() && receiver.clear());
        } else {
            assert_eq!(attach(write.as_fd()), Err(Errno::PERM));
        }
        // Allows descriptors again, as older kernels do.
        set(&receiver, SO_PASSRIGHTS, &1_i32).ok();
        assert!(attach(write.as_fd()).is_ok());
        drop(write);
        assert!(take_all(receiver.as_fd()).is_some() && take_all(receiver.as_fd()).is_none());
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "it was closed");
    }

    #[test]
    fn wake_sockets_must_be_datagram_sockets() {
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        for fd in [pipe, event, std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()] {
            assert!(Waker::of(fd, 7).is_err());
        }
        assert!(Waker::of(new_socket().unwrap(), 7).is_ok());
    }
}
