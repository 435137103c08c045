//! A peer of a soft port that sends any frames, bytes and descriptors and stores anything into the registers, while the
//! port is used: nothing panics, waits without bound or leaks a descriptor, what the port gives out is what was asked
//! for, and an honest peer can follow.

mod support;

use bolero::TypeGenerator;
use crosslane_port::soft::frame::{Frame, VERSION};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Port, PortError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::{self, FarWaker, Receiver};
use crosslane_shm::{Load, Store};
use crosslane_wire::buffer::memory_len;
use crosslane_wire::{Reach, SegmentRange};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use support::{DEADLINE, Stranger, cable_path, hello};

const PAGE: u64 = 4096;
/// More events than one poll may have.
const EVENTS: usize = 4096;
/// Longer than any one call may take; most take microseconds.
const LONG: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    /// A frame with what belongs to it.
    Fitting(Shape),
    /// A frame with one descriptor, which may be another than it says.
    Wrong(Shape, Fd),
    /// A frame with anything.
    Frame(Shape, Vec<Fd>),
    Bytes(Vec<u8>, Vec<Fd>),
    Register(u16, u32),
    Use(Call),
    /// Takes what the last frame told of, as a daemon does.
    Take,
    /// Hangs up and comes again.
    Again,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Range {
    first: u8,
    pages: u8,
    shift: bool,
}

impl Range {
    fn range(self) -> SegmentRange {
        let skew = if self.shift && self.first > 250 { 8 } else { 0 };
        SegmentRange {
            offset: u64::from(self.first % 8) * PAGE + skew,
            len: u64::from(self.pages % 4) * PAGE,
        }
    }
}

#[derive(Clone, Debug, TypeGenerator)]
enum Shape {
    Segment(u8, Range),
    Freed(u8, Range),
    Translation(u8, u8),
    Waker(u8),
    Buffer { handle: u8, pages: u8, store: bool },
    Wake(u32),
    Hello(u8),
    OtherVersion(u32),
    Huge { window: u32, offset: u64, len: u64 },
}

impl Shape {
    fn frame(&self) -> Frame {
        match *self {
            Self::Segment(window, range) => {
                Frame::Segment { window: u32::from(window % 3), range: range.range() }
            }
            Self::Freed(window, range) => {
                Frame::Freed { window: u32::from(window % 3), range: range.range() }
            }
            Self::Translation(window, pages) => {
                Frame::Translation { window: u32::from(window % 3), len: u64::from(pages) * PAGE }
            }
            Self::Waker(handle) => Frame::Waker { handle: handle.into() },
            Self::Buffer { handle, pages, store } => {
                Frame::Buffer { handle: handle.into(), len: u64::from(pages % 4) * PAGE, reach: reach(store) }
            }
            Self::Wake(number) => Frame::Wake { number },
            Self::Hello(windows) => hello(usize::from(windows % 10)),
            Self::OtherVersion(version) => Frame::Hello { version, translations: Vec::new() },
            Self::Huge { window, offset, len } => {
                Frame::Segment { window, range: SegmentRange { offset, len } }
            }
        }
    }

    /// What an honest peer would send with it.
    fn fds(&self) -> Vec<OwnedFd> {
        match self {
            Self::Segment(_, range) => Fd::Segment(range.pages).make(),
            Self::Buffer { pages, .. } => Fd::Buffer(*pages).make(),
            Self::Waker(_) => Fd::Waker.make(),
            Self::Hello(_) => Fd::Segment(1).make(),
            _ => None,
        }
        .into_iter()
        .collect()
    }
}

fn reach(store: bool) -> Reach {
    if store { Reach::Store } else { Reach::Load }
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Fd {
    Segment(u8),
    Buffer(u8),
    Open,
    Waker,
    Blocking,
    Pipe,
    Folder,
    Socket,
}

impl Fd {
    /// `None` where this machine has none (a segment without pages).
    fn make(self) -> Option<OwnedFd> {
        let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        Some(match self {
            Self::Segment(pages) => new_segment("test", u64::from(pages % 4) * PAGE).ok()?,
            Self::Buffer(pages) => new_segment("test", memory_len(u64::from(pages % 4) * PAGE)).ok()?,
            Self::Open => memfd_create("test", MemfdFlags::CLOEXEC).ok()?,
            Self::Waker => Receiver::new().ok()?.waker().ok()?.into_fd(),
            Self::Blocking => eventfd(u32::MAX, EventfdFlags::CLOEXEC).ok()?,
            Self::Pipe => rustix::pipe::pipe().ok()?.0,
            Self::Folder => std::fs::File::open("/").ok()?.into(),
            Self::Socket => rustix::net::socket(family, kind, None).ok()?,
        })
    }
}

/// What the daemon does with its port meanwhile.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Call {
    Map(u8, Range),
    CarveOutbound(u8, Range),
    Carve(u8, Range),
    Free(u8, Range),
    Inbound(u8, u8),
    Export,
    Import(u8),
    HandOver(u8),
    TakeOver { handle: u8, pages: u8, store: bool },
    Ring(u32),
    Mask(u32),
    Unmask(u32),
    Scratchpad(u8, u32),
    Off,
    On,
}

