//! Streams that go on over another circuit: decision 11. The state machine is `crosslane_fabric::moving`; here is what
//! it means for memory and programs.

use crate::answer::{Asked, path_of};
use crate::dial::DIAL_TIMEOUT;
use crate::host::Host;
use crate::quota::{Charge, Purpose};
use crate::session::SessionId;
use core::sync::atomic::{Ordering, fence};
use crosslane_fabric::circuit::{Death, State};
use crosslane_shm::Inbound;
use crosslane_shm::ring::Cursor;
use crosslane_wire::control::{ARRIVED_ALL, Refusal, Resumption};
use crosslane_wire::local::{Plain, Reply};
use crosslane_wire::{CircuitId, PortId, SegmentRange};
use std::os::fd::AsFd;

/// A program that has stopped is about to consume one record more at most; one that has not stopped harms itself only.
const COUNTS: u32 = 16;

impl Host {
    /// The end's circuit is lost: its programs stop at what they have.
    pub(crate) fn moving(&mut self, circuit: CircuitId) {
        self.counters.moves += 1;
        self.show_life(circuit);
        let now = self.elapsed();
        if let Some(resources) = self.resources.get_mut(&circuit) {
            resources.lost_at.get_or_insert(now);
        }
        let uid = self.resources.get(&circuit).map(|resources| resources.uid);
        if let Some(end) = self.policy.circuits.get(circuit) {
            tracing::info!(uid, %circuit, tuple = %end.tuple, "circuit is lost; the stream looks for another");
        }
    }

    /// Tries the next path for an end that moves.
    pub(crate) fn seek(&mut self, circuit: CircuitId) {
        if self.try_path(circuit).is_none() {
            if let Some(resources) = self.resources.get_mut(&circuit) {
                resources.tried.clear();
            }
            self.policy.circuits.no_way(circuit);
        }
    }

    fn try_path(&mut self, circuit: CircuitId) -> Option<()> {
        let end = self
            .policy
            .circuits
            .get(circuit)
            .filter(|end| end.moving.is_some() && end.channel().is_none())?;
        let host = end.far_host();
        let resources = self.resources.get_mut(&circuit)?;
        let (mut tried, payer) = resources.may_move().then(|| (resources.tried.clone(), resources.payer))?;
        let refused = resources.refused;
        let (path, attempt) = loop {
            let (path, route) = self.path_to(host, &tried).ok()?;
            let ring_max = self.moved_ring(path, refused);
            tried.push(path.port);
            if let Ok(attempt) = self.longest_attempt(path, &route, (payer, Purpose::Move), ring_max) {
                break (path, attempt);
            }
        };
        let Some((channel, generation)) = self.policy.circuits.redial(circuit, path, self.now + DIAL_TIMEOUT)
        else {
            self.forgo(attempt);
            return None;
        };
        self.resources.get_mut(&circuit)?.tried = tried;
        self.ask_for(circuit, channel, attempt, Some(Resumption { generation }));
        Some(())
    }

    /// A try came to nothing. The far program has not sent anything there: it waits to hear what has arrived here.
    pub(crate) fn try_failed(&mut self, circuit: CircuitId, why: Refusal) {
        if let Some(resources) = self.resources.get_mut(&circuit) {
            let attempt = resources.attempt.take();
            if matches!(why, Refusal::NoMemory | Refusal::Quota) {
                resources.refused = attempt.map(|attempt| attempt.ring_max);
            }
        }
        self.policy.circuits.try_failed(circuit, why);
    }

    /// A path was found, and the far program has stopped: what it sent before is counted, and programs go on.
    pub(crate) fn resumed(&mut self, circuit: CircuitId, segment: SegmentRange, key: u64, arrived: u64) {
        let here = self.count_arrived(circuit).unwrap_or(ARRIVED_ALL);
        if self.complete(circuit, segment, key, (here, arrived)).is_err() {
            // Its cable is lost already: the search goes on.
            self.policy.circuits.lose(circuit, Death::Cable);
            return;
        }
        self.policy.circuits.tell_arrived(circuit, here);
        self.publish(circuit);
        self.finish(circuit, arrived);
    }

    /// The connecting side's daemon seeks another circuit for a stream.
    pub(crate) fn resume_for(
        &mut self,
        port: PortId,
        asked: &Asked,
        resume: Resumption,
    ) -> Result<(), Refusal> {
        let tuple = crate::address::plain_tuple(asked.tuple);
        let agreement = self.check_segment(port, asked.segment)?;
        self.check_origin(&tuple, &agreement, asked.passed)?;
        let path = path_of(port, &agreement, asked)?;
        let (circuit, channel) =
            self.policy.circuits.handle_resume(&tuple, asked.stream, resume, path, asked.channel)?;
        let arrived = self.stop_and_count(circuit);
        match self.add_segments(circuit, port, asked, arrived) {
            Ok((range, window, key)) => {
                self.memory.insert(channel, (range, window));
                self.policy.circuits.answer(channel, range, key, arrived);
                Ok(())
            }
            Err(why) => {
                self.policy.circuits.unresume(circuit);
                Err(why)
            }
        }
    }

