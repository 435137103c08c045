//! Cables: what is under way on them, how they come up and go down.

use crate::world::{Event, World};
use crosslane_wire::Epoch;
use crosslane_wire::PortId;
use crosslane_wire::control::Control;
use std::time::Duration;

/// A cable between two ports.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Hosts and their ports.
    pub(crate) ends: [(usize, usize); 2],
    /// Whether it works.
    pub(crate) up: bool,
    /// The number of its life.
    pub(crate) epoch: u32,
    /// How long a message takes.
    pub(crate) delay: Duration,
    /// When the next message towards a side can arrive.
    free_at: [Duration; 2],
    /// What came to a side before it found the cable up.
    early: [Vec<(u32, Box<Control>)>; 2],
}

impl Cable {
    /// A cable that nobody has plugged in.
    pub(crate) fn new(ends: [(usize, usize); 2], delay: Duration) -> Self {
        let (free_at, early) = (<[Duration; 2]>::default(), <[Vec<_>; 2]>::default());
        Self { ends, up: false, epoch: 0, delay, free_at, early }
    }
}

impl World {
    /// Whether the cable is in the ports at its ends.
    pub(crate) fn is_plugged(&self, cable: usize) -> bool {
        self.cables[cable]
            .ends
            .iter()
            .all(|(host, port)| self.hosts[*host].plugs[*port].is_some_and(|(there, _)| there == cable))
    }

    /// Puts a cable into its ports.
    pub(crate) fn plug(&mut self, cable: usize) {
        for (side, (host, port)) in self.cables[cable].ends.into_iter().enumerate() {
            self.hosts[host].plugs[port] = Some((cable, side));
        }
    }

    /// The cable works no longer: what is under way is lost, and the two sides find it out.
    pub(crate) fn cut(&mut self, cable: usize) {
        if !self.cables[cable].up {
            return;
        }
        self.cables[cable].up = false;
        let epoch = self.cables[cable].epoch;
        for side in 0..2 {
            let pause = self.random.micros(1, 2000);
            self.after(pause, Event::Down(cable, side, epoch));
        }
    }

    /// The cable works again, if it is plugged in and both hosts run.
    pub(crate) fn mend(&mut self, cable: usize) {
        let ends = self.cables[cable].ends;
        if self.cables[cable].up || !self.is_plugged(cable) || !ends.iter().all(|end| self.hosts[end.0].alive)
        {
            return;
        }
        let last = ends.map(|(host, port)| self.hosts[host].ports[port].last);
        let epoch = self.cables[cable].epoch.max(last[0]).max(last[1]) + 1;
        (self.cables[cable].up, self.cables[cable].epoch) = (true, epoch);
        for (side, end) in ends.into_iter().enumerate() {
            self.hosts[end.0].ports[end.1].last = epoch;
            let pause = self.random.micros(200, 5000);
            self.after(pause, Event::Up(cable, side, epoch));
        }
    }

    /// Sends by a port what the other side gets if the cable holds.
    pub(crate) fn send(&mut self, host: usize, port: PortId, message: Control) {
        let port = usize::from(port.0);
        if let Control::LinkStates(records) = &message {
            self.record(records);
        }
        let Some(epoch) = self.hosts[host].ports[port].up else { return };
        let Some((cable, side)) = self.hosts[host].plugs[port] else { return };
        let there = &mut self.cables[cable];
        if !there.up || there.epoch != epoch.0 {
            return;
        }
        self.counts.messages += 1;
        if let Control::LinkStates(records) = &message {
            self.counts.floods += 1;
            self.counts.records += u64::try_from(records.len()).unwrap();
        }
        let jitter = self.random.micros(0, 50);
        let at = (self.now + there.delay + jitter).max(there.free_at[1 - side] + Duration::from_micros(1));
        there.free_at[1 - side] = at;
        self.at(at, Event::Deliver(cable, 1 - side, epoch.0, Box::new(message)));
    }

    /// A side of a cable finds it up.
    pub(crate) fn handle_up(&mut self, cable: usize, side: usize, epoch: u32) {
        let (host, port) = self.cables[cable].ends[side];
        if !self.is_live(cable, epoch) {
            return;
        }
        if self.hosts[host].ports[port].up.is_some() {
            self.cable_down(host, port);
        }
        let peer = self.hosts[self.cables[cable].ends[1 - side].0].id;
        self.cable_up(host, port, peer, Epoch(epoch));
        for (sent, message) in std::mem::take(&mut self.cables[cable].early[side]) {
            if sent == epoch {
                self.hear(host, port, *message);
            }
        }
    }

    /// A side of a cable finds it down.
    pub(crate) fn handle_down(&mut self, cable: usize, side: usize, epoch: u32) {
        let (host, port) = self.cables[cable].ends[side];
        if self.hosts[host].ports[port].up == Some(Epoch(epoch)) {
            self.cable_down(host, port);
        }
    }

    /// A message arrives, unless the cable was lost meanwhile.
    pub(crate) fn deliver(&mut self, cable: usize, side: usize, epoch: u32, message: Box<Control>) {
        if !self.is_live(cable, epoch) {
            return;
        }
        let (host, port) = self.cables[cable].ends[side];
        if self.hosts[host].ports[port].up == Some(Epoch(epoch)) {
            self.hear(host, port, *message);
        } else {
            self.cables[cable].early[side].push((epoch, message));
        }
    }

    fn is_live(&self, cable: usize, epoch: u32) -> bool {
        self.cables[cable].up && self.cables[cable].epoch == epoch
    }
}
