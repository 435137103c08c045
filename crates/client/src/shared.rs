//! The state of one end, in a memfd of its own, shared by all processes that hold the end.
//!
//! Words that the same thread writes lie together: cache lines for the sender, for the receiver and for waiting threads.

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

/// State of the end as a whole. The words that each call reads come first, in one cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Status {
    /// How the program's data is to be sent, a `crosslane_stream::Transfer`.
    pub transfer: AtomicU32,
    /// Who chose `transfer`, a [`state::Chooser`].
    pub transfer_by: AtomicU32,
    /// Not 0: the daemon's engine is to copy.
    pub offload: AtomicU32,
    /// Who chose `offload`, a [`state::Chooser`].
    pub offload_by: AtomicU32,
    /// State of the receiving direction, a `crosslane_stream::Direction`.
    pub rx: AtomicU32,
    /// State of the sending direction.
    pub tx: AtomicU32,
    /// Not 0: `O_NONBLOCK` is set on the open file description.
    pub nonblock: AtomicU32,
    /// Error number that the program gets once, 0 if none.
    pub error: AtomicU32,
    /// Not 0: the stream was aborted; after the program got `error`, reads give end of file and writes `EPIPE`.
    pub reset: AtomicU32,
    /// Not 0: the carrier TCP connection has received the far side's FIN; unread records in the ring still count.
    pub fin: AtomicU32,
    /// Not 0: a non-blocking `connect` has not been seen to finish.
    pub connecting: AtomicU32,
    /// `SO_RCVTIMEO`, milliseconds, 0 = for ever.
    pub receive_timeout: AtomicU32,
    /// `SO_SNDTIMEO`, milliseconds, 0 = for ever.
    pub send_timeout: AtomicU32,
    /// `SO_RCVLOWAT`: bytes that must be there before a receive that may wait returns, and before the end counts as
    /// readable; 0 and 1 mean any.
    pub low_water: AtomicU32,
    /// When a call that must not wait last asked the kernel about the carrier connection, milliseconds.
    pub looked: AtomicU32,
    /// Lookups of far waiters that failed.
    pub unfound: AtomicU32,
    /// [`UNHEARD`]: bytes were sent after the far end was gone; [`UNHEARD_TOLD`]: and the carrier connection was reset; else 0.
    pub unheard: AtomicU32,
    /// After the FIN: whether a control record in the ring preceded it ([`FIN_TOLD`]) or not ([`FIN_SILENT`]); 0 while no
    /// thread has looked.
    pub silence: AtomicU32,
    /// Not 0: `shutdown(SHUT_RD)` was called.
    pub read_shut: AtomicU32,
    /// Not 0: this is the connecting end.
    pub client: AtomicU32,
    /// Not 0: this library, and not the program, has set `SO_REUSEADDR` on the socket.
    pub port_shared: AtomicU32,
    /// `SO_LINGER`: 0 = off, otherwise seconds + 1.
    pub linger: AtomicU32,
    /// When the stream began, milliseconds of the monotonic clock.
    pub born: AtomicU64,
    /// The end's id at the daemon.
    pub circuit: AtomicU64,
    /// Secret that proves to the daemon the right to close the end.
    pub token: AtomicU64,
    /// Whether receives report how many bytes are left (`TCP_INQ`): 0 = not known, 1 = no, 2 = yes.
    pub unread_wanted: AtomicU32,
    /// `SO_PEEK_OFF`: offset of peeks from the first unread byte, plus 1; 0 if peeks begin at the front.
    pub peek_offset: AtomicU32,
}

