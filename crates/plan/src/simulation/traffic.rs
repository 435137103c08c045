//! An exchange: each host sends as much to each other one of its pattern.

use super::{FlowId, Grain, Simulation, Step};
use crate::formulas::Formulas;
use crate::load::Pattern;
use crate::routes::Routes;
use crosslane_pcie::SECOND;
use fastrand::Rng;
use std::collections::HashMap;

/// Messages that a host has under way.
const UNDER_WAY: usize = 64;

/// An exchange of messages of what a pump copies in a turn. A host sends one to each host of its pattern, in an order by chance, then
/// again one to each, as often as there are rounds, and has a number of them under way at a time. Messages of a pair of hosts are one flow.
#[derive(Debug)]
pub struct Exchange<'a, 'b> {
    simulation: Simulation<'a>,
    routes: &'b Routes<'a>,
    dice: Rng,
    /// Of each host.
    senders: Vec<Sender>,
    flows: HashMap<(u16, u16), FlowId>,
    /// The hosts of a flow, which may have ended.
    hosts: HashMap<FlowId, (u16, u16)>,
    message: u64,
}

#[derive(Debug)]
struct Sender {
    targets: Vec<u16>,
    /// Those of this round that are left.
    left: Vec<u16>,
    /// Rounds behind this one.
    rounds: u32,
    /// Bytes that have arrived and were not answered by a new message.
    arrived: u64,
}

impl<'a, 'b> Exchange<'a, 'b> {
    /// Of this pattern (and `half`, as [`Pattern::sends`]) and so many rounds. `seed`: of the order of messages, and of bit errors.
    pub fn new(
        routes: &'b Routes<'a>,
        formulas: Formulas,
        (pattern, half): (Pattern, &[bool]),
        rounds: u32,
        seed: u64,
    ) -> Self {
        let hosts = routes.network().hosts();
        let sender = |host: u16| {
            let reached = |to: &u16| pattern.sends(half, host, *to) && routes.hops(host, *to).is_some();
            Sender { targets: (0..hosts).filter(reached).collect(), left: Vec::new(), rounds, arrived: 0 }
        };
        Self {
            simulation: Simulation::new(routes.network(), formulas, Grain::Turns, seed),
            routes,
            dice: Rng::with_seed(seed),
            senders: (0..hosts).map(sender).collect(),
            flows: HashMap::new(),
            hosts: HashMap::new(),
            message: formulas.forwarding.turn,
        }
    }

    /// Bytes a second of all hosts together until the last byte has arrived; `None` if no host sends. `progress` hears which share is done.
    pub fn rate(&mut self, progress: &mut dyn FnMut(f64)) -> Option<f64> {
        let messages =
            self.senders.iter().map(|sender| sender.targets.len() as u64 * u64::from(sender.rounds));
        let bytes = messages.sum::<u64>() * self.message;
        for host in (0..).take(self.senders.len()) {
            (0..UNDER_WAY).for_each(|_| self.send(host));
        }
        while self.simulation.delivered() < bytes {
            if let Step::Arrived(arrival) = self.simulation.step()? {
                self.arrived(arrival.flow, arrival.len);
            }
            if self.simulation.handled().is_multiple_of(1 << 16) {
                progress(self.simulation.delivered() as f64 / bytes as f64);
            }
        }
        let seconds = self.simulation.now() as f64 / SECOND as f64;
        (bytes > 0).then(|| bytes as f64 / seconds)
    }

    /// Bytes of a host have arrived: it sends as many more.
    fn arrived(&mut self, flow: FlowId, len: u64) {
        let Some(&(host, _)) = self.hosts.get(&flow) else { return };
        self.senders[usize::from(host)].arrived += len;
        while self.senders[usize::from(host)].arrived >= self.message {
            self.senders[usize::from(host)].arrived -= self.message;
            self.send(host);
        }
    }

    /// A host sends its next message, if there is one.
    fn send(&mut self, host: u16) {
        let sender = &mut self.senders[usize::from(host)];
        if sender.left.is_empty() && sender.rounds > 0 {
            sender.rounds -= 1;
            sender.left.clone_from(&sender.targets);
            self.dice.shuffle(&mut sender.left);
        }
        let Some(to) = sender.left.pop() else { return };
        let pair = (host, to);
        if let Some(flow) = self.flows.get(&pair).copied().filter(|flow| self.is_of(*flow, pair)) {
            return self.simulation.send(flow, self.message);
        }
        let flow = self.simulation.start(self.routes.path(host, to), self.message, 0);
        self.flows.insert(pair, flow);
        self.hosts.insert(flow, pair);
    }

    /// Whether a flow goes on and is of these hosts: ids of flows that have ended are given again.
    fn is_of(&self, flow: FlowId, pair: (u16, u16)) -> bool {
        self.hosts.get(&flow) == Some(&pair) && self.simulation.arrived(flow).is_some()
    }
}
