//! Chains of pumps between two ends, with what the daemons between would do, in one process.

#![allow(dead_code, unreachable_pub, reason = "a module of one test")]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use crosslane_client::segments::{Next, Retention, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{Daemon, End, Failure, Grant, ResumeError};
use crosslane_node::pump::{Command, Leg, Pumps, Report, TransitId};
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::{self, FarWaker, Receiver, Waker};
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{RETENTION, segment_len};
use crosslane_wire::{CircuitId, Tuple, WaiterId, Way};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketAddrUnix;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A sleep so long means that a wake-up was lost.
const LOST: Duration = Duration::from_secs(10);
const TID: u32 = 1;

/// A daemon that never has other segments.
#[derive(Debug)]
struct Still;

impl Daemon for Still {
    fn next(&self, _: CircuitId, _: u64, _: u32) -> Result<Next, ResumeError> {
        Err(ResumeError::Never)
    }

    fn wake(&self, _: CircuitId, _: u64, _: WaiterId) -> bool {
        false
    }
}

/// A number that no other caller gets.
fn unique() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

/// Waits for `fd`; `false` after `time`.
fn wait(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let nanos = time.subsec_nanos().into();
    let time = Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap(), tv_nsec: nanos };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)).is_ok_and(|count| count > 0)
}

/// All wake events, by waiter: what daemons know together.
#[derive(Default)]
pub struct Board(Mutex<HashMap<WaiterId, (SocketAddrUnix, u64)>>);

impl Board {
    pub fn put(&self, waiter: WaiterId, event: &Receiver) {
        self.0.lock().unwrap().insert(waiter, (event.address().clone(), event.word()));
    }

    fn find(&self, waiter: WaiterId) -> Option<Waker> {
        let all = self.0.lock().unwrap();
        let (address, word) = all.get(&waiter)?;
        Some(Waker::of(wake::connect(address).ok()?, *word).unwrap())
    }

    pub fn wake(&self, waiter: WaiterId) {
        if let Some(waker) = self.find(waiter) {
            waker.wake();
        }
    }
}

