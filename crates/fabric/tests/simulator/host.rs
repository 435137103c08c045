//! A host: the state machines, and around them what the daemon does, with simulated memory. The rules are those of
//! `crosslane-node`: its modules `neighbour` and `ways`.

use crate::memory::ring_at;
use crate::resume::Parts;
use crate::transit::Passage;
use crate::world::{Event, World};
use crosslane_fabric::circuit::{Death, Limits, Output};
use crosslane_fabric::{Circuits, Damping, Links};
use crosslane_wire::control::{Control, LinkState};
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, SegmentRange, TransitId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a stream looks for another circuit.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);
const PENDING: usize = 64;
const HIGHEST: u16 = 2000;
const ASK_EVERY: Duration = Duration::from_millis(250);
const SILENCE: Duration = Duration::from_millis(1000);
const SETTLE: Duration = Duration::from_millis(100);
const DOUBT: Duration = Duration::from_secs(2);
const ROOM: usize = 256;

/// A port of a host.
#[derive(Debug)]
pub(crate) struct Port {
    /// The epoch in which its cable is up, as the host knows it.
    pub(crate) up: Option<Epoch>,
    /// The last epoch that it was in.
    pub(crate) last: u32,
    /// Who is at the other end.
    pub(crate) peer: HostId,
    /// Rings in its inbound memory.
    pub(crate) window: BTreeSet<usize>,
    /// How many of them there may be.
    pub(crate) room: usize,
    /// When the cable may be used, if it is up and not yet used.
    pub(crate) join_at: Option<Duration>,
    asked: Option<Duration>,
    silent: bool,
    damping: Damping,
}

/// A host in one of its lives.
#[derive(Debug)]
pub(crate) struct Host {
    /// Its id.
    pub(crate) id: HostId,
    /// Number of its life.
    pub(crate) life: u32,
    /// Whether it runs.
    pub(crate) alive: bool,
    /// Whether its daemon is stopped for a while. Programs are not.
    pub(crate) frozen: bool,
    /// What happened to it meanwhile.
    pub(crate) backlog: Vec<Event>,
    /// Who is where.
    pub(crate) links: Links,
    /// Circuits.
    pub(crate) circuits: Circuits,
    /// Its ports.
    pub(crate) ports: Vec<Port>,
    /// Which cable is plugged into each of them, and which side of it.
    pub(crate) plugs: Vec<Option<(usize, usize)>>,
    /// What ends hold.
    pub(crate) parts: BTreeMap<CircuitId, Parts>,
    /// The segment of each channel.
    pub(crate) memory: BTreeMap<ChannelId, SegmentRange>,
    /// Circuits that pass through.
    pub(crate) passages: BTreeMap<TransitId, Passage>,
    /// Neighbours that owe an answer, and since when.
    pub(crate) late: BTreeMap<PortId, (ChannelId, Duration)>,
    /// Whether anything leans on neighbours.
    pub(crate) leaning: bool,
    shorten_at: Option<Duration>,
    ask_at: Duration,
    tick_at: Option<Duration>,
    turn_due: bool,
}

impl Host {
    /// A host that was never started.
    pub(crate) fn new(id: HostId, ports: usize) -> Self {
        let port = || Port {
            up: None,
            last: 0,
            peer: HostId(0),
            window: BTreeSet::new(),
            room: ROOM,
            join_at: None,
            asked: None,
            silent: false,
            damping: Damping::default(),
        };
        Self {
            id,
            life: 0,
            alive: false,
            frozen: false,
            backlog: vec![],
            links: Links::new(id, 0),
            circuits: Circuits::new(Limits { pending: PENDING, patience: PATIENCE }),
            ports: (0..ports).map(|_| port()).collect(),
            plugs: vec![None; ports],
            parts: BTreeMap::new(),
            memory: BTreeMap::new(),
            passages: BTreeMap::new(),
            late: BTreeMap::new(),
            leaning: false,
            shorten_at: None,
            ask_at: Duration::ZERO,
            tick_at: None,
            turn_due: false,
        }
    }

    /// A new life, in which nothing of the earlier one is known.
    pub(crate) fn start(&mut self, incarnation: u64) {
        let (life, ports) = (self.life + 1, self.ports.len());
        let last: Vec<u32> = self.ports.iter().map(|port| port.last).collect();
        let plugs = std::mem::take(&mut self.plugs);
        *self = Self { plugs, life, alive: true, ..Self::new(self.id, ports) };
        self.links = Links::new(self.id, incarnation);
        self.links.allow_hosts(HIGHEST);
        for (port, last) in self.ports.iter_mut().zip(last) {
            port.last = last;
        }
    }

    /// A port by its id.
    pub(crate) fn port(&self, port: PortId) -> &Port {
        &self.ports[usize::from(port.0)]
    }

