//! The state of one end, in memory of its own, shared by all processes that hold the descriptor.
//!
//! It is laid out by who writes together: a line each for the sender, the receiver and those who wait.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crosslane_shm::MapError;
use crosslane_shm::lock::SharedLock;
use crosslane_shm::ring::{Consumer, Producer};
use crosslane_shm::state::{self, Counters, Front, Kept, Modes, State};
use crosslane_shm::wait::Budget;
use crosslane_stream::zcopy::{Open, PIPELINE};
use crosslane_wire::BufferId;
use crosslane_wire::zcopy::Descriptor;
use std::os::fd::{AsFd, OwnedFd};

/// What is true of the end as a whole. What each call looks at comes first, in one cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Status {
    /// How the program's data is to be sent, a `crosslane_stream::Transfer`.
    pub transfer: AtomicU32,
    /// Who chose that, an [`state::Chooser`].
    pub transfer_by: AtomicU32,
    /// Not 0: the daemon's engine is to copy.
    pub offload: AtomicU32,
    /// Who chose that, an [`state::Chooser`].
    pub offload_by: AtomicU32,
    /// State of the receiving direction, a `crosslane_stream::Direction`.
    pub rx: AtomicU32,
    /// State of the sending direction.
    pub tx: AtomicU32,
    /// Not 0: `O_NONBLOCK` is set on the open file description.
    pub nonblock: AtomicU32,
    /// Error number to be told once, 0 if none.
    pub error: AtomicU32,
    /// Not 0: the stream was broken off; after `error` was told, reads give end of file and writes `EPIPE`.
    pub reset: AtomicU32,
    /// Not 0: the carrier TCP connection has seen the far side's FIN; what lies in the ring still counts.
    pub fin: AtomicU32,
    /// Not 0: a non-blocking `connect` has not been seen to finish.
    pub connecting: AtomicU32,
    /// `SO_RCVTIMEO`, milliseconds, 0 = for ever.
    pub receive_timeout: AtomicU32,
    /// `SO_SNDTIMEO`, milliseconds, 0 = for ever.
    pub send_timeout: AtomicU32,
    /// `SO_RCVLOWAT`, bytes that have to be there before a receive that may wait returns, and before the end counts as
    /// readable; 0 and 1 are any.
    pub low_water: AtomicU32,
    /// When the kernel was last asked about the carrier connection by a call that must not wait, milliseconds.
    pub looked: AtomicU32,
    /// Far waiters that were asked for and not found.
    pub unfound: AtomicU32,
    /// Not 0: bytes were sent after the far end had gone ([`UNHEARD`]), and the kernel of this host knows ([`UNHEARD_TOLD`]).
    pub unheard: AtomicU32,
    /// Once the FIN was seen: whether the far side announced it in the ring ([`FIN_TOLD`]) or not ([`FIN_SILENT`]); 0
    /// while nobody has looked.
    pub silence: AtomicU32,
    /// Not 0: `shutdown(SHUT_RD)` was called.
    pub read_shut: AtomicU32,
    /// Not 0: this is the connecting end.
    pub client: AtomicU32,
    /// Not 0: `SO_REUSEADDR` is set on the socket, and not by its program.
    pub port_shared: AtomicU32,
    /// `SO_LINGER`: 0 = off, otherwise seconds + 1.
    pub linger: AtomicU32,
    /// When the stream began, milliseconds of the monotonic clock.
    pub born: AtomicU64,
    /// The end's name with the daemon.
    pub circuit: AtomicU64,
    /// Proof for closing it.
    pub token: AtomicU64,
    /// Whether receives tell how many bytes are left (`TCP_INQ`): 0 = not known, 1 = no, 2 = yes.
    pub unread_wanted: AtomicU32,
    /// `SO_PEEK_OFF`, bytes behind what was consumed, plus 1; 0 if peeks begin at the front.
    pub peek_offset: AtomicU32,
}

