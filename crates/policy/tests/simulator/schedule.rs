//! What is done to a network: its form, and the faults that a seed brings about.

use crate::host::ROOM;
use crate::liar::GRACE;
use crate::network::Cable;
use crate::program::{Outcome, Stream};
use crate::random::Random;
use crate::world::{Event, World};
use std::time::Duration;

/// The form of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Each host is joined to the next, and the last to the first.
    Ring,
    /// Each is joined to the next.
    Chain,
    /// Rows and columns of so many hosts each way, every one a ring.
    Torus(usize),
    /// A chain, and so many cables more anywhere.
    Random(usize),
}

/// Something that is done to the network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A cable is cut.
    Cut(usize),
    /// A cable is mended.
    Mend(usize),
    /// A cable is cut, mended, and so on so many times more, each after 5 ms.
    Flap(usize, usize),
    /// A host and all its programs die.
    Kill(usize),
    /// A host starts.
    Boot(usize),
    /// A host's daemon stops.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// A host's memory for neighbours is exhausted.
    Squeeze(usize),
    /// There is memory again.
    Release(usize),
    /// The cable is pulled out, and the host with its two cables, the first of which is named, put in its place.
    Join(usize, usize, usize),
    /// A host forges or replays some link states.
    Forge(usize),
    /// A host says what is not so.
    Lie(usize),
    /// Programs end that a liar has had a stream of.
    Reap,
    /// All ways are held against the truth.
    Look,
    /// All faults are over; cables that are cut stay so if that is wanted.
    Peace(bool),
}

impl World {
    /// A network of hosts that run and know of each other.
    pub(crate) fn build(random: Random, hosts: usize, form: Form, aloud: bool) -> Self {
        let mut world = Self::new(random, aloud);
        world.turn = world.turn.max(u64::try_from(hosts).unwrap() * 2);
        let mut ports = vec![0; hosts];
        for (a, b) in pairs(&mut world.random, hosts, form) {
            let ends = [(a, ports[a]), (b, ports[b])];
            (ports[a], ports[b]) = (ports[a] + 1, ports[b] + 1);
            world.lay(ends);
        }
        for ports in ports {
            world.add_host(ports);
        }
        for cable in 0..world.cables.len() {
            world.plug(cable);
        }
        for host in 0..hosts {
            world.strike(Fault::Boot(host));
        }
        world.run(Duration::from_millis(100));
        world
    }

    fn lay(&mut self, ends: [(usize, usize); 2]) -> usize {
        let delay = self.random.micros(5, 200);
        self.cables.push(Cable::new(ends, delay));
        self.cables.len() - 1
    }

