//! The memory of one generation of an end, and the retention ring that keeps its bytes until they have landed.

use crate::SessionError;
use crosslane_shm::guarded::Fault;
use crosslane_shm::{Inbound, MapError, Outbound, Own, Segment, arm};
use crosslane_wire::segment::{self, RETENTION};
use crosslane_wire::{ChannelInfo, Way};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The segments of one generation, mapped.
#[derive(Debug)]
pub struct Segments {
    /// Its number.
    pub generation: u32,
    /// Length of each ring, bytes.
    pub ring_max: u64,
    /// Mark key of the ring from which this end receives.
    pub rx_key: u64,
    /// Mark key of the ring into which this end sends.
    pub tx_key: u64,
    /// The segment into which the far side stores.
    pub inbound: Inbound,
    /// The far side's segment, into which this end stores.
    pub outbound: Outbound,
    /// What the circuit can do.
    pub way: Way,
    /// Retention ring of the stream, if this or an earlier circuit needs one: see [`Self::keeping`].
    pub retention: Option<Retention>,
    /// How long a store of this end to the far side may be under way, ns; 0 where memory is coherent.
    pub posted_out_ns: u32,
    /// How long a store of the far side to this end may be under way, ns.
    pub posted_in_ns: u32,
}

/// The segments after the newest ones of an end, and where the stream goes on in them.
#[derive(Debug)]
pub struct Next {
    /// The segments.
    pub segments: Segments,
    /// Whether sending goes on in these segments.
    pub newest: bool,
    /// Stream offset of the receiving direction at which they begin.
    pub limit: u64,
    /// Stream offset of the sending direction that the far end has received, if `newest`.
    pub arrived: u64,
}

/// The retention ring: keeps payload until it has landed; stream offset `u` at `u % cap`, where `cap` is a power of two,
/// at most [`RETENTION`].
#[derive(Debug)]
pub struct Retention(Own);

/// The numbers in a daemon's answer that describe [`Segments`].
pub(crate) struct Numbers {
    pub generation: u32,
    pub rx_key: u64,
    pub tx_key: u64,
    pub channel: Box<ChannelInfo>,
    pub retained: bool,
}

impl Segments {
    /// The retention ring to use for bytes sent in these segments; `None` if stores land at once.
    #[inline]
    pub fn keeping(&self) -> Option<&Retention> {
        self.retention.as_ref().filter(|_| self.way.keeps)
    }

    /// Upper bound of the time from a store of the far side until it has landed here, including a thread that makes
    /// stores land and gets no processor for a while; zero where memory is coherent.
    #[inline]
    pub(crate) fn landed_after(&self) -> Duration {
        Duration::from_nanos(arm::flight_ns(0, self.posted_in_ns).into())
    }

    /// Maps the segments of a daemon's answer, and takes their descriptors off the front of `fds`. `Ok(None)`: the
    /// descriptors did not arrive, since this process is at its descriptor limit.
    pub(crate) fn map(
        numbers: &Numbers,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Option<Self>, SessionError> {
        let &Numbers { generation, rx_key, tx_key, ref channel, retained } = numbers;
        let ChannelInfo { inbound: theirs, outbound: ours, ring_max, way } = **channel;
        let len = segment::segment_len(ring_max);
        if !segment::ring_max_ok(ring_max) || [theirs.len, ours.len] != [len; 2] {
            return Err(SessionError::Unexpected("ring length"));
        }
        let (Some(inbound), Some(outbound)) = (fds.next(), fds.next()) else { return Ok(None) };
        let inbound = Inbound::map(&Segment { fd: inbound, info: theirs })?;
        let outbound = Outbound::map(&Segment { fd: outbound, info: ours })?;
        let mut retention = None;
        if retained {
            let Some(fd) = fds.next() else { return Ok(None) };
            retention = Some(Retention::map(&fd)?);
        }
        let (posted_out_ns, posted_in_ns) = (ours.posted_ns, theirs.posted_ns);
        Ok(Some(Self {
            generation,
            ring_max,
            rx_key,
            tx_key,
            inbound,
            outbound,
            way,
            retention,
            posted_out_ns,
            posted_in_ns,
        }))
    }
}

impl Retention {
    /// Maps a retention ring that a daemon gave out.
    pub fn map(fd: impl AsFd) -> Result<Self, MapError> {
        Own::sealed(fd, RETENTION).map(Self)
    }

    /// Keeps `bytes`, at most as many as the ring holds; the first one has stream offset `unit`. They are the program's
    /// memory and may be unmapped.
    pub fn keep(&self, cap: u64, unit: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (at, to_end) = place(unit, cap);
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        self.0.write_guarded(at, first)?;
        self.0.write_guarded(0, rest)
    }

    /// Copies kept bytes from stream offset `unit` on into `target`, at most up to the end of the part in use. Returns how many.
    pub fn copy(&self, cap: u64, unit: u64, target: &mut [u8]) -> usize {
        let (at, to_end) = place(unit, cap);
        let count = target.len().min(to_end);
        self.0.read(at, &mut target[..count]);
        count
    }
}

/// Where stream offset `unit` lies, and how many bytes there are from there to the end. `cap` comes from memory that the
/// processes of one program share: a wrong value harms only that program.
fn place(unit: u64, cap: u64) -> (usize, usize) {
    let cap = cap.clamp(1, RETENTION);
    let at = unit % cap;
    let bytes = |count: u64| usize::try_from(count).unwrap_or(0);
    (bytes(at), bytes(cap - at))
}