/// What the sender changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Sending {
    /// Held while a record is written.
    pub lock: SharedLock,
    /// How often a send found no room: a new number is a new edge for `EPOLLOUT`.
    pub blocked: AtomicU32,
    /// Not 0: the direction is to end. Whoever has the lock says so when it gives that back.
    pub ending: AtomicU32,
    /// The far side's `WANT_DATA` that was last answered by a wake.
    pub rung: AtomicU64,
    /// Sends so far, to sample the processor now and then.
    pub sends: AtomicU32,
    /// The processor at the last sample.
    pub cpu: AtomicU32,
    /// How long to spin for room.
    pub budget: Budget,
    /// Longest ring that the program wants, bytes; 0 if it did not say.
    pub limit: AtomicU64,
    /// One more than the generation for which a longer segment was asked last.
    pub outgrown: AtomicU32,
    /// Units that the far program is known to have taken.
    pub acked: AtomicU64,
    /// Units that the far end had when the present circuit began.
    pub base: AtomicU64,
}

/// What the receiver changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Receiving {
    /// Held while records are consumed.
    pub lock: SharedLock,
    /// How long to spin for data.
    pub budget: Budget,
    /// The far side's `WANT_ROOM` that was last answered by a wake.
    pub rung: AtomicU64,
    /// The processor that the far side's last record came from.
    pub peer_cpu: AtomicU32,
    /// Since when each wait found the far side on its own processor, milliseconds of the monotonic clock; 0 if the last did not.
    pub crowded_since: AtomicU32,
    /// Not 0: stamps are wanted.
    pub order: AtomicU32,
    /// How often a receive found the lock held for too long: a new number is a new edge for `EPOLLIN`.
    pub missed: AtomicU32,
}

/// What those who wait change.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Waiting {
    /// Number of the last request for a wake.
    pub sequence: AtomicU32,
    /// The waiter that is to be rung when data arrives, 0 if none.
    pub data: AtomicU32,
    /// The waiter that is to be rung when room appears, 0 if none.
    pub room: AtomicU32,
}

/// Memory that the far side announced to us.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Announcement {
    /// Number of the announcement, 0 if there is none.
    pub sequence: AtomicU32,
    /// Bytes.
    pub len: AtomicU32,
    /// Bytes of it that were fetched and count.
    pub done: AtomicU32,
    /// Not 0: we want it by the ring.
    pub refused: AtomicU32,
    /// Number of the buffer that it lies in.
    pub buffer: AtomicU64,
    /// Byte of the buffer where it begins.
    pub at: AtomicU64,
    /// Of a sink: the line behind the buffer.
    pub line: AtomicU32,
    /// Of a sink: units of our sending direction that had been consumed.
    pub units: AtomicU64,
    /// Which of the stream's rings it was announced in.
    pub generation: AtomicU32,
}

/// Announcements that are over and whose owners may not know yet.
const RESULTS: usize = 2 * PIPELINE;

/// What is announced, by either side. What each call looks at comes first, in one cache line. The source's part changes with the lock of sending held, the sink's with that of
/// receiving.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Zcopy {
    /// How many pieces of memory the far side may be fetching, announced by us.
    pub open: AtomicU32,
    /// Not 0: something was fetched in full whose source is to be rung.
    pub wake: AtomicU32,
    /// Memory that the far side offers us to write into.
    pub sink: Announcement,
    /// Number of the first of them.
    pub open_first: AtomicU32,
    /// Their bytes, in their order.
    pub open_lens: [AtomicU32; PIPELINE],
    /// Not 0: announcements were taken back, and the far side may not know it yet.
    pub off: AtomicU32,
    /// Bytes of our ring that were used then.
    pub off_at: AtomicU64,
    /// Announcements in a row that we could not fetch.
    pub refusals: AtomicU32,
    /// Number of our last SrcAvail.
    pub last_source: AtomicU32,
    /// What became of the last ones that are over: words of `crosslane_wire::zcopy`, by number.
    pub results: [AtomicU64; RESULTS],
    /// Memory that the far side offers us to fetch.
    pub source: Announcement,
    /// Position of the last announcement record in this ring, plus 1; 0 if there was none.
    pub noted: AtomicU64,
    /// Memory that the far side may be writing into, offered by us: its number, 0 if there is none.
    pub offered: AtomicU32,
    /// Bytes of it.
    pub offered_len: AtomicU32,
    /// Which of the stream's rings it was offered in.
    pub offered_in: AtomicU32,
    /// Number of our last SinkAvail.
    pub last_sink: AtomicU32,
}

