//! One direction of a circuit: copies records from the ring of one side into the ring of the other.

use super::acked::Acked;
use super::leg::Side;
use crosslane_shm::ring::{Consumer, EASY, Head, Producer, Violation};
use crosslane_shm::{Load, Store};
use crosslane_wire::DecodeError;
use crosslane_wire::record::{CPU_MASK, Kind};
use crosslane_wire::segment::{CREDIT, LINE, ORDER, WANT_DATA, WANT_ROOM};

/// Bytes of ring that one turn consumes, approximately.
const TURN: u64 = 64 * 1024;
/// Longest ring that a pump uses, bytes: its bytes are still in the caches when they are read, and its reader withholds
/// credit for at most a quarter of it, for which the sender must retain the bytes.
const RING: u64 = EASY / 2;
/// Room without which no data can be pushed, bytes: one line stays free for the record that ends a stream.
const LEAST: u64 = 2 * LINE;

/// A side broke the ring's protocol.
#[derive(Debug)]
pub(super) enum Fault {
    /// The side that is read from.
    From(Violation),
    /// The side that is written to.
    To(Violation),
}

/// The result of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// A record was consumed or pushed, or a word was stored.
    pub(super) moved: bool,
    /// Payload that was pushed, bytes.
    pub(super) bytes: u64,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Flow {
    consumer: Consumer,
    producer: Producer,
    acked: Acked,
    /// The reader's `ORDER` word, as it was stored for the writer.
    order: u32,
    /// Room for which the record at the front waits, bytes; 0 if none waits.
    held_up: u64,
    /// Credit at which a wake was requested: if more credit comes, the request must be repeated.
    asked_at: Option<u64>,
    /// All records were forwarded, and the writer's end was reported to the reader.
    ended: bool,
    /// The processor on which the last record was written.
    peer_cpu: Option<u16>,
}

impl Flow {
    /// A fresh direction over fresh segments.
    pub(super) fn new(from: &Side, to: &Side) -> Self {
        let flow = Self::default();
        flow.consumer.reset(from.leg.cap(), from.leg.ring_max, from.leg.rx_key);
        flow.producer.reset(to.leg.cap(), to.leg.ring_max, to.leg.tx_key);
        flow.producer.limit(RING.min(to.leg.ring_max));
        flow
    }

    /// Forwards records that have arrived, as far as there is room and [`TURN`] allows, and wakes the waiters for them.
    pub(super) fn run_once(&mut self, from: &mut Side, to: &mut Side, cpu: u16) -> Result<Turn, Fault> {
        let mut turn = Turn::default();
        if self.ended {
            return Ok(turn);
        }
        self.asked_at = None;
        let writer_gone = from.is_gone();
        self.pass_order(from, to);
        let before = (self.consumer.position(), self.producer.position());
        let dry = self.pump(from, to, cpu, &mut turn)?;
        let credited = self.consumer.give_credit(&from.leg.outbound, false);
        self.acked.learn(to, &self.producer).map_err(Fault::To)?;
        let told = self.acked.tell(from, false);
        if self.producer.position() != before.1 {
            to.wake_data();
        }
        if credited || told {
            from.wake_room();
        }
        if writer_gone && dry {
            self.ended = true;
            to.say_gone();
        }
        turn.moved = turn.bytes > 0 || self.consumer.position() != before.0 || told || self.ended;
        Ok(turn)
    }

    /// Returns `Ok(true)` if no arrived record is left.
    fn pump(&mut self, from: &Side, to: &Side, cpu: u16, turn: &mut Turn) -> Result<bool, Fault> {
        self.held_up = 0;
        if !self.consumer.arrived(&from.leg.inbound) {
            return Ok(true);
        }
        let unheard = to.is_gone();
        let end = self.consumer.position() + TURN;
        while self.consumer.position() < end {
            let Some(head) = self.consumer.head(&from.leg.inbound).map_err(Fault::From)? else {
                return Ok(true);
            };
            self.peer_cpu = Some(head.cpu);
            match head.kind {
                // Memory is announced only over single cables.
                Kind::Message | Kind::SrcAvail | Kind::SinkAvail => {
                    return Err(Fault::From(DecodeError::Range("record of a stream through a host").into()));
                }
                Kind::Filler => self.consumer.consume().map_err(Fault::From)?,
                _ if unheard => self.consumer.consume().map_err(Fault::From)?,
                Kind::Data => turn.bytes += self.pass_data(from, to, head, cpu)?,
                kind => self.pass_control(from, to, kind, cpu)?,
            }
            if self.held_up > 0 {
                break;
            }
        }
        Ok(false)
    }