    fn deadline(&self) -> Option<Duration> {
        let joins = self.ports.iter().filter_map(|port| port.join_at).min();
        let asks = self.leaning.then_some(self.ask_at);
        let links = Some(self.links.poll_deadline());
        [joins, self.shorten_at, asks, links, self.circuits.poll_deadline()].into_iter().flatten().min()
    }
}

fn id_of(port: usize) -> PortId {
    PortId(u8::try_from(port).unwrap())
}

impl World {
    /// The cable at a port is up: it is used as soon as it may be trusted.
    pub(crate) fn cable_up(&mut self, host: usize, port: usize) {
        let there = &mut self.hosts[host].ports[port];
        (there.asked, there.silent) = (None, false);
        there.window.clear();
        there.join_at = Some(self.now + there.damping.hold());
        self.join_due(host);
    }

    /// Uses the cables that may be used by now. One that is not to be trusted is better than none.
    fn join_due(&mut self, host: usize) {
        for port in 0..self.hosts[host].ports.len() {
            let here = &mut self.hosts[host];
            let peer = here.ports[port].peer;
            let due = |at: Duration| at <= self.now || here.links.next_hop(peer).is_none();
            if here.ports[port].join_at.is_some_and(due) {
                here.ports[port].join_at = None;
                self.join(host, port);
            }
        }
    }

    /// The cable at a port is down.
    pub(crate) fn cable_down(&mut self, host: usize, port: usize) {
        let now = self.now;
        let here = &mut self.hosts[host];
        let there = &mut here.ports[port];
        there.damping.lost(now);
        (there.up, there.join_at, there.asked, there.silent) = (None, None, None, false);
        let peer = there.peer;
        self.part(host, port);
        self.hosts[host].circuits.handle_link_down(id_of(port), peer, Death::Cable);
        self.run_circuits(host);
        self.hosts[host].ports[port].window.clear();
        self.turn_soon(host);
    }

    fn join(&mut self, host: usize, port: usize) {
        let peer = self.hosts[host].ports[port].peer;
        self.hosts[host].links.handle_cable_up(id_of(port), peer);
        self.counts.versions += 1;
        self.counts.tables += u64::try_from(self.hosts.len()).unwrap();
        self.turn_soon(host);
    }

    fn part(&mut self, host: usize, port: usize) {
        self.hosts[host].links.handle_cable_down(id_of(port));
        self.counts.versions += 1;
        self.turn_soon(host);
    }

    /// The host tells its neighbours soon what it owes them.
    pub(crate) fn turn_soon(&mut self, host: usize) {
        if !self.hosts[host].turn_due {
            self.hosts[host].turn_due = true;
            let (life, pause) = (self.hosts[host].life, self.random.micros(5, self.turn));
            self.after(pause, Event::Turn(host, life));
        }
    }

    /// Records that waited are handled, and old ones renewed; whatever comes of it is told soon.
    pub(crate) fn let_links_know_the_time(&mut self, host: usize) {
        let links = &mut self.hosts[host].links;
        if links.poll_deadline() > self.now {
            return links.handle_time(self.now);
        }
        let before = links.own_number();
        links.handle_time(self.now);
        self.counts.versions += u64::from(links.own_number() != before);
        self.turn_soon(host);
    }

    /// Tells neighbours what is owed to them, and sees what has changed.
    pub(crate) fn tell_neighbours(&mut self, host: usize) {
        self.hosts[host].turn_due = false;
        self.join_due(host);
        for port in 0..self.hosts[host].ports.len() {
            while let Some(records) = self.hosts[host].links.poll_output(id_of(port)) {
                self.send(host, id_of(port), Control::LinkStates(records));
            }
        }
        while let Some(reborn) = self.hosts[host].links.poll_new_life() {
            self.hosts[host].circuits.handle_new_life(reborn);
        }
        if self.hosts[host].links.may_have_changed() {
            self.hosts[host].shorten_at.get_or_insert(self.now + SETTLE);
        }
    }

    /// A neighbour says something.
    pub(crate) fn hear(&mut self, host: usize, port: usize, message: Control) {
        let id = id_of(port);
        self.hosts[host].ports[port].asked = None;
        if std::mem::take(&mut self.hosts[host].ports[port].silent) {
            self.join(host, port);
        }
        let here = &mut self.hosts[host];
        let outcome = match message {
            Control::LinkStates(records) => {
                self.hear_link_states(host, id, records);
                Ok(())
            }
            Control::Open { .. } => {
                self.handle_open(host, id, message);
                Ok(())
            }
            Control::Alive { reply: false } => {
                self.send(host, id, Control::Alive { reply: true });
                Ok(())
            }
            message => here.circuits.handle_message(id, message),
        };
        if let Err(error) = outcome {
            self.fail(format!("host {host} finds a contradiction: {error}"));
        }
        self.run_circuits(host);
    }

