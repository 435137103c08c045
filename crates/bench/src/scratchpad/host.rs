//! One host of the study's ring: two ports, one buffer, and its interrupt handler.

use anyhow::{Context, Result, bail, ensure};
use crosslane_port::soft::SoftPort;
use crosslane_port::{Event, Port};
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::SegmentRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a host's buffer for its neighbour, as the study's adapters have them: no transfer is longer.
pub const BUFFER: usize = 1 << 20;
/// How long a host waits for another before it gives up.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest sleep, after which a host checks whether it is to stop.
const NAP: Duration = Duration::from_millis(20);
/// Failed looks before a polling host yields its processor.
const LOOKS: u32 = 64;
/// Bytes that a forwarding host moves at a time; they stay in its first-level cache between load and store.
const PIECE: usize = 8 << 10;

/// Scratchpads.
const SOURCE: usize = 0;
const DESTINATION: usize = 1;
const ADDRESS: usize = 2;
const LENGTH: usize = 3;
/// Doorbells: a transfer lies in your buffer; you may use my buffer again; my buffer is there.
const DATA: u32 = 1;
const FREE: u32 = 2;
const READY: u32 = 4;

/// The scratchpads' description of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Who sent it.
    pub source: u32,
    /// Whom it is for.
    pub destination: u32,
    /// Where in the buffer it lies, bytes.
    pub address: u32,
    /// How long it is, bytes.
    pub length: u32,
}

/// How a host notices a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It sleeps and is interrupted, as in the study.
    Interrupt,
    /// It polls: the study's times without its interrupts.
    Poll,
}

/// A host. Transfers go round the ring in one direction: out at the right port, in at the left one.
#[derive(Debug)]
pub struct Host {
    /// Its id, from 0.
    pub id: u32,
    left: SoftPort,
    right: SoftPort,
    ends: Option<Ends>,
    ready: bool,
    /// Whether the right neighbour's buffer is free.
    free: bool,
    arrived: bool,
}

#[derive(Debug)]
struct Ends {
    buffer: Inbound,
    window: Outbound,
    /// Where in the right neighbour's window its buffer begins.
    address: u32,
}

impl Host {
    /// A host at two cables. Nobody else is there yet.
    pub fn new(id: u32, mut left: SoftPort, right: SoftPort) -> Result<Self> {
        left.set_inbound(0, BUFFER as u64)?;
        Ok(Self { id, left, right, ends: None, ready: false, free: true, arrived: false })
    }

    /// Handles what the ports report.
    pub fn poll(&mut self) -> Result<()> {
        while let Some(event) = self.left.poll_event() {
            match event {
                Event::Doorbell(bits) => self.arrived |= bits & DATA != 0,
                Event::LinkDown(why) => bail!("host {}: the left link is down: {why}", self.id),
                Event::LinkUp => {}
            }
        }
        while let Some(event) = self.right.poll_event() {
            match event {
                Event::Doorbell(bits) => {
                    self.free |= bits & FREE != 0;
                    self.ready |= bits & READY != 0;
                }
                Event::LinkDown(why) => bail!("host {}: the right link is down: {why}", self.id),
                Event::LinkUp => {}
            }
        }
        Ok(())
    }

    /// Whether both links are up.
    pub fn is_up(&self) -> bool {
        self.left.is_up() && self.right.is_up()
    }

    /// Whether the right neighbour has announced its buffer.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Set-up, first half: allots the buffer for the left neighbour, and announces id, address and length by scratchpads.
    pub fn offer(&mut self) -> Result<Inbound> {
        let range = SegmentRange { offset: 0, len: BUFFER as u64 };
        let buffer = self.left.map_inbound(0, range)?;
        self.left.write_peer_scratchpad(SOURCE, self.id);
        self.left.write_peer_scratchpad(ADDRESS, u32::try_from(range.offset)?);
        self.left.write_peer_scratchpad(LENGTH, u32::try_from(range.len)?);
        self.left.ring_peer_doorbell(READY);
        Ok(buffer)
    }

