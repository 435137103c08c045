//! One cable: its port, set-up, the two message channels at the start of the window, and the window's segments.
//!
//! ```text
//!   window:  | control channel | IP channel | segments of circuits ...
//!            0                 ip_range     circuits
//! ```

mod buffers;
mod life;
mod wakers;

pub use wakers::Wakers;

use crate::channel::{Channel, Sent};
use crate::config::{PortConfig, WINDOW_MIN};
use crate::waiting::Limits;
use crate::window::Window;
use crosslane_fabric::circuit::Death;
use crosslane_fabric::setup::{Agreement, CableSetup, State};
use crosslane_port::{Mapped, Pacing, PortError};
use crosslane_shm::arm::{self, Armed, NextSleep};
use crosslane_shm::ring::Violation;
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_status::Link;
use crosslane_wire::control::Control;
use crosslane_wire::record::{MAX_PACKET, max_message};
use crosslane_wire::scratchpad::DOORBELL_CHANNEL;
use crosslane_wire::segment::{RING_MIN, segment_len};
use crosslane_wire::{CircuitId, Epoch, HostId, PortId, SegmentRange, codec};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Window that everything goes through.
const WINDOW: usize = 0;
/// Bounds of an IP channel's ring, bytes. The shortest takes the longest packets: the kernel hands over 64 KB at once, and sends them again
/// without end if they are dropped.
const IP_RING_MIN: u64 = 512 << 10;
const _: () = assert!(max_message(IP_RING_MIN) == MAX_PACKET);
const IP_RING_MAX: u64 = 4 << 20;
/// How much of it is used at first, bytes.
const IP_RING_FIRST: u64 = 1 << 20;
const CONTROL_RANGE: SegmentRange = SegmentRange { offset: 0, len: segment_len(RING_MIN) };

/// Most bytes of an IP channel's ring in a window of so many bytes: a quarter of those, as far as there are. Both sides know each
/// other's windows.
const fn ip_ring_max(window: u64) -> u64 {
    let mut ring = IP_RING_MAX;
    while ring > IP_RING_MIN && ring > window / 4 {
        ring /= 2;
    }
    ring
}

/// Where the IP channel lies in a window of so many bytes.
const fn ip_range(window: u64) -> SegmentRange {
    SegmentRange { offset: CONTROL_RANGE.len, len: segment_len(ip_ring_max(window)) }
}

/// Where the segments of circuits begin in a window of so many bytes.
pub const fn circuits(window: u64) -> u64 {
    ip_range(window).offset + ip_range(window).len
}

/// What may wait for room in the control channel; more means that the peer is stuck.
const CONTROL_LIMITS: Limits = Limits { messages: 4096, lane_bytes: 32 << 20, bytes: 32 << 20 };
/// Packets that may wait for room in the IP channel, for each host that they are for: what the kernel's TCP has on its
/// way at most, beside the ring.
const IP_LIMITS: Limits = Limits { messages: 4096, lane_bytes: 4 << 20, bytes: 32 << 20 };
/// The lane of what is for the neighbour itself.
const OWN_LANE: u16 = 0;
/// How long a peer that sends without end what is of no use is not heard.
const REST: Duration = Duration::from_millis(5);
/// Doorbells of set-up in a second: one set-up takes a few, and costs us fresh memory.
const SETUP_DOORBELLS: u32 = 256;
/// How long a cable whose peer broke the protocol stays down.
const PENANCE: Duration = Duration::from_secs(1);
/// How long after the daemon's start a cable may be missing before that is said.
const EXPECTED: Duration = Duration::from_secs(5);

/// What happened to a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CableEvent {
    /// It is up.
    Up(Agreement),
    /// It was up and is down now: why, and for people.
    Down(Death, String),
    /// It will not come up; for people.
    Refused(String),
    /// It has not come up for a while; why, as far as that is known.
    Missing(String),
}

/// Bytes and packets that the daemon itself moved over a cable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Payload of circuits that are no more, sent, bytes.
    pub past_tx_bytes: u64,
    /// Payload of circuits that are no more, received, bytes.
    pub past_rx_bytes: u64,
}

type Messages = Channel<Inbound, Outbound>;

struct Live {
    agreement: Agreement,
    control: Messages,
    ip: Messages,
}