/// The daemon of a host between.
pub struct Between {
    pub pumps: Arc<Mutex<Pumps>>,
    pub board: Arc<Board>,
    pub reports: Arc<Mutex<Vec<Report>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Between {
    /// One pump. A daemon that is not `kind` never finds a wake event, and rings all by itself.
    pub fn new(board: &Arc<Board>, spin: Duration, kind: bool) -> Self {
        let pumps = Pumps::new(1, spin).unwrap();
        let event = pumps.event_fd().try_clone_to_owned().unwrap();
        let mut between = Self {
            pumps: Arc::new(Mutex::new(pumps)),
            board: board.clone(),
            reports: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        let (pumps, board) = (between.pumps.clone(), between.board.clone());
        let (reports, stop) = (between.reports.clone(), between.stop.clone());
        let thread = std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                wait(event.as_fd(), Duration::from_millis(20));
                let mut pumps = pumps.lock().unwrap();
                while let Some(report) = pumps.poll_report() {
                    if let Report::Wake { transit, leg, waiter } = report {
                        board.wake(waiter);
                        let waker = board.find(waiter).filter(|_| kind).map(FarWaker::Own);
                        pumps.command(Command::Waker { transit, leg, waiter, waker }).unwrap();
                    }
                    reports.lock().unwrap().push(report);
                }
            }
        });
        between.thread = Some(thread);
        between
    }

    pub fn add(&self, legs: [Leg; 2]) -> TransitId {
        let transit = TransitId(unique().into());
        let mut pumps = self.pumps.lock().unwrap();
        pumps.command(Command::Add { transit, legs, waiter: WaiterId(unique()) }).unwrap();
        let (waiter, receiver) = pumps.receiver_of(transit).unwrap();
        self.board.put(waiter, receiver);
        transit
    }

    pub fn command(&self, command: Command) {
        self.pumps.lock().unwrap().command(command).unwrap();
    }

    /// Waits until a report comes for which `wanted` holds.
    pub fn expect(&self, what: &str, wanted: impl Fn(&Report) -> bool) {
        until(what, || self.reports.lock().unwrap().iter().any(&wanted));
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LOST;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Both segments of one cable, and the keys of what travels forth and back.
pub struct Channel {
    forth: OwnedFd,
    back: OwnedFd,
    keys: (u64, u64),
    ring_max: u64,
}

impl Channel {
    pub fn new(name: &str, ring_max: u64) -> Self {
        let segment = || new_segment(name, segment_len(ring_max)).unwrap();
        let keys = (u64::from(unique()) << 20, u64::from(unique()) << 20 | 7);
        Self { forth: segment(), back: segment(), keys, ring_max }
    }

    /// The segments and keys of the side that is nearer to the client, or of the other.
    fn side(&self, near: bool) -> (Inbound, Outbound, u64, u64) {
        let len = segment_len(self.ring_max);
        let (inbound, outbound) = if near { (&self.back, &self.forth) } else { (&self.forth, &self.back) };
        let (forth, back) = self.keys;
        let (rx, tx) = if near { (back, forth) } else { (forth, back) };
        let outbound = Outbound::sealed(outbound, len).unwrap();
        (Inbound::sealed(inbound, len).unwrap(), outbound, rx, tx)
    }

    pub fn leg(&self, near: bool, is_end: bool, posted: bool) -> Leg {
        let (inbound, outbound, rx_key, tx_key) = self.side(near);
        let in_flight_ns = if posted { 200_000 } else { 0 };
        Leg { inbound, outbound, ring_max: self.ring_max, rx_key, tx_key, is_end, in_flight_ns }
    }

    /// What a liar on one side stores into.
    pub fn forged(&self, near: bool) -> Outbound {
        self.side(near).1
    }

    /// What a side sees that looks for itself.
    pub fn seen(&self, near: bool) -> Inbound {
        self.side(near).0
    }

    /// The marks' key of what that side writes.
    pub fn key(&self, near: bool) -> u64 {
        self.side(near).3
    }

    fn grant(&self, client: bool) -> Grant {
        let (inbound, outbound, rx_key, tx_key) = self.side(client);
        let address = |port| std::net::SocketAddr::from(([10, 86, 0, 1], port));
        Grant {
            circuit: CircuitId(1),
            token: 2,
            tuple: Tuple { client: address(1), server: address(2) },
            client,
            status: 0,
            segments: Segments {
                generation: 0,
                ring_max: self.ring_max,
                rx_key,
                tx_key,
                inbound,
                outbound,
                way: Way::RELAYED,
                retention: Some(Retention::map(new_segment("kept", RETENTION).unwrap()).unwrap()),
                posted_out_ns: 0,
                posted_in_ns: 0,
            },
            state: SharedState::create().unwrap().0,
            twin: false,
        }
    }
}

/// An end of a stream and the thread that uses it.
pub struct Program {
    pub end: End,
    pub board: Arc<Board>,
    /// One for those who wait for data, one for those who wait for room.
    receivers: [(WaiterId, Receiver); 2],
    /// Looks before a sleep.
    pub looks: u32,
    pub sleeps: AtomicU64,
}

impl Program {
    pub fn new(channel: &Channel, client: bool, board: &Arc<Board>) -> Self {
        let grant = channel.grant(client);
        End::prepare(&grant);
        let end = End::begin(grant, Box::leak(Box::default()), &Still).unwrap();
        let receivers = [(); 2].map(|()| {
            let receiver = Receiver::new().unwrap();
            let waiter = WaiterId(unique());
            board.put(waiter, &receiver);
            (waiter, receiver)
        });
        Self { end, board: board.clone(), receivers, looks: 100, sleeps: AtomicU64::new(0) }
    }

    pub fn try_send(&self, bytes: &[u8]) -> Result<usize, Failure> {
        let moved = self.end.try_send(TID, &[IoSlice::new(bytes)], 0)?;
        moved.wake.into_iter().for_each(|waiter| self.board.wake(waiter));
        Ok(moved.bytes)
    }

    pub fn try_receive(&self, target: &mut [u8]) -> Result<usize, Failure> {
        let moved = self.end.try_receive(TID, &mut [IoSliceMut::new(target)])?;
        moved.wake.into_iter().for_each(|waiter| self.board.wake(waiter));
        Ok(moved.bytes)
    }

    pub fn send(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.try_send(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Failure::WouldBlock) => {
                    self.end.request_grow();
                    self.wait(|| self.end.has_room(TID), false);
                }
                Err(failure) => panic!("{failure}"),
            }
        }
    }

    /// Some bytes; none at the end of file.
    pub fn receive(&self, target: &mut [u8]) -> usize {
        loop {
            match self.try_receive(target) {
                Ok(count) => return count,
                Err(Failure::Ended) => return 0,
                Err(Failure::WouldBlock) => self.wait(|| self.end.maybe_readable(), true),
                Err(failure) => panic!("{failure}"),
            }
        }
    }

    pub fn receive_all(&self, target: &mut [u8]) {
        let mut done = 0;
        while done < target.len() {
            let count = self.receive(&mut target[done..]);
            assert!(count > 0, "end of file after {done} bytes");
            done += count;
        }
    }

    pub fn send_control(&self, kind: Kind) {
        let moved = self.end.send_control(TID, kind).unwrap();
        moved.wake.into_iter().for_each(|waiter| self.board.wake(waiter));
    }

    fn wait(&self, ready: impl Fn() -> bool, data: bool) {
        if (0..self.looks).any(|_| ready()) {
            return;
        }
        self.sleeps.fetch_add(1, Relaxed);
        let (waiter, receiver) = &self.receivers[usize::from(data)];
        let mut done = false;
        while !done {
            // A request is answered once.
            assert!(if data { self.end.want_data(*waiter) } else { self.end.want_room(*waiter) });
            done = ready() || {
                assert!(wait(receiver.as_fd(), LOST), "a wake-up was lost");
                receiver.clear();
                ready()
            };
            if data {
                self.end.unwant_data(*waiter);
            } else {
                self.end.unwant_room(*waiter);
            }
        }
    }
}

