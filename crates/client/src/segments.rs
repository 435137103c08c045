//! The memory of one generation of an end, and what is kept of its bytes until they have landed.

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
    /// Bytes of each ring.
    pub ring_max: u64,
    /// Mark key of the ring to read.
    pub rx_key: u64,
    /// Mark key of the ring to write.
    pub tx_key: u64,
    /// What the far side stores into.
    pub inbound: Inbound,
    /// Where we store.
    pub outbound: Outbound,
    /// What the circuit can do.
    pub way: Way,
    /// Where the stream keeps what it sends until it has landed, or did so by an earlier circuit: see [`Self::keeping`].
    pub retention: Option<Retention>,
    /// How long a store of ours to the far side may be under way, ns; 0 where memory is coherent.
    pub posted_out_ns: u32,
    /// How long a store of the far side's to us may be under way, ns.
    pub posted_in_ns: u32,
}

/// The segments after those that an end has, and where it goes on.
#[derive(Debug)]
pub struct Next {
    /// The segments.
    pub segments: Segments,
    /// Whether sending goes on there.
    pub newest: bool,
    /// Units of the receiving direction that count before them, from the stream's start.
    pub limit: u64,
    /// Units of the sending direction that the far end has, if `newest`.
    pub arrived: u64,
}

/// The memory that keeps payload until it has landed: unit `u` of the stream at `u % cap`, where `cap` is a power of two,
/// [`RETENTION`] at most.
#[derive(Debug)]
pub struct Retention(Own);

/// A daemon's numbers for [`Segments`].
pub(crate) struct Numbers {
    pub generation: u32,
    pub rx_key: u64,
    pub tx_key: u64,
    pub channel: Box<ChannelInfo>,
    pub retained: bool,
}

impl Segments {
    /// Where what is sent by these segments is kept until it has landed; `None` if it lands as it is stored.
    #[inline]
    pub fn keeping(&self) -> Option<&Retention> {
        self.retention.as_ref().filter(|_| self.way.keeps)
    }

    /// So long after a store of the far side's it has landed here, also where that is done by a thread which gets no processor for a
    /// while; zero where memory is coherent.
    #[inline]
    pub(crate) fn landed_after(&self) -> Duration {
        Duration::from_nanos(arm::flight_ns(0, self.posted_in_ns).into())
    }

    /// Maps what came with a daemon's answer, and takes its descriptors off the front of `fds`. `Ok(None)`: they did not
    /// come, this process is at its limit of descriptors.
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

    /// Keeps `bytes`, not more than the ring holds, the first of which is unit `unit` of the stream. They are the program's and may not
    /// be there.
    pub fn keep(&self, cap: u64, unit: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (at, to_end) = place(unit, cap);
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        self.0.write_guarded(at, first)?;
        self.0.write_guarded(0, rest)
    }

    /// Copies what was kept from unit `unit` on, up to the end of the part in use at most. Returns how many bytes that was.
    pub fn copy(&self, cap: u64, unit: u64, target: &mut [u8]) -> usize {
        let (at, to_end) = place(unit, cap);
        let count = target.len().min(to_end);
        self.0.read(at, &mut target[..count]);
        count
    }
}

/// Where this unit lies, and how many bytes there are from there to the end. `cap` comes from memory that the processes of
/// one program share: a mad one harms only itself.
fn place(unit: u64, cap: u64) -> (usize, usize) {
    let cap = cap.clamp(1, RETENTION);
    let at = unit % cap;
    let bytes = |count: u64| usize::try_from(count).unwrap_or(0);
    (bytes(at), bytes(cap - at))
}