/// One of this host's ports and what is on it.
pub struct Cable {
    /// Number of the port.
    pub id: PortId,
    /// What the configuration says.
    pub config: PortConfig,
    /// What the daemon moved.
    pub traffic: Traffic,
    /// Wakers of this epoch.
    pub wakers: Wakers,
    /// Streams that wait for room for longer rings.
    pub outgrown: VecDeque<CircuitId>,
    /// Buffers that the peer was asked for in this epoch and has not answered.
    pub asked: usize,
    port: Box<Mapped>,
    setup: CableSetup,
    window: Window,
    /// Ranges that were freed and cannot be carved again before the peer has let go of them.
    held: Vec<SegmentRange>,
    prepared: Option<[Inbound; 2]>,
    live: Option<Live>,
    /// Whether the port's descriptor may be readable.
    is_readable: bool,
    last_peer: Option<HostId>,
    events: VecDeque<CableEvent>,
    broken: Option<(Death, String)>,
    /// In which second the peer rang for set-up last, and how often in it.
    setup_doorbells: (u64, u32),
    retry_at: Option<Duration>,
    /// Until when nothing is read that the peer sends.
    rest_until: Option<Duration>,
    /// How long what the peer was asked for last may be under way.
    requests: Armed<Instant>,
    /// When to say that it has not come up; `None` once it was up, was refused, or that was said.
    expected_at: Option<Duration>,
    cut: bool,
    why: Option<String>,
}

impl Cable {
    /// Opens the port.
    pub fn open(id: PortId, host: HostId, config: PortConfig) -> Result<Self, PortError> {
        let port = crate::port::open(&config)?;
        Self::with_port(id, host, config, port)
    }

    /// As [`Self::open`], with a port of any kind.
    pub fn with_port(
        id: PortId,
        host: HostId,
        mut config: PortConfig,
        mut port: Box<Mapped>,
    ) -> Result<Self, PortError> {
        config.window = config.window.min(port.info().window_bytes);
        if config.window < WINDOW_MIN {
            return Err(PortError::WindowTooShort { window: config.window, least: WINDOW_MIN });
        }
        port.set_inbound(WINDOW, config.window)?;
        let cut = config.cut;
        let mut cable = Self {
            id,
            traffic: Traffic::default(),
            wakers: Wakers::default(),
            outgrown: VecDeque::new(),
            asked: 0,
            last_peer: None,
            setup: CableSetup::new(host, config.window, Epoch(0)),
            window: Window::new(circuits(config.window), config.window),
            held: Vec::new(),
            config,
            port,
            prepared: None,
            live: None,
            is_readable: true,
            events: VecDeque::new(),
            broken: None,
            setup_doorbells: (0, 0),
            retry_at: None,
            rest_until: None,
            requests: Armed::NOTHING,
            expected_at: Some(EXPECTED),
            cut: false,
            why: None,
        };
        if cut {
            cable.cut();
        }
        Ok(cable)
    }