    /// Does it.
    pub(crate) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(cable) => self.cut(cable),
            Fault::Mend(cable) => self.mend(cable),
            Fault::Flap(cable, times) => self.flap(cable, times),
            Fault::Kill(host) => self.kill(host),
            Fault::Boot(host) => self.boot(host),
            Fault::Freeze(host) => self.hosts[host].frozen = self.hosts[host].alive,
            Fault::Thaw(host) => self.thaw(host),
            Fault::Squeeze(host) => self.set_room(host, 2),
            Fault::Release(host) => self.set_room(host, ROOM),
            Fault::Join(cable, host, first) => {
                self.cut(cable);
                self.plug(first);
                self.plug(first + 1);
                self.boot(host);
            }
            Fault::Forge(host) => self.forge(host),
            Fault::Lie(host) => self.lie(host),
            Fault::Reap => self.reap(),
            Fault::Look => self.check_ways(),
            Fault::Peace(mend) => {
                // It is found out, and begins anew.
                if let Some(liar) = self.liar {
                    self.thaw(liar);
                    self.kill(liar);
                    self.after(GRACE, Event::Fault(Fault::Reap));
                }
                for host in 0..self.hosts.len() {
                    self.thaw(host);
                    self.set_room(host, ROOM);
                    self.boot(host);
                }
                if mend {
                    (0..self.cables.len()).for_each(|cable| self.mend(cable));
                }
            }
        }
    }

    fn flap(&mut self, cable: usize, times: usize) {
        if self.cables[cable].up {
            self.cut(cable)
        } else {
            self.mend(cable)
        }
        if times > 0 {
            self.after(Duration::from_millis(5), Event::Fault(Fault::Flap(cable, times - 1)));
        }
    }

    fn set_room(&mut self, host: usize, room: usize) {
        self.hosts[host].ports.iter_mut().for_each(|port| port.room = room);
    }

    fn cables_of(&self, host: usize) -> Vec<usize> {
        let of = |cable: &usize| self.cables[*cable].ends.iter().any(|end| end.0 == host);
        (0..self.cables.len()).filter(of).collect()
    }

    fn kill(&mut self, host: usize) {
        if !self.hosts[host].alive {
            return;
        }
        for cable in self.cables_of(host) {
            self.cut(cable);
        }
        self.hosts[host].alive = false;
        self.hosts[host].life += 1;
        for program in 0..self.programs.len() {
            if self.programs[program].host == host && self.programs[program].outcome.is_none() {
                self.end(program, Outcome::Gone);
            }
        }
    }

    fn boot(&mut self, host: usize) {
        if self.hosts[host].alive {
            return;
        }
        let clock_is_wrong = self.random.once_in(4);
        let life = if clock_is_wrong { 1 } else { u64::from(self.hosts[host].life) + 2 };
        let incarnation = (life << 20) + self.random.next() % (1 << 20);
        self.start(host, incarnation);
        for cable in self.cables_of(host) {
            self.mend(cable);
        }
    }

    fn thaw(&mut self, host: usize) {
        self.hosts[host].frozen = false;
        for event in std::mem::take(&mut self.hosts[host].backlog) {
            self.hosts_event(host, event);
        }
    }

    fn hosts_event(&mut self, host: usize, event: Event) {
        if self.hosts[host].alive {
            self.host_turn(host, event);
        }
    }

    /// Streams that begin within `time` from now.
    pub(crate) fn plan_streams(&mut self, count: usize, hosts: usize, time: Duration, aborts: bool) {
        for stream in 0..count {
            let from = self.random.below(hosts);
            let to = (from + 1 + self.random.below(hosts - 1)) % hosts;
            let totals = [0; 2].map(|_: u64| 1 + self.random.next() % 300);
            let mut abort = || (aborts && self.random.once_in(8)).then(|| self.random.next() % 300);
            let aborts = [abort(), abort()];
            self.streams.push(Stream {
                hosts: [from, to],
                totals,
                aborts,
                is_prey: false,
                programs: [None; 2],
            });
            let pause = self.random.micros(0, u64::try_from(time.as_micros()).unwrap());
            self.after(pause, Event::Connect(stream));
        }
    }

    /// Faults of all kinds within `time` from now, and peace after that.
    pub(crate) fn plan_faults(&mut self, count: usize, form: Form, time: Duration) {
        for _ in 0..count {
            let at = self.random.micros(0, u64::try_from(time.as_micros()).unwrap());
            let (cable, host) = (self.random.below(self.cables.len()), self.random.below(self.hosts.len()));
            let pause = match self.random.below(3) {
                0 => self.random.micros(100, 10_000),
                1 => self.random.micros(10_000, 300_000),
                _ => self.random.micros(300_000, 3_000_000),
            };
            match self.random.below(8) {
                0 | 1 => self.spell(at, pause, Fault::Cut(cable), Fault::Mend(cable)),
                2 => {
                    let again = self.random.micros(100, 20_000);
                    self.spell(at, again, Fault::Cut(cable), Fault::Mend(cable));
                    let twice = at + again + self.random.micros(100, 20_000);
                    self.spell(twice, pause, Fault::Cut(cable), Fault::Mend(cable));
                }
                3 => {
                    for cable in self.cables_of(host) {
                        self.spell(at, pause, Fault::Cut(cable), Fault::Mend(cable));
                    }
                }
                4 => {
                    let times = 1 + self.random.below(100);
                    self.after(at, Event::Fault(Fault::Flap(cable, times)));
                }
                5 => self.spell(at, pause, Fault::Kill(host), Fault::Boot(host)),
                6 => self.spell(at, pause, Fault::Freeze(host), Fault::Thaw(host)),
                _ => self.spell(at, pause, Fault::Squeeze(host), Fault::Release(host)),
            }
        }
        if matches!(form, Form::Ring) && self.random.once_in(2) {
            self.plan_join(time);
        }
        let mend = !self.random.once_in(4);
        self.after(time, Event::Fault(Fault::Peace(mend)));
    }

    fn spell(&mut self, at: Duration, pause: Duration, begin: Fault, end: Fault) {
        self.after(at, Event::Fault(begin));
        self.after(at + pause, Event::Fault(end));
    }

    /// The ring is opened, a host put in, and the ring closed.
    fn plan_join(&mut self, time: Duration) {
        let host = self.hosts.len();
        self.add_host(2);
        let cable = self.random.below(self.cables.len());
        let [left, right] = self.cables[cable].ends;
        let first = self.lay([left, (host, 0)]);
        self.lay([(host, 1), right]);
        let at = self.random.micros(0, u64::try_from(time.as_micros()).unwrap());
        self.after(at, Event::Fault(Fault::Join(cable, host, first)));
    }
}

fn pairs(random: &mut Random, hosts: usize, form: Form) -> Vec<(usize, usize)> {
    let chain = (0..hosts - 1).map(|host| (host, host + 1));
    match form {
        Form::Chain => chain.collect(),
        Form::Ring => chain.chain([(hosts - 1, 0)]).collect(),
        Form::Torus(side) => (0..hosts)
            .flat_map(|host| {
                let (row, column) = (host / side, host % side);
                [(host, row * side + (column + 1) % side), (host, (host + side) % hosts)]
            })
            .collect(),
        Form::Random(more) => {
            let mut all: Vec<(usize, usize)> = chain.collect();
            for _ in 0..more {
                let (a, b) = (random.below(hosts), random.below(hosts));
                let ports = |host| all.iter().filter(|pair| pair.0 == host || pair.1 == host).count();
                if a != b && ports(a) < 8 && ports(b) < 8 {
                    all.push((a, b));
                }
            }
            all
        }
    }
}
