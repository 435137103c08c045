//! What this host's policy may ask of the daemon: all that the daemon holds, but not what is decided.

use super::transit::Made;
use super::{Carved, Host};
use crate::cables::Cables;
use crate::config::Config;
use crate::counter::Counters;
use crate::end_resources::{EndResources, Segments};
use crate::ends::Ends;
use crate::listener::Listeners;
use crate::offload::Engines;
use crate::quota::{Accounts, Charge, Payer};
use crate::random;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::shelves::Shelves;
use crate::socket_table::SocketTable;
use crate::texts::Texts;
use crate::transit::Transits;
use crate::waiters::Waiters;
use crosslane_fabric::circuit::{End, Path};
use crosslane_policy::{Asked, Policy, Prepared, Purpose, Resources, Ring, Size};
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, TransitId, WaiterId, Way};
use std::net::IpAddr;
use std::time::Duration;

/// The daemon's own, for as long as something is decided.
pub(crate) struct Provider<'a> {
    pub(crate) now: Duration,
    pub(crate) config: &'a Config,
    pub(crate) cables: &'a mut Cables,
    pub(crate) accounts: &'a mut Accounts,
    pub(crate) shelves: &'a Shelves,
    pub(crate) counters: &'a mut Counters,
    pub(crate) ends: &'a mut Ends,
    pub(crate) transits: &'a mut Transits,
    pub(crate) offload: Option<&'a Engines>,
    pub(crate) sessions: &'a Sessions,
    pub(crate) texts: &'a mut Texts,
    pub(crate) listeners: &'a Listeners,
    pub(crate) sockets: &'a SocketTable,
    /// Number of the fabric's interface; 0: any.
    pub(crate) interface: u32,
    waiters: &'a mut Waiters,
}

impl Host {
    /// What is decided, and what may be asked for it.
    pub(crate) fn split(&mut self) -> (&mut Policy, Provider<'_>) {
        let interface = self.ip.interface();
        let provider = Provider {
            now: self.now,
            config: &self.config,
            cables: &mut self.cables,
            accounts: &mut self.accounts,
            shelves: &self.shelves,
            counters: &mut self.counters,
            ends: &mut self.ends,
            transits: &mut self.transits,
            offload: self.offload.as_ref(),
            sessions: &self.sessions,
            texts: &mut self.texts,
            listeners: &self.listeners,
            sockets: &self.sockets,
            interface,
            waiters: &mut self.waiters,
        };
        (&mut self.policy, provider)
    }

    /// What may be asked.
    pub(crate) fn provider(&mut self) -> Provider<'_> {
        self.split().1
    }
}

impl Provider<'_> {
    /// Whether streams go on over other circuits when theirs is lost.
    pub(crate) fn resumes(&self) -> bool {
        !self.config.resume.is_zero()
    }

    /// A number for a new waiter.
    pub(crate) fn new_waiter(&mut self) -> WaiterId {
        self.waiters.new_id(|id| self.transits.has_waiter(id))
    }
}

/// Memory for a circuit that a neighbour is asked for.
pub(crate) struct Attempt {
    pub(crate) port: PortId,
    pub(crate) carved: Carved,
    pub(crate) charges: Vec<Charge>,
    pub(crate) ring_max: u64,
    pub(crate) key: u64,
}

/// An end that a neighbour asks for, and the range of our window for it.
pub(crate) struct Answer {
    pub(crate) resources: EndResources,
    pub(crate) range: SegmentRange,
    pub(crate) window: Charge,
}