    /// Readable when [`Self::poll_event`] may have something.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.port.event_fd()
    }

    /// When, on the daemon's clock, [`Self::poll_event`] shall be called even if nothing happens.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let port = self.port.timeout().map(|wait| now + wait);
        [port, self.retry_at, self.rest_until, self.expected_at].into_iter().flatten().min()
    }

    /// The descriptor is readable.
    pub fn note_readable(&mut self) {
        self.is_readable = true;
    }

    /// Whether [`Self::poll_event`] shall be called: the descriptor was readable, or the time has come.
    pub fn is_due(&self, now: Duration) -> bool {
        self.is_readable
            || self.broken.is_some()
            || !self.events.is_empty()
            || self.deadline(now).is_some_and(|at| at <= now)
    }

    /// What both sides agreed upon, while the cable is up.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.live.as_ref().map(|live| &live.agreement)
    }

    /// The host at the other end, as far as it was ever known.
    pub fn last_peer(&self) -> Option<HostId> {
        self.last_peer
    }

    /// The last epoch.
    pub fn epoch(&self) -> Epoch {
        self.setup.epoch()
    }

    /// As if the cable were pulled out: the link goes down at both ends and stays down until [`Self::mend`]. The
    /// neighbour only sees it go.
    pub fn cut(&mut self) {
        self.cut = true;
        self.expected_at = None;
        self.port.set_link(false);
    }

    /// Ends a [cut](Self::cut): the link may come up again.
    pub fn mend(&mut self) {
        self.cut = false;
        self.port.set_link(true);
    }

    /// `up`, `down`, `cut` or `refused`, and why.
    pub fn link(&self) -> (Link, Option<String>) {
        match self.setup.state() {
            _ if self.cut => (Link::Cut, Some("it was cut here, and waits to be mended".to_owned())),
            State::Up(_) => (Link::Up, None),
            State::Refused(why) => (Link::Refused, Some(why.clone())),
            _ => {
                (Link::Down, self.why.clone().or_else(|| self.port.down_reason().map(|why| why.to_string())))
            }
        }
    }

    /// How much of the window is given out.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Descriptors that the peer has this host hold.
    pub fn held(&self) -> u64 {
        self.port.held() as u64
    }

    /// How well the port keeps the times of the cable that it behaves like.
    pub fn pacing(&self) -> Option<Pacing> {
        self.port.pacing()
    }

    /// How long a posted write may be under way, ns.
    pub fn posted_ns(&self) -> u32 {
        self.port.info().posted_ns
    }

    /// How long a write of ours and then one of the peer's may be under way together, ns; the peer's port is one like ours.
    pub fn in_flight_ns(&self) -> u32 {
        arm::flight_ns(self.posted_ns(), self.posted_ns())
    }

    /// The next thing that happened. Handles all events of the port first.
    pub fn poll_event(&mut self, now: Duration) -> Option<CableEvent> {
        self.is_readable = false;
        self.run_deferred(now);
        while let Some(event) = self.port.poll_event() {
            self.handle_port(event, now);
            self.run_deferred(now);
        }
        self.events.pop_front()
    }

    /// Sends a control message. A peer that does not read for so long that the queue is full loses the cable.
    pub fn send(&mut self, message: &Control) {
        let Some(live) = &mut self.live else { return };
        let bytes = match codec::encode(message) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::error!(%error, "control message not sent"),
        };
        match live.control.send(OWN_LANE, &bytes) {
            Ok(Sent::Taken) => self.traffic.tx_bytes += bytes.len() as u64,
            Ok(Sent::Dropped) => {
                self.break_off(Death::Cable, "the peer does not read its control channel".to_owned())
            }
            Err(violation) => self.violated(violation),
        }
    }

    /// Whether control messages could be sent without queueing.
    pub fn has_room(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.control.is_flushed())
    }

    /// Sends an IP packet, head and all, which if it must waits behind others for the same host; `false` if it was
    /// dropped.
    pub fn send_ip(&mut self, host: HostId, packet: &[u8]) -> bool {
        let Some(live) = &mut self.live else { return false };
        match live.ip.send(host.0, packet) {
            Ok(sent) => {
                if sent == Sent::Taken {
                    self.traffic.tx_bytes += packet.len() as u64;
                }
                sent == Sent::Taken
            }
            Err(violation) => {
                self.violated(violation);
                false
            }
        }
    }

    /// Reads nothing of what the peer sends for a moment: it sends without end what is of no use.
    pub fn rest(&mut self, now: Duration) {
        self.rest_until = Some(now + REST);
    }

    /// The next control message, decoded.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> Option<Control> {
        let live = self.live.as_mut().filter(|_| self.rest_until.is_none())?;
        match live.control.receive(buffer) {
            Ok(None) => None,
            Ok(Some(len)) => {
                self.traffic.rx_bytes += len as u64;
                match codec::decode(&buffer[..len]) {
                    Ok(message) => Some(message),
                    Err(error) => {
                        self.break_off(Death::Violation, format!("control message: {error}"));
                        None
                    }
                }
            }
            Err(violation) => {
                self.violated(violation);
                None
            }
        }
    }

    /// The next IP packet to the beginning of `buffer`, head and all: its length; `None` if there is none.
    pub fn receive_ip(&mut self, buffer: &mut Vec<u8>) -> Option<usize> {
        match self.live.as_mut().filter(|_| self.rest_until.is_none())?.ip.receive(buffer) {
            Ok(len) => {
                self.traffic.rx_bytes += len.unwrap_or(0) as u64;
                len
            }
            Err(violation) => {
                self.violated(violation);
                None
            }
        }
    }

    /// Moves what waits for room, and rings the peer if it sleeps for what was sent.
    pub fn flush(&mut self) {
        let Some(live) = &mut self.live else { return };
        if let Err(violation) = live.control.flush().and_then(|()| live.ip.flush()) {
            return self.violated(violation);
        }
        if live.control.poll_doorbell() | live.ip.poll_doorbell() {
            self.port.ring_peer_doorbell(1 << DOORBELL_CHANNEL);
        }
    }

    /// Whether a message waits: one load for each channel.
    pub fn arrived(&self) -> bool {
        self.rest_until.is_none()
            && self.live.as_ref().is_some_and(|live| live.control.arrived() || live.ip.arrived())
    }

    /// Asks for wakes before a sleep; `true` if something has arrived meanwhile.
    pub fn arm(&mut self) -> bool {
        let in_flight_ns = self.in_flight_ns();
        let Some(live) = self.live.as_mut().filter(|_| self.rest_until.is_none()) else { return false };
        match live.control.arm().and_then(|asked| Ok(live.ip.arm()? | asked)) {
            Ok(true) => self.requests.arm(in_flight_ns, Instant::now),
            Ok(false) => {}
            Err(violation) => {
                self.violated(violation);
                return true;
            }
        }
        if live.control.poll_doorbell() | live.ip.poll_doorbell() {
            self.port.ring_peer_doorbell(1 << DOORBELL_CHANNEL);
        }
        self.arrived()
    }

    /// Whether what was asked for may have been under way when [`Self::next_sleep`] was called last.
    pub fn is_under_way(&self) -> bool {
        self.requests.is_under_way()
    }

    /// How long the next sleep may last: what was asked for may still be under way. To be followed by another [`Self::arm`].
    pub fn next_sleep(&mut self) -> NextSleep {
        self.requests.next_sleep(Instant::now)
    }

    /// Wants no more wakes.
    pub fn disarm(&mut self) {
        if let Some(live) = &mut self.live {
            live.control.disarm();
            live.ip.disarm();
        }
    }

    /// Takes the cable down because the peer did what it must not, or cannot go on. It comes back after a while.
    pub fn break_off(&mut self, death: Death, why: String) {
        if self.broken.is_none() {
            self.broken = Some((death, why));
        }
    }

    /// Gives out a segment of inbound memory for the peer to write, as a descriptor.
    pub fn carve_inbound(&mut self, len: u64) -> Result<(SegmentRange, Segment), PortError> {
        let range = self.allot(len)?;
        match self.port.carve_inbound(WINDOW, range) {
            Ok(fd) => Ok((range, fd)),
            Err(error) => {
                self.window.free(range);
                Err(error)
            }
        }
    }

    /// Whether what this port gives out is memory of this machine.
    pub fn is_shared_memory(&self) -> bool {
        self.port.info().is_shared_memory()
    }

    /// Puts a segment that another cable's peer gave behind a range of inbound memory, for this one's peer to write.
    pub fn pass_inbound(&mut self, segment: &Segment) -> Result<SegmentRange, PortError> {
        let range = self.allot(segment.info.len)?;
        if let Err(error) = self.port.pass_inbound(WINDOW, range, segment) {
            self.window.free(range);
            return Err(error);
        }
        Ok(range)
    }

    /// Takes a segment back that nobody writes any more.
    pub fn free_inbound(&mut self, range: SegmentRange) {
        self.port.free_inbound(WINDOW, range);
        self.held.push(range);
        self.reclaim();
    }

    /// A range of the window for a segment of `len` bytes.
    fn allot(&mut self, len: u64) -> Result<SegmentRange, PortError> {
        self.reclaim();
        self.window.allot(len).ok_or(PortError::Full("segments"))
    }

    /// Makes room of what the peer has let go of. A peer that keeps what it should let go of has less of its own cable's window.
    fn reclaim(&mut self) {
        let (port, window) = (&self.port, &mut self.window);
        self.held.retain(|&range| {
            let free = port.is_free(WINDOW, range);
            if free {
                window.free(range);
            }
            !free
        });
    }

    /// A segment of the peer's memory, as a descriptor.
    pub fn carve_outbound(&mut self, range: SegmentRange) -> Result<Segment, PortError> {
        self.port.carve_outbound(WINDOW, range)
    }

    /// The same segment with a queue of stores that no program has, if that is how it is stored to.
    pub fn queue_beside(&mut self, range: SegmentRange) -> Result<Segment, PortError> {
        self.port.queue_beside(WINDOW, range)
    }

    fn violated(&mut self, violation: Violation) {
        self.break_off(Death::Violation, violation.to_string());
    }
}