    /// Set-up, second half: opens the window that the right neighbour has announced.
    pub fn open(&mut self, buffer: Inbound) -> Result<()> {
        let word = |index| self.right.read_scratchpad(index);
        let (address, length) = (word(ADDRESS), word(LENGTH));
        let range = SegmentRange { offset: address.into(), len: length.into() };
        let window = self.right.map_outbound(0, range).context("the neighbour's buffer is not there")?;
        self.ends = Some(Ends { buffer, window, address });
        Ok(())
    }

    /// Sends `bytes`, cut into pieces that fit the buffer, each once the one before has left the neighbour's.
    pub fn send(&mut self, destination: u32, bytes: &[u8], wake: Wake, stop: &AtomicBool) -> Result<()> {
        for piece in bytes.chunks(BUFFER) {
            ensure!(self.await_buffer(wake, stop)?, "host {}: stopped while it sent", self.id);
            self.ends()?.window.write(0, piece);
            self.post(self.id, destination, u32::try_from(piece.len())?)?;
        }
        Ok(())
    }

    /// Takes transfers until `stop`: those for this host go to `take`, where they lie, the others go on.
    pub fn serve(
        &mut self,
        wake: Wake,
        stop: &AtomicBool,
        mut take: impl FnMut(Transfer, &Inbound) -> Result<()>,
    ) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.poll()?;
            if !self.arrived {
                self.pause(wake)?;
                continue;
            }
            let transfer = self.read_transfer()?;
            if transfer.destination == self.id {
                take(transfer, &self.ends()?.buffer)?;
                self.give_back();
            } else if self.await_buffer(wake, stop)? {
                self.forward(transfer)?;
            }
        }
        Ok(())
    }

    /// Reads the scratchpads; impossible values are an error.
    fn read_transfer(&self) -> Result<Transfer> {
        let word = |index| self.left.read_scratchpad(index);
        let transfer = Transfer {
            source: word(SOURCE),
            destination: word(DESTINATION),
            address: word(ADDRESS),
            length: word(LENGTH),
        };
        let end = u64::from(transfer.address) + u64::from(transfer.length);
        ensure!(end <= BUFFER as u64 && transfer.source != self.id, "host {}: {transfer:?}", self.id);
        Ok(transfer)
    }

    /// Store and forward: all of it lies here before the first byte goes on.
    fn forward(&mut self, transfer: Transfer) -> Result<()> {
        let ends = self.ends()?;
        let (from, len) = (transfer.address as usize, transfer.length as usize);
        let mut piece = [0; PIECE];
        for at in (0..len).step_by(PIECE) {
            let part = &mut piece[..PIECE.min(len - at)];
            ends.buffer.read(from + at, part);
            ends.window.write(at, part);
        }
        self.give_back();
        self.post(transfer.source, transfer.destination, transfer.length)
    }

    /// The words and the doorbell, behind the data.
    fn post(&mut self, source: u32, destination: u32, length: u32) -> Result<()> {
        let ends = self.ends()?;
        ends.window.store_fence();
        let words = [(SOURCE, source), (DESTINATION, destination), (ADDRESS, ends.address), (LENGTH, length)];
        self.free = false;
        for (index, word) in words {
            self.right.write_peer_scratchpad(index, word);
        }
        self.right.ring_peer_doorbell(DATA);
        Ok(())
    }

    /// The left neighbour may use buffer and scratchpads again.
    fn give_back(&mut self) {
        self.arrived = false;
        self.left.ring_peer_doorbell(FREE);
    }

    /// Waits until the right neighbour's buffer is free; `false` if stopped before.
    fn await_buffer(&mut self, wake: Wake, stop: &AtomicBool) -> Result<bool> {
        let begin = Instant::now();
        loop {
            self.poll()?;
            if self.free || stop.load(Ordering::Relaxed) {
                return Ok(self.free);
            }
            ensure!(begin.elapsed() < PEER_TIMEOUT, "host {}: its neighbour is silent", self.id);
            self.pause(wake)?;
        }
    }

    /// Waits until a port may have something, or a while has passed.
    fn pause(&mut self, wake: Wake) -> Result<()> {
        if wake == Wake::Poll {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            return Ok(());
        }
        let mut fds = [self.left.event_fd(), self.right.event_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, Some(&Timespec::try_from(NAP)?)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn ends(&self) -> Result<&Ends> {
        self.ends.as_ref().context("the ring is not set up")
    }
}