    fn hear_link_states(&mut self, host: usize, port: PortId, records: Vec<LinkState>) {
        let here = &mut self.hosts[host];
        let of_ours = records.iter().any(|record| record.origin == here.id);
        let before = of_ours.then(|| here.links.incarnation(here.id));
        if let Err(error) = here.links.handle_link_states(port, records) {
            return self.fail(format!("host {host} refuses link states: {error}"));
        }
        if before.is_some_and(|before| here.links.incarnation(here.id) != before) {
            self.counts.versions += 1;
        }
        self.turn_soon(host);
    }

    /// Does what the circuits want.
    pub(crate) fn run_circuits(&mut self, host: usize) {
        while let Some(output) = self.hosts[host].circuits.poll_output() {
            match output {
                Output::Send { port, message } => self.send(host, port, message),
                Output::Opened { circuit, segment, .. } => self.opened(host, circuit, segment),
                Output::Moving { circuit } => self.say(|| format!("host {host}: {circuit} moves")),
                Output::Seek { circuit } => self.seek(host, circuit),
                Output::Resumed { circuit, segment, arrived, .. } => {
                    self.resumed(host, circuit, segment, arrived)
                }
                Output::Arrived { circuit, units } => self.goes_on(host, circuit, units),
                Output::Freed { channel, port, epoch } => self.free_memory(host, channel, port, epoch),
                Output::Passed { transit, segment, arrived, .. } => {
                    self.passed(host, transit, segment, arrived)
                }
                Output::Drain { transit, side } => self.drain(host, transit, side),
                Output::Stop { transit } => self.stop_transit(host, transit),
                Output::Failed { circuit, channel, why } => self.failed(host, circuit, channel, why),
                Output::Died { circuit, death } => {
                    self.say(|| format!("host {host}: {circuit} dies of {death:?}"));
                    self.wake_holder(host, circuit);
                }
                Output::Doubt { circuit } => {
                    self.after(DOUBT, Event::Doubt(host, self.hosts[host].life, circuit));
                }
                // No socket is anybody's here, so nobody asks.
                Output::Prove { .. } | Output::Proven { .. } => {}
                Output::Free { circuit, .. } => drop(self.hosts[host].parts.remove(&circuit)),
            }
        }
    }

    fn free_memory(&mut self, host: usize, channel: ChannelId, port: PortId, epoch: Epoch) {
        let Some(range) = self.hosts[host].memory.remove(&channel) else { return };
        if self.hosts[host].port(port).up == Some(epoch) {
            self.give_back(host, port.0.into(), ring_at(range));
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].tick_at = None;
        self.join_due(host);
        if self.hosts[host].ask_at <= now {
            self.hosts[host].ask_at = now + ASK_EVERY;
            self.ask_neighbours(host);
        }
        if self.hosts[host].shorten_at.is_some_and(|at| at <= now) {
            let here = &mut self.hosts[host];
            here.shorten_at = None;
            // Without streams nobody asks, and most hosts have none: finding all ways is the dearest thing that they do.
            let has_streams = here.circuits.iter().next().is_some();
            if has_streams && here.links.poll_changed() {
                here.shorten_at = Some(now + SETTLE);
            } else {
                here.circuits.shorten(&here.links, usize::MAX);
            }
        }
    }

    fn ask_neighbours(&mut self, host: usize) {
        let now = self.now;
        self.hosts[host].leaning = false;
        for port in 0..self.hosts[host].ports.len() {
            let here = &mut self.hosts[host];
            let there = &here.ports[port];
            if there.up.is_none() {
                continue;
            }
            let (peer, asked) = (there.peer, there.asked);
            let leant_on = here.circuits.leans_on(id_of(port), peer);
            here.leaning |= leant_on || asked.is_some();
            match asked {
                None if leant_on => {
                    here.ports[port].asked = Some(now);
                    self.send(host, id_of(port), Control::Alive { reply: false });
                }
                Some(asked) if now.saturating_sub(asked) >= SILENCE && !here.ports[port].silent => {
                    here.ports[port].silent = true;
                    self.say(|| format!("host {host}: {peer} does not answer"));
                    self.part(host, port);
                    self.hosts[host].circuits.handle_silence(id_of(port), peer);
                }
                _ => {}
            }
        }
    }

    /// Wakes the host when something will be due.
    pub(crate) fn plan_tick(&mut self, host: usize) {
        let here = &mut self.hosts[host];
        let Some(at) = here.deadline().map(|at| at.max(self.now)) else { return };
        if here.tick_at.is_none_or(|planned| at < planned) {
            here.tick_at = Some(at);
            let life = here.life;
            self.at(at, Event::Tick(host, life));
        }
    }
}
