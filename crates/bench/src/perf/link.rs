//! The memory and the wake events that the two sides of a measurement share.

use anyhow::{Context, Result, anyhow, bail};
use crosslane_shm::{Inbound, Outbound, mem};
use crosslane_wire::segment::{PAGE, segment_len};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of the ring in each direction.
pub const RING_BYTES: u64 = 8 << 20;

/// One side's views.
#[derive(Debug)]
pub struct Link {
    /// The segment that the other side reads.
    pub out: Outbound,
    /// The segment that the other side writes.
    pub inb: Inbound,
    /// One line that both sides store into and load from.
    pub line: (Outbound, Inbound),
    /// What wakes this side.
    pub mine: OwnedFd,
    /// What wakes the other side.
    pub theirs: OwnedFd,
    /// Whether both sides share a processor.
    pub shared_core: bool,
}

/// The five descriptors of a link: the segments there and back, the line, the events of the near and the far side.
#[derive(Debug)]
pub struct Descriptors([OwnedFd; 5]);

impl Descriptors {
    /// Fresh memory and events.
    pub fn create() -> Result<Self> {
        let segment = |name| mem::new_segment(name, segment_len(RING_BYTES));
        let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let (there, back) = (segment("crosslane-perf-there")?, segment("crosslane-perf-back")?);
        Ok(Self([there, back, mem::new_segment("crosslane-perf-line", PAGE)?, event()?, event()?]))
    }

    /// All of them, in the order that [`Self::from_all`] wants.
    pub fn all(&self) -> [BorrowedFd<'_>; 5] {
        self.0.each_ref().map(AsFd::as_fd)
    }

    /// The descriptors that another process sent, in the order of [`Self::all`].
    pub fn from_all(all: Vec<OwnedFd>) -> Result<Self> {
        all.try_into().map(Self).map_err(|_| anyhow!("five descriptors are wanted"))
    }

    /// Maps one side: the one that measures (`near`) or the one that answers.
    pub fn link(&self, near: bool, shared_core: bool) -> Result<Link> {
        let [there, back, line, near_event, far_event] = &self.0;
        let ((out, inb), (mine, theirs)) = if near {
            ((there, back), (near_event, far_event))
        } else {
            ((back, there), (far_event, near_event))
        };
        let len = segment_len(RING_BYTES);
        Ok(Link {
            out: Outbound::sealed(out, len)?,
            inb: Inbound::sealed(inb, len)?,
            line: (Outbound::sealed(line, PAGE)?, Inbound::sealed(line, PAGE)?),
            mine: mine.try_clone()?,
            theirs: theirs.try_clone()?,
            shared_core,
        })
    }
}

impl Link {
    /// Wakes the other side.
    pub fn wake(&self) -> Result<()> {
        match rustix::io::write(&self.theirs, &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until the other side rings, or fails after [`super::transport::PEER_TIMEOUT`].
    pub fn sleep(&self) -> Result<()> {
        let mut polled = [PollFd::new(&self.mine, PollFlags::IN)];
        let timeout = Timespec::try_from(super::transport::PEER_TIMEOUT).context("timeout")?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => bail!("the other side has been silent for {:?}", super::transport::PEER_TIMEOUT),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = rustix::io::read(&self.mine, &mut [0; 8]);
        Ok(())
    }
}