impl Announcement {
    /// Takes over what the far side announced in ring number `generation`.
    pub fn set(&self, descriptor: &Descriptor, generation: u32) {
        self.generation.store(generation, Relaxed);
        self.buffer.store(descriptor.buffer.0, Relaxed);
        self.at.store(descriptor.at, Relaxed);
        self.units.store(descriptor.units, Relaxed);
        self.line.store(descriptor.line, Relaxed);
        self.len.store(descriptor.len, Relaxed);
        self.done.store(0, Relaxed);
        self.refused.store(0, Relaxed);
        self.sequence.store(descriptor.sequence, Relaxed);
    }

    /// The buffer that it lies in.
    pub fn buffer(&self) -> BufferId {
        BufferId(self.buffer.load(Relaxed))
    }
}

impl Zcopy {
    /// What is announced by us and not fetched in full.
    pub fn open(&self) -> Open {
        let lens = self.open_lens.each_ref().map(|len| len.load(Relaxed));
        let count = self.open.load(Relaxed) as usize;
        Open::new(self.open_first.load(Relaxed), &lens[..count.min(PIPELINE)])
    }

    /// Where it is noted what became of announcement `sequence`.
    pub fn result(&self, sequence: u32) -> &AtomicU64 {
        &self.results[sequence as usize % RESULTS]
    }

    /// So much is announced by us from now on.
    pub fn set_open(&self, open: &Open) {
        for (index, len) in self.open_lens.iter().enumerate() {
            len.store(open.at(index).len, Relaxed);
        }
        self.open_first.store(open.at(0).sequence, Relaxed);
        self.open.store(u32::try_from(open.count()).unwrap_or(0), Relaxed);
    }
}

/// Bytes were sent after the far end had gone.
pub const UNHEARD: u32 = 1;
/// The same, and the carrier connection has had its far kernel reset it.
pub const UNHEARD_TOLD: u32 = 2;

/// The FIN belongs to a record that ends, or turns, the far side's direction.
pub const FIN_TOLD: u32 = 1;
/// The far side's last holder ended without a word.
pub const FIN_SILENT: u32 = 2;

/// All that the holders of an end share. What the daemon may read comes first, see [`state::Front`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct Shared {
    /// What was moved.
    pub counters: Counters,
    /// Sender's ring.
    pub producer: Producer,
    /// Receiver's ring.
    pub consumer: Consumer,
    /// What the far end may still lack.
    pub kept: Kept,
    /// How bytes were sent.
    pub sent: Modes,
    /// How bytes were received.
    pub received: Modes,
    /// State of the whole.
    pub status: Status,
    /// Sender.
    pub sending: Sending,
    /// Receiver.
    pub receiving: Receiving,
    /// Waiters.
    pub waiting: Waiting,
    /// What is announced.
    pub zcopy: Zcopy,
}

const _: () = assert!(size_of::<Shared>() as u64 <= state::LEN);
const _: () = assert!(offset_of!(Status, low_water) < 64 && offset_of!(Zcopy, sink.sequence) < 64);
const _: () = assert!(offset_of!(Shared, producer) == offset_of!(Front, producer));
const _: () = assert!(offset_of!(Shared, consumer) == offset_of!(Front, consumer));
const _: () = assert!(offset_of!(Shared, received) == offset_of!(Front, received));
const _: () = assert!(offset_of!(Shared, status) == offset_of!(Front, transfer));
const _: () = assert!(offset_of!(Shared, status.offload_by) == offset_of!(Front, offload_by));

/// The state of one end, mapped.
#[derive(Debug)]
pub struct SharedState(State);

impl SharedState {
    /// Makes the state of a new end; the descriptor is for the daemon.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        State::create().map(|(state, fd)| (Self(state), fd))
    }

    /// Maps the state of an end that another process began.
    pub fn open(fd: impl AsFd) -> Result<Self, MapError> {
        State::open(fd).map(Self)
    }
}

impl core::ops::Deref for SharedState {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: as long, as just checked, and aligned to a page; mapped as long as `self`; all bit patterns are valid
        // and every field is an atomic.
        unsafe { &*self.0.base().cast::<Shared>() }
    }
}

impl Shared {
    /// Begins a new stream in fresh memory, which nobody else uses yet.
    pub fn begin(&self) {
        self.receiving.peer_cpu.store(u32::MAX, Relaxed);
        self.sending.budget.reset(u32::MAX);
        self.receiving.budget.reset(u32::MAX);
    }
}
