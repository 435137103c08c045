//! A host: the machine that the daemon drives too, and around it what is simulated.

use crate::ends::Parts;
use crate::memory::ring_at;
use crate::pump::Passage;
use crate::world::{Event, World};
use crosslane_fabric::circuit::{Death, Limits, Role};
use crosslane_fabric::route::Spread;
use crosslane_fabric::setup::Agreement;
use crosslane_policy::{Notice, Output, Policy};
use crosslane_wire::control::Control;
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, SegmentRange, TransitId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a stream looks for another circuit.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);
const PENDING: usize = 64;
const HIGHEST: u16 = 2000;
/// Rings that a port's inbound memory has room for.
pub(crate) const ROOM: usize = 256;

/// A port of a host.
#[derive(Debug)]
pub(crate) struct Port {
    /// The epoch in which its cable is up, as the host knows it.
    pub(crate) up: Option<Epoch>,
    /// The last epoch that it was in.
    pub(crate) last: u32,
    /// Rings in its inbound memory.
    pub(crate) window: BTreeSet<usize>,
    /// How many of them there may be.
    pub(crate) room: usize,
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
    tick_at: Option<Duration>,
    turn_due: bool,
}

impl Host {
    /// A host that was never started.
    pub(crate) fn new(id: HostId, ports: usize) -> Self {
        let port = || Port { up: None, last: 0, window: BTreeSet::new(), room: ROOM };
        Self {
            id,
            life: 0,
            alive: false,
            frozen: false,
            backlog: vec![],
            ports: (0..ports).map(|_| port()).collect(),
            plugs: vec![None; ports],
            parts: BTreeMap::new(),
            memory: BTreeMap::new(),
            passages: BTreeMap::new(),
            tick_at: None,
            turn_due: false,
        }
    }
}

/// What a host decides by, of which nothing is known yet. Each third host uses longer ways, too.
pub(crate) fn policy_of(id: HostId, incarnation: u64) -> Policy {
    let mut policy = Policy::new(id, incarnation, Limits { pending: PENDING, patience: PATIENCE });
    policy.links.allow_hosts(HIGHEST);
    if id.0.is_multiple_of(3) {
        policy.spread_over(Spread::All);
    }
    policy
}

/// A port's name.
pub(crate) fn id_of(port: usize) -> PortId {
    PortId(u8::try_from(port).unwrap())
}

impl World {
    /// Adds a host that was never started.
    pub(crate) fn add_host(&mut self, ports: usize) {
        let id = HostId(u16::try_from(self.hosts.len() + 1).unwrap());
        self.hosts.push(Host::new(id, ports));
        self.policies.push(policy_of(id, 0));
    }

    /// A new life, in which nothing of the earlier one is known.
    pub(crate) fn start(&mut self, host: usize, incarnation: u64) {
        let here = &mut self.hosts[host];
        let (life, ports) = (here.life + 1, here.ports.len());
        let last: Vec<u32> = here.ports.iter().map(|port| port.last).collect();
        let plugs = std::mem::take(&mut here.plugs);
        *here = Host { plugs, life, alive: true, ..Host::new(here.id, ports) };
        for (port, last) in here.ports.iter_mut().zip(last) {
            port.last = last;
        }
        self.policies[host] = policy_of(here.id, incarnation);
    }

    /// The cable at a port is up.
    pub(crate) fn cable_up(&mut self, host: usize, port: usize, peer: HostId, epoch: Epoch) {
        let there = &mut self.hosts[host].ports[port];
        there.up = Some(epoch);
        there.window.clear();
        let agreement = Agreement { peer, epoch, peer_window: u64::MAX, rx_key: 0, tx_key: 0 };
        self.policies[host].handle_cable_up(id_of(port), agreement, self.now);
    }