/// Two programs with hosts between.
pub struct Chain {
    pub programs: [Program; 2],
    pub between: Vec<(Arc<Between>, TransitId)>,
    pub channels: Vec<Channel>,
}

impl Chain {
    /// A circuit through these hosts.
    pub fn through(hosts: &[Arc<Between>], board: &Arc<Board>, ring_max: u64) -> Self {
        Self::over(hosts, board, ring_max, false)
    }

    pub fn over(hosts: &[Arc<Between>], board: &Arc<Board>, ring_max: u64, posted: bool) -> Self {
        let channels: Vec<_> = (0..=hosts.len()).map(|_| Channel::new("pump-test", ring_max)).collect();
        let add = |(at, host): (usize, &Arc<Between>)| {
            let last = at + 1 == hosts.len();
            let legs = [channels[at].leg(false, at == 0, posted), channels[at + 1].leg(true, last, posted)];
            (host.clone(), host.add(legs))
        };
        let between = hosts.iter().enumerate().map(add).collect();
        let programs =
            [Program::new(&channels[0], true, board), Program::new(&channels[hosts.len()], false, board)];
        Self { programs, between, channels }
    }
}

/// Hosts between, each with a pump of its own.
pub fn hosts(count: usize, spin_us: u64) -> (Vec<Arc<Between>>, Arc<Board>) {
    let board = Arc::default();
    let host = |_| Arc::new(Between::new(&board, Duration::from_micros(spin_us), true));
    ((0..count).map(host).collect(), board)
}

/// Byte `at` of the stream with this number.
pub fn byte(stream: u8, at: u64) -> u8 {
    let [b0, b1, b2, ..] = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(24).to_le_bytes();
    b0 ^ b1 ^ b2 ^ stream
}