/// Words that the sender changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Sending {
    /// The lock of sending: held while a record is written.
    pub lock: SharedLock,
    /// How often a send found no room: each new value is a new edge for `EPOLLOUT`.
    pub blocked: AtomicU32,
    /// Not 0: the direction must end. The holder of the lock sends `DisConn` when it releases the lock.
    pub ending: AtomicU32,
    /// The far side's `WANT_DATA` that was last answered by a wake.
    pub rung: AtomicU64,
    /// Number of sends, to look up the processor at every 64th.
    pub sends: AtomicU32,
    /// The processor at the last sample.
    pub cpu: AtomicU32,
    /// How long to spin for room.
    pub budget: Budget,
    /// Longest ring that the program wants (`SO_SNDBUF`), bytes; 0 if it did not set any.
    pub limit: AtomicU64,
    /// Generation for which a longer segment was last requested, plus 1.
    pub outgrown: AtomicU32,
    /// Stream offset up to which the far program is known to have taken the bytes.
    pub acked: AtomicU64,
    /// Stream offset that the far end had received when the present circuit began.
    pub base: AtomicU64,
    /// Bytes that a striped stream has sent by both of its circuits, for who only looks; in the first one's state.
    pub striped: AtomicU64,
}

/// Words that the receiver changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Receiving {
    /// The lock of receiving: held while records are consumed.
    pub lock: SharedLock,
    /// How long to spin for data.
    pub budget: Budget,
    /// The far side's `WANT_ROOM` that was last answered by a wake.
    pub rung: AtomicU64,
    /// The processor on which the far side wrote its last record.
    pub peer_cpu: AtomicU32,
    /// Since when each wait found the far side on its own processor, milliseconds of the monotonic clock; 0 if the last wait did not.
    pub crowded_since: AtomicU32,
    /// Not 0: the far side is asked to stamp its records.
    pub order: AtomicU32,
    /// How often a receive found the lock held for too long: each new value is a new edge for `EPOLLIN`.
    pub missed: AtomicU32,
    /// Bytes that a striped stream has received by both of its circuits, for who only looks; in the first one's state.
    pub striped: AtomicU64,
}

/// Words that waiting threads change.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Waiting {
    /// Number of the last request for a wake.
    pub sequence: AtomicU32,
    /// The waiter to be woken when data arrives, 0 if none.
    pub data: AtomicU32,
    /// The waiter to be woken when there is room, 0 if none.
    pub room: AtomicU32,
}

/// Memory that the far side announced to this end.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Announcement {
    /// Number of the announcement, 0 if there is none.
    pub sequence: AtomicU32,
    /// Bytes.
    pub len: AtomicU32,
    /// Bytes of it that were fetched and that count.
    pub done: AtomicU32,
    /// Not 0: this end wants the bytes through the ring.
    pub refused: AtomicU32,
    /// Id of the buffer that contains it.
    pub buffer: AtomicU64,
    /// Offset of its first byte in the buffer.
    pub at: AtomicU64,
    /// For an offer: the completion line behind the buffer.
    pub line: AtomicU32,
    /// For an offer: stream offset of this end's sending direction up to which the far side had consumed.
    pub units: AtomicU64,
    /// Number of the stream's ring in which it was announced.
    pub generation: AtomicU32,
}

/// Results of ended announcements that their owners may not have read yet.
const RESULTS: usize = 2 * PIPELINE;

/// Announcements of both sides. The words that each call reads come first, in one cache line. The source's part is
/// changed with the lock of sending held, the sink's with the lock of receiving.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Zcopy {
    /// How many pieces of this end's memory the far side may be fetching.
    pub open: AtomicU32,
    /// Not 0: an announcement was fetched in full and its source must be woken.
    pub wake: AtomicU32,
    /// Memory that the far side offers for this end to write into.
    pub sink: Announcement,
    /// Number of the oldest open announcement of this end.
    pub open_first: AtomicU32,
    /// Lengths of the open announcements, bytes, the oldest first.
    pub open_lens: [AtomicU32; PIPELINE],
    /// Not 0: this end withdrew announcements, and the far side may not know that yet.
    pub off: AtomicU32,
    /// Bytes of this end's ring that were used at the withdrawal.
    pub off_at: AtomicU64,
    /// Announcements in a row that this end could not fetch.
    pub refusals: AtomicU32,
    /// Number of this end's last SrcAvail.
    pub last_source: AtomicU32,
    /// Results of the last announcements that ended: words of `crosslane_wire::zcopy`, by number.
    pub results: [AtomicU64; RESULTS],
    /// Memory that the far side offers for this end to fetch.
    pub source: Announcement,
    /// Position of the last announcement record in this ring, plus 1; 0 if there was none.
    pub noted: AtomicU64,
    /// Number of this end's offer, into which the far side may be writing; 0 if there is none.
    pub offered: AtomicU32,
    /// Its length, bytes.
    pub offered_len: AtomicU32,
    /// Number of the stream's ring in which it was offered.
    pub offered_in: AtomicU32,
    /// Number of this end's last SinkAvail.
    pub last_sink: AtomicU32,
}