impl Resources for Provider<'_> {
    type Payer = Payer;
    type End = (Payer, Vec<Charge>);
    type Attempt = Attempt;
    type Answer = Answer;
    type Transit = Made;

    fn host_of(&self, address: IpAddr) -> Option<HostId> {
        self.config.addresses.host_of(address)
    }

    fn random(&mut self) -> u64 {
        random::u64()
    }

    fn busy(&mut self, port: PortId) -> usize {
        self.ends.busy(port, self.now)
    }

    fn payer(&mut self, circuit: CircuitId) -> Option<Payer> {
        let resources = self.ends.get_mut(circuit)?;
        resources.may_move().then_some(resources.payer)
    }

    fn attempt(
        &mut self,
        payer: Payer,
        path: Path,
        purpose: Purpose,
        size: Size,
    ) -> Result<(Attempt, Ring), Plain> {
        self.make_attempt(payer, path, purpose, size)
    }

    fn begin(&mut self, circuit: CircuitId, (payer, charges): Self::End) {
        self.ends.add(circuit, EndResources::new(None, payer, charges));
    }

    fn keep_attempt(&mut self, circuit: CircuitId, channel: ChannelId, generation: u32, attempt: Attempt) {
        let Attempt { port, carved: Carved { range, window, memory }, charges, ring_max, key } = attempt;
        self.cables.keep(channel, (range, window));
        let segments = Segments {
            generation,
            port: Some(port),
            inbound: self.shelves.keep_segment(memory),
            lane: None,
            outbound: None,
            far_range: None,
            ring_max,
            rx_key: key,
            tx_key: 0,
            before: 0,
            arrived: 0,
            way: Way::DIRECT,
            charges,
        };
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.attempt = Some(segments);
        }
    }

    fn drop_attempt(&mut self, port: PortId, attempt: Attempt) {
        self.cables.free_inbound(port, attempt.carved.range);
    }

    fn forget_attempt(&mut self, circuit: CircuitId) {
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.attempt = None;
        }
    }

    fn complete(
        &mut self,
        of: (CircuitId, &End),
        port: PortId,
        ring: Ring,
        arrived: (u64, u64),
    ) -> Result<(), Plain> {
        self.complete_attempt(of, port, ring, arrived)
    }

    fn arrived(&mut self, circuit: CircuitId) -> Option<u64> {
        self.ends.get_mut(circuit)?.count_arrived()
    }

    fn stop_and_count(&mut self, circuit: CircuitId, end: &End) -> Option<u64> {
        self.stop((circuit, end));
        self.ends.get_mut(circuit)?.count_arrived()
    }

    fn is_held(&self, circuit: CircuitId, end: &End) -> Option<bool> {
        self.hearing().holds_socket(end, self.ends.holders(circuit))
    }

    fn is_lost(&self, circuit: CircuitId) -> bool {
        self.hearing().are_all(self.ends.holders(circuit), Session::is_lost)
    }

    fn is_orphaned(&self, circuit: CircuitId) -> bool {
        self.hearing().are_all(self.ends.holders(circuit), Session::is_orphaned)
    }

    fn admit(&mut self, port: PortId, asked: &Asked) -> Result<(Answer, Ring), Refusal> {
        self.make_answer(port, asked)
    }

    fn keep_answer(&mut self, circuit: CircuitId, channel: ChannelId, answer: Answer) {
        self.cables.keep(channel, (answer.range, answer.window));
        self.ends.add(circuit, answer.resources);
    }

    fn drop_answer(&mut self, port: PortId, answer: Answer) {
        self.cables.free_inbound(port, answer.range);
    }

    fn answer_move(
        &mut self,
        of: (CircuitId, &End),
        channel: ChannelId,
        (port, asked): (PortId, &Asked),
        arrived: u64,
    ) -> Result<Ring, Refusal> {
        let (range, window, key) = self.add_segments(of, port, asked, arrived)?;
        self.cables.keep(channel, (range, window));
        Ok(Ring { segment: range, key })
    }

    fn prepare_transit(&mut self, ports: [PortId; 2], asked: &Asked) -> Result<Prepared<Made>, Refusal> {
        self.make_transit(ports, asked)
    }

    fn keep_transit(&mut self, transit: TransitId, ports: [PortId; 2], channels: [ChannelId; 2], made: Made) {
        self.enter_transit(transit, ports, channels, made);
    }

    fn begin_transit(
        &mut self,
        transit: TransitId,
        before: ChannelId,
        behind: Ring,
        pumps: u8,
    ) -> Result<(Ring, u8), Plain> {
        self.carry(transit, before, behind, pumps)
    }
}