    fn pass_data(&mut self, from: &Side, to: &Side, head: Head, cpu: u16) -> Result<u64, Fault> {
        self.stamp(from);
        let front = self.consumer.front(&from.leg.inbound, head).map_err(Fault::From)?;
        let source = (&from.leg.inbound, front);
        let (ring, credits) = (&to.leg.outbound, &to.leg.inbound);
        let pushed = self.producer.forward(ring, credits, source, head.left, cpu).map_err(Fault::To)?;
        self.consumer.skip(head, pushed).map_err(Fault::From)?;
        if pushed < head.left {
            self.held_up = LEAST;
        }
        Ok(pushed as u64)
    }

    fn pass_control(&mut self, from: &Side, to: &Side, kind: Kind, cpu: u16) -> Result<(), Fault> {
        self.stamp(from);
        let (ring, credits) = (&to.leg.outbound, &to.leg.inbound);
        if !self.producer.push_control(ring, credits, kind, cpu).map_err(Fault::To)? {
            self.held_up = LINE;
            return Ok(());
        }
        self.consumer.consume().map_err(Fault::From)
    }

    /// Forwards stamps unchanged. A record that its writer did not stamp yet, or by another machine's clock, gets this host's time.
    fn stamp(&self, from: &Side) {
        let stamp = if self.order == 0 || !from.leg.inbound.is_near() {
            0
        } else {
            self.consumer.cursor().stamp(&from.leg.inbound)
        };
        if stamp == 0 {
            self.producer.stamp(self.order != 0);
        } else {
            self.producer.stamp_as(stamp);
        }
    }

    /// Stores the reader's `ORDER` word for the writer.
    fn pass_order(&mut self, from: &Side, to: &Side) {
        let order = wanted_order(to);
        if order != self.order {
            self.order = order;
            from.leg.outbound.store_u32(ORDER, order);
        }
    }

    /// Whether a turn would find work. This includes everything for which the other sides wake the pump: a request that
    /// was answered must not stay, since it is not answered again.
    pub(super) fn may_have_work(&self, from: &Side, to: &Side) -> bool {
        if self.ended {
            return false;
        }
        let credited = self.asked_at.is_some_and(|credit| credit != to.leg.inbound.load_u64(CREDIT));
        let news = credited || wanted_order(to) != self.order || self.acked.has_news(to);
        let ready = if self.held_up > 0 {
            self.producer.glance(&to.leg.inbound, self.held_up) >= self.held_up || to.is_gone()
        } else {
            self.consumer.arrived(&from.leg.inbound) || from.is_gone()
        };
        news || ready
    }

    /// Stores what is left to report, and requests wakes from both sides. A fence and another look must follow.
    pub(super) fn arm(&mut self, from: &mut Side, to: &mut Side) {
        if self.ended {
            return;
        }
        if self.acked.tell(from, true) {
            from.wake_room();
        }
        if self.held_up == 0 {
            from.want(WANT_DATA);
        }
        if self.held_up > 0 || self.acked.wants_news(&self.producer) {
            self.asked_at = Some(to.leg.inbound.load_u64(CREDIT));
            to.want(WANT_ROOM);
        }
    }

    /// Whether all records were forwarded, and the writer's end was reported to the reader.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the last record was written on this processor: its writer then needs the processor.
    pub(super) fn comes_from(&self, cpu: u16) -> bool {
        self.peer_cpu == Some(cpu & CPU_MASK)
    }
}

fn wanted_order(to: &Side) -> u32 {
    u32::from(to.leg.inbound.load_u32(ORDER) != 0)
}