fn call(port: &mut SoftPort, call: Call) {
    let window = |window: u8| usize::from(window % 3);
    match call {
        Call::Map(at, range) => check(port.map_outbound(window(at), range.range()), |view| {
            assert_eq!(Store::len(&view) as u64, range.range().len);
        }),
        Call::CarveOutbound(at, range) => {
            check(port.carve_outbound(window(at), range.range()), |fd| check_len(&fd, range.range().len));
        }
        Call::Carve(at, range) => check(port.map_inbound(window(at), range.range()), |view| {
            assert_eq!(Load::len(&view) as u64, range.range().len);
        }),
        Call::Free(at, range) => port.free_inbound(window(at), range.range()),
        Call::Inbound(at, pages) => drop(port.set_inbound(window(at), u64::from(pages) * PAGE)),
        Call::Export => drop(port.export_waker(Fd::Waker.make().unwrap().as_fd(), 1)),
        Call::Import(handle) => {
            check(port.import_waker(handle.into(), 1), check_waker);
        }
        Call::HandOver(pages) => {
            let len = u64::from(pages % 3 + 1) * PAGE;
            let memory = new_segment("test", memory_len(len)).unwrap();
            drop(port.hand_over(memory.as_fd(), len, Reach::Store));
        }
        Call::TakeOver { handle, pages, store } => {
            let len = u64::from(pages % 4) * PAGE;
            check(port.take_over(handle.into(), len, reach(store)), |fd| check_len(&fd, memory_len(len)));
        }
        Call::Ring(bits) => port.ring_peer_doorbell(bits),
        Call::Mask(bits) => port.mask_doorbells(bits),
        Call::Unmask(bits) => port.unmask_doorbells(bits),
        Call::Scratchpad(index, value) => {
            port.write_peer_scratchpad(usize::from(index % 16), value);
            port.read_scratchpad(usize::from(index % 16));
        }
        Call::Off => port.set_link(false),
        Call::On => port.set_link(true),
    }
}

fn check_waker(waker: Option<FarWaker>) {
    match waker {
        Some(FarWaker::Own(waker)) => assert!(wake::check(waker).is_ok()),
        Some(FarWaker::Queued(number)) => panic!("{number}: there is no queue"),
        None => {}
    }
}

/// Takes what a frame told of.
fn take(port: &mut SoftPort, frame: &Frame) {
    match *frame {
        Frame::Segment { window, range } if window < 3 => {
            let window = usize::try_from(window).unwrap();
            check(port.carve_outbound(window, range), |fd| check_len(&fd, range.len));
            check(port.map_outbound(window, range), |view| assert_eq!(Store::len(&view) as u64, range.len));
        }
        Frame::Waker { handle } => {
            check(port.import_waker(handle, 1), check_waker);
        }
        Frame::Buffer { handle, len, reach } => {
            check(port.take_over(handle, len, reach), |fd| check_len(&fd, memory_len(len)));
        }
        _ => {}
    }
}

/// An error is an answer; what is given out is `good`.
fn check<T>(outcome: Result<T, PortError>, good: impl FnOnce(T)) {
    if let Ok(value) = outcome {
        good(value);
    }
}

/// Memory of this very length, which nobody can shrink.
fn check_len(fd: &impl AsFd, len: u64) {
    assert_eq!(u64::try_from(rustix::fs::fstat(fd).unwrap().st_size).unwrap(), len);
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap();
    assert!(seals.contains(rustix::fs::SealFlags::SHRINK), "{seals:?}");
}

/// The liar and what it holds.
struct Liar {
    stranger: Stranger,
    registers: Option<crosslane_shm::Outbound>,
    last: Option<Frame>,
}