    /// The cable at a port is down.
    pub(crate) fn cable_down(&mut self, host: usize, port: usize) {
        self.hosts[host].ports[port].up = None;
        self.policies[host].handle_cable_down(id_of(port), Death::Cable, self.now);
        self.run_policy(host);
        self.hosts[host].ports[port].window.clear();
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

    /// What was due until now happens; whatever comes of it is told soon.
    pub(crate) fn let_policy_know_the_time(&mut self, host: usize) {
        let now = self.now;
        let (policy, mut resources) = self.split(host);
        let links_are_due = policy.links.poll_deadline() <= now;
        policy.handle_time(now, &mut resources);
        if links_are_due {
            self.turn_soon(host);
        }
    }

    /// Counts the records that the host made about itself since it had made this one, and tells them soon.
    pub(crate) fn count_versions(&mut self, host: usize, before: (u64, u64)) {
        let (incarnation, sequence) = self.policies[host].links.own_number();
        if (incarnation, sequence) != before {
            let same_life = incarnation == before.0;
            self.counts.versions += if same_life { sequence.saturating_sub(before.1) } else { 1 };
            self.turn_soon(host);
        }
    }

    /// Tells neighbours what is owed to them, and sees what has changed.
    pub(crate) fn tell_neighbours(&mut self, host: usize) {
        self.hosts[host].turn_due = false;
        for port in 0..self.hosts[host].ports.len() {
            while let Some(records) = self.policies[host].poll_link_states(id_of(port)) {
                self.send(host, id_of(port), records);
            }
        }
        self.policies[host].follow_links(self.now);
    }

    /// A neighbour says something.
    pub(crate) fn hear(&mut self, host: usize, port: usize, message: Control) {
        self.overhear(host, &message);
        self.check_route(host, &message);
        if matches!(message, Control::LinkStates(_)) {
            self.turn_soon(host);
        }
        let now = self.now;
        let (policy, mut resources) = self.split(host);
        policy.handle_message(id_of(port), message, now, &mut resources);
        self.run_policy(host);
    }

    /// Does what the policy wants.
    pub(crate) fn run_policy(&mut self, host: usize) {
        loop {
            let now = self.now;
            let (policy, mut resources) = self.split(host);
            let output = policy.poll_output(now, &mut resources);
            self.settle();
            let Some(output) = output else { return };
            self.execute(host, output);
        }
    }

    fn execute(&mut self, host: usize, output: Output) {
        match output {
            Output::Send { port, message } => self.send(host, port, message),
            Output::BreakOff { port, why, .. } => self.break_off(host, port, &why),
            Output::Granted { circuit } => self.opened(host, circuit),
            Output::Refused { circuit, why } => {
                self.say(|| format!("host {host}: {circuit} is refused: {why:?}"));
                self.refuse(host, circuit);
            }
            Output::Unusable { circuit, why } => {
                self.say(|| format!("host {host}: {circuit} cannot be used: {why:?}"));
                self.refuse(host, circuit);
                self.close_end(host, circuit, true);
            }
            Output::Moving { circuit } => self.say(|| format!("host {host}: {circuit} moves")),
            Output::GoesOn { circuit, arrived } => self.goes_on(host, circuit, arrived),
            Output::Freed { channel, port, epoch } => self.free_memory(host, channel, port, epoch),
            Output::Drain { transit, side } => self.drain(host, transit, side),
            Output::Stop { transit } => self.stop_transit(host, transit),
            Output::Died { circuit, death } => {
                self.say(|| format!("host {host}: {circuit} dies of {death:?}"));
                if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                    parts.publish_all();
                }
                self.wake_holder(host, circuit);
            }
            Output::FarClosed { circuit } => self.wake_holder(host, circuit),
            Output::NobodyHolds { circuit, .. } => self.close_end(host, circuit, false),
            // Every socket here has become the connection that it announced.
            Output::Prove { circuit } => self.policies[host].circuits.tell_proof(circuit, true),
            Output::Proven { circuit, is_so } => {
                if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                    parts.proven = is_so;
                }
            }
            Output::Free { circuit } => drop(self.hosts[host].parts.remove(&circuit)),
            Output::Notice(notice) => self.hear_notice(host, notice),
        }
    }

    fn hear_notice(&mut self, host: usize, notice: Notice) {
        match notice {
            Notice::Used { .. } => self.counts.tables += u64::try_from(self.hosts.len()).unwrap(),
            Notice::Contradiction { .. } if self.liar.is_some() => self.counts.contradictions += 1,
            Notice::Contradiction { port, why } => {
                self.fail(format!("host {host} finds a contradiction at {port:?}: {why}"));
            }
            other => self.say(|| format!("host {host}: {other:?}")),
        }
    }

    /// The end goes on by its newest segments.
    fn goes_on(&mut self, host: usize, circuit: CircuitId, arrived: u64) {
        let Some((generation, role)) =
            self.policies[host].circuits.get(circuit).map(|end| (end.generation, end.role))
        else {
            return;
        };
        self.say(|| {
            format!("host {host}: {circuit} goes on, generation {generation}, far side has {arrived}")
        });
        self.counts.resumed += u64::from(role == Role::Client);
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.publish(generation, arrived);
        }
        self.wake_holder(host, circuit);
        self.policies[host].circuits.finish(circuit, false);
    }

    fn free_memory(&mut self, host: usize, channel: ChannelId, port: PortId, epoch: Epoch) {
        let Some(range) = self.hosts[host].memory.remove(&channel) else { return };
        if self.hosts[host].ports[usize::from(port.0)].up == Some(epoch) {
            self.give_back(host, port.0.into(), ring_at(range));
        }
    }

    /// Wakes the host when something will be due.
    pub(crate) fn plan_tick(&mut self, host: usize) {
        let Some(at) = self.policies[host].poll_deadline().map(|at| at.max(self.now)) else { return };
        let here = &mut self.hosts[host];
        if here.tick_at.is_none_or(|planned| at < planned) {
            here.tick_at = Some(at);
            let life = here.life;
            self.at(at, Event::Tick(host, life));
        }
    }

    /// A planned look at what is due is there.
    pub(crate) fn tick(&mut self, host: usize) {
        self.hosts[host].tick_at = None;
    }
}