impl Announcement {
    /// Stores what the far side announced in ring number `generation`.
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

    /// The buffer that contains it.
    pub fn buffer(&self) -> BufferId {
        BufferId(self.buffer.load(Relaxed))
    }
}

impl Zcopy {
    /// The announcements of this end that are not fetched in full.
    pub fn open(&self) -> Open {
        let lens = self.open_lens.each_ref().map(|len| len.load(Relaxed));
        let count = self.open.load(Relaxed) as usize;
        Open::new(self.open_first.load(Relaxed), &lens[..count.min(PIPELINE)])
    }

    /// The word for the result of announcement `sequence`.
    pub fn result(&self, sequence: u32) -> &AtomicU64 {
        &self.results[sequence as usize % RESULTS]
    }

    /// Stores the open announcements of this end.
    pub fn set_open(&self, open: &Open) {
        for (index, len) in self.open_lens.iter().enumerate() {
            len.store(open.at(index).len, Relaxed);
        }
        self.open_first.store(open.at(0).sequence, Relaxed);
        self.open.store(u32::try_from(open.count()).unwrap_or(0), Relaxed);
    }
}

/// Bytes were sent after the far end was gone.
pub const UNHEARD: u32 = 1;
/// The same, and the far kernel has reset the carrier connection.
pub const UNHEARD_TOLD: u32 = 2;

/// A record in the ring that ends the far side's direction, or leaves it to TCP, preceded the FIN.
pub const FIN_TOLD: u32 = 1;
/// The far side's last holder died without such a record.
pub const FIN_SILENT: u32 = 2;

/// The state that all holders of the end share. The part that the daemon may read comes first, see [`state::Front`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct Shared {
    /// Counters for display.
    pub counters: Counters,
    /// Sender's ring.
    pub producer: Producer,
    /// Receiver's ring.
    pub consumer: Consumer,
    /// Stream offsets of the bytes that the far end may still lack.
    pub kept: Kept,
    /// How bytes were sent.
    pub sent: Modes,
    /// How bytes were received.
    pub received: Modes,
    /// State of the end as a whole.
    pub status: Status,
    /// Words of the sender.
    pub sending: Sending,
    /// Words of the receiver.
    pub receiving: Receiving,
    /// Words of waiting threads.
    pub waiting: Waiting,
    /// Announcements of both sides.
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
    /// Makes the state of a new end; the descriptor is for the daemon only.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        State::create().map(|(state, fd)| (Self(state), fd))
    }

    /// Maps the state of an end that another process created.
    pub fn open(fd: impl AsFd) -> Result<Self, MapError> {
        State::open(fd).map(Self)
    }
}

impl core::ops::Deref for SharedState {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: of this length, as just checked, and aligned to a page; mapped as long as `self`; all bit patterns are
        // valid and every field is an atomic.
        unsafe { &*self.0.base().cast::<Shared>() }
    }
}

impl Shared {
    /// Begins a new stream in fresh memory that no other process uses yet.
    pub fn begin(&self) {
        self.receiving.peer_cpu.store(u32::MAX, Relaxed);
        self.sending.budget.reset(u32::MAX);
        self.receiving.budget.reset(u32::MAX);
    }
}