    /// Segments for the circuit by which a stream goes on, of which `arrived` units have: our memory, and its key.
    fn add_segments(
        &mut self,
        circuit: CircuitId,
        port: PortId,
        asked: &Asked,
        arrived: u64,
    ) -> Result<(SegmentRange, Charge, u64), Refusal> {
        let (now, ledger) = (self.elapsed(), self.accounts.ledger().clone());
        let resources = self.resources.get_mut(&circuit).ok_or(Refusal::Unknown)?;
        if !resources.may_move() {
            return Err(Refusal::NoMemory);
        }
        // A stream that is taken to a shorter way has lost none, and stands still all the same.
        resources.lost_at.get_or_insert(now);
        let payer = resources.payer;
        let (segments, (range, window)) = self.answering_segments(port, asked, arrived, payer)?;
        let key = segments.rx_key;
        let resources = self.resources.get_mut(&circuit).ok_or(Refusal::Unknown)?;
        if segments.way.keeps && resources.keep_sent(&ledger, Purpose::Move).is_err() {
            if let Some(cable) = self.cable(port) {
                cable.free_inbound(range);
            }
            return Err(Refusal::NoMemory);
        }
        self.push_segments(circuit, segments);
        Ok((range, window, key))
    }

    /// The connecting side says what has arrived there, after our programs had stopped: they go on.
    pub(crate) fn arrived_there(&mut self, circuit: CircuitId, units: u64) {
        let generation = self.policy.circuits.get(circuit).map(|end| end.generation);
        let Some(resources) = self.resources.get_mut(&circuit) else { return };
        let newest = resources.segments.back_mut().filter(|segments| Some(segments.generation) == generation);
        if let Some(newest) = newest.filter(|segments| segments.generation != resources.published) {
            newest.arrived = units;
            self.publish(circuit);
            self.finish(circuit, units);
        }
    }

    /// `Resume`: the segments after those that the program has.
    pub(crate) fn next_segments(
        &mut self,
        session: SessionId,
        circuit: CircuitId,
        token: u64,
        generation: u32,
    ) {
        let reply = self.segments_after(session, circuit, token, generation);
        if reply.is_none()
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.reply(&Reply::Plain { why: Plain::System }, &[]);
        }
    }

    fn segments_after(
        &mut self,
        session: SessionId,
        circuit: CircuitId,
        token: u64,
        generation: u32,
    ) -> Option<()> {
        let resources = self.resources.get_mut(&circuit).filter(|resources| resources.token == token)?;
        resources.trim();
        let published = resources.published;
        let known = |next: u32| next > generation && next <= published;
        let next = resources.segments.iter().find(|segments| known(segments.generation))?;
        let (outbound, retention) = (next.outbound.as_ref()?, resources.retention.as_ref());
        let reply = Reply::Resumed {
            generation: next.generation,
            newest: next.generation == published,
            limit: next.before,
            arrived: next.arrived,
            rx_key: next.rx_key,
            tx_key: next.tx_key,
            channel: Box::new(next.channel_info(outbound)),
            retained: retention.is_some(),
        };
        let mut fds = vec![next.inbound.as_fd(), outbound.as_fd()];
        fds.extend(retention.map(AsFd::as_fd));
        self.sessions.get_mut(&session)?.reply(&reply, &fds);
        Some(())
    }

    /// Programs are told of the newest circuit, and woken.
    fn publish(&mut self, circuit: CircuitId) {
        let now = self.elapsed();
        let (Some(end), Some(resources)) =
            (self.policy.circuits.get(circuit), self.resources.get_mut(&circuit))
        else {
            return;
        };
        resources.published = end.generation;
        if let Some(lost_at) = resources.lost_at.take() {
            self.counters.moved(now.saturating_sub(lost_at));
        }
        let uid = resources.uid;
        tracing::info!(uid, %circuit, tuple = %end.tuple, hops = end.hops, generation = end.generation, "stream goes on");
        (resources.refused, resources.outgrown) = (None, false);
        resources.tried.clear();
        self.wake_holders(circuit);
    }

    /// Programs stop, and what has arrived of the stream is counted: units from its start.
    fn stop_and_count(&mut self, circuit: CircuitId) -> u64 {
        self.show_life(circuit);
        // A program looks at a record first and at its status word then; we store that word first and look at the ring then.
        fence(Ordering::SeqCst);
        self.count_arrived(circuit).unwrap_or(ARRIVED_ALL)
    }

    /// `None`: nobody reads here any more.
    pub(crate) fn count_arrived(&mut self, circuit: CircuitId) -> Option<u64> {
        let end = self.policy.circuits.get(circuit)?;
        if matches!(end.state, State::Closing(_)) {
            return None;
        }
        let resources = self.resources.get_mut(&circuit)?;
        resources.trim();
        let newest = resources.segments.back()?;
        let ring = Inbound::map(&newest.inbound).ok()?;
        let fresh = Cursor::fresh(newest.ring_max, newest.rx_key, newest.before);
        let reader = || {
            let (generation, cursor) = resources.state.as_ref()?.view.receiver()?;
            (generation == newest.generation)
                .then(|| cursor.checked(newest.ring_max, newest.rx_key))
                .flatten()
        };
        let mut from = reader();
        for _ in 0..COUNTS {
            let arrived = from.unwrap_or(fresh).arrived(&ring);
            // The program may have been about to consume a record and have given its room back.
            let now = reader();
            if now.map(|cursor| cursor.position()) == from.map(|cursor| cursor.position()) {
                return Some(arrived);
            }
            from = now;
        }
        None
    }
}