impl Liar {
    fn connect(victim: &mut SoftPort, path: &std::path::Path) -> Self {
        let stranger = Stranger::connect(path);
        let registers = stranger.greet(victim);
        Self { stranger, registers: Some(registers), last: None }
    }

    /// Comes again, with a handshake that is perhaps read.
    fn reconnect(&mut self, path: &std::path::Path) {
        let Some(stranger) = Stranger::try_connect(path) else { return };
        stranger.frame(&hello(2), Some(PAGE));
        (self.stranger, self.registers) = (stranger, None);
    }

    fn send(&self, bytes: &[u8], fds: &[OwnedFd]) {
        self.stranger.send(bytes, &fds.iter().take(8).map(AsFd::as_fd).collect::<Vec<_>>());
    }

    fn send_frame(&mut self, shape: &Shape, fds: &[OwnedFd]) {
        let frame = shape.frame();
        self.send(&frame.encode(), fds);
        self.last = Some(frame);
    }

    fn tell(&mut self, step: &Step, victim: &mut SoftPort, path: &std::path::Path) {
        let make = |fds: &[Fd]| fds.iter().filter_map(|fd| fd.make()).collect::<Vec<_>>();
        match step {
            Step::Fitting(shape) => self.send_frame(shape, &shape.fds()),
            Step::Wrong(shape, fd) => self.send_frame(shape, &make(&[*fd])),
            Step::Frame(shape, fds) => self.send_frame(shape, &make(fds)),
            Step::Bytes(bytes, fds) => self.send(bytes, &make(fds)),
            Step::Register(word, value) => {
                if let Some(registers) = &self.registers {
                    registers.store_u32(usize::from(word % 1024) * 4, *value);
                }
            }
            Step::Use(wanted) => call(victim, *wanted),
            Step::Take => self.last.iter().for_each(|frame| take(victim, frame)),
            Step::Again => self.reconnect(path),
        }
    }
}

fn poll_all(port: &mut SoftPort) {
    let count = std::iter::from_fn(|| port.poll_event()).take(EVENTS).count();
    assert!(count < EVENTS, "events without end");
}

/// What each open descriptor is.
fn open_descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

fn try_all(steps: &[Step]) {
    let (_dir, path) = cable_path();
    let mut victim = SoftPort::listen(SoftConfig::new(&path)).unwrap();
    victim.set_inbound(0, 1 << 20).unwrap();
    let mut liar = Liar::connect(&mut victim, &path);
    for step in steps {
        let begin = Instant::now();
        liar.tell(step, &mut victim, &path);
        poll_all(&mut victim);
        assert!(begin.elapsed() < LONG, "{step:?} took {:?}", begin.elapsed());
    }
    drop(liar);
    victim.set_link(true);
    let deadline = Instant::now() + DEADLINE;
    while victim.is_up() {
        assert!(Instant::now() < deadline, "the link is up without a peer");
        poll_all(&mut victim);
    }
    poll_all(&mut victim);
    can_follow(&mut victim, &path);
}

/// An honest peer comes up, which like every port tries again when it was not heard, or found the queue full: those before
/// it may have left it so, for as long as the port does not look there.
fn can_follow(victim: &mut SoftPort, path: &std::path::Path) {
    let deadline = Instant::now() + DEADLINE;
    let (mut honest, mut again) = (None, Instant::now());
    while !victim.is_up() {
        assert!(Instant::now() < deadline, "no honest peer comes up");
        if honest.is_none() || Instant::now() >= again {
            honest = Stranger::try_connect(path);
            honest.iter().for_each(|honest| assert!(honest.frame(&hello(2), Some(PAGE))));
            again = Instant::now() + LONG;
        }
        poll_all(victim);
        support::wait(&[victim]);
    }
}

#[test]
fn hostile_frames_and_registers() {
    assert_eq!(VERSION, 3, "new frames belong into `Shape`");
    let before = open_descriptors().len();
    bolero::check!().with_shrink_time(Duration::ZERO).with_type::<Vec<Step>>().for_each(move |steps| {
        try_all(steps);
        // A thread of the port's own closes what strangers sent.
        let deadline = Instant::now() + DEADLINE;
        while open_descriptors().len() > before + 3 {
            let after = open_descriptors();
            assert!(Instant::now() < deadline, "{before} descriptors before, now: {after:#?}");
            std::thread::yield_now();
        }
    });
}
