//! The ends of circuits on this host, and what becomes of them.
//!
//! ```text
//!            dial                       handle_open
//!             |                              |
//!             v  Opened                      v  accept
//!         [Opening] -------> [Open] <---- [Pending]
//!   Refused  |  |              |  \          |
//!   link down|  | deadline     |   \ close   | close, far end aborts (the listener's end may still be accepted)
//!            |  v              |    v        v
//!            | [Abandoned]     |   [Closing]: Closed is sent, the far side's is awaited
//!            |  |  late Opened: Closed{abort}     |
//!            v  v Refused      | link down        v Closed from the far side, or link down
//!          (gone) <------------+------------- (gone): Free
//! ```
//! Each side sends `Closed` once for each circuit, and an end goes when both have: only then nobody can write into
//! its slice any more. A link that goes down takes all its circuits with it; ends that a program still holds get
//! [`Output::Died`] and go when the program closes them.

use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::{CircuitId, Epoch, HostId, PortId, SliceRange, Tuple};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Which side of the connection an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It called `connect`.
    Client,
    /// It called `listen`.
    Server,
}

/// Why an end died under its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The cable is down or in a new epoch.
    Cable,
    /// The far end was broken off.
    Abort,
    /// The far daemon shuts down.
    Shutdown,
    /// The neighbour broke the protocol.
    Violation,
}

/// Where the far end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// On this host: the other end's id.
    Here(CircuitId),
    /// Behind a cable.
    Cable {
        /// Our port.
        port: PortId,
        /// The cable's epoch when the circuit was made.
        epoch: Epoch,
        /// The host.
        host: HostId,
        /// Its name for the circuit, as soon as it is known.
        name: Option<CircuitId>,
    },
}

/// State of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for; the neighbour has until this time to answer.
    Opening(Duration),
    /// The neighbour took too long; its answer is awaited only to give back what it holds.
    Abandoned,
    /// Made for a connection that no program has accepted yet.
    Pending,
    /// In use by a program.
    Open,
    /// Closed here; the far side is not yet.
    Closing,
}

/// Where a connection's addresses mean what they say: a network namespace of this host, 0 for the daemon's own. What
/// comes by cable is always of the daemon's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(pub u64);

/// One end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The connection.
    pub tuple: Tuple,
    /// Where its addresses are meant.
    pub scope: Scope,
    /// Which side of it.
    pub role: Role,
    /// The other end.
    pub far: Far,
    /// State.
    pub state: State,
    /// Whether the far side has closed.
    pub far_closed: bool,
    /// Why it died, if it did.
    pub death: Option<Death>,
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to the neighbour at `port`.
    Send {
        /// Our port.
        port: PortId,
        /// The message.
        message: Control,
    },
    /// The end is in use from now on: what the neighbour said.
    Opened {
        /// The end.
        circuit: CircuitId,
        /// Where our program may write: the neighbour's memory.
        slice: SliceRange,
        /// Mark key of the ring in it.
        key: u64,
    },
    /// The end that was asked for will not be. `Free` follows when its memory is not written any more.
    Failed {
        /// The end.
        circuit: CircuitId,
        /// Why.
        why: Refusal,
    },
    /// The program that holds the end must be told.
    Died {
        /// The end.
        circuit: CircuitId,
        /// Why.
        death: Death,
    },
    /// The far end was closed while ours is still held: it may be that nobody holds it.
    Doubt {
        /// The end.
        circuit: CircuitId,
    },
    /// The end is gone; nobody writes into its memory any more.
    Free {
        /// The end.
        circuit: CircuitId,
        /// The end as it was last.
        end: Box<End>,
    },
}

/// What a neighbour said about a circuit that contradicts what was before.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
#[error("neighbour speaks of circuit {0}, which is not in a state for that")]
pub struct Contradiction(pub CircuitId);

/// All ends of this host.
#[derive(Debug)]
pub struct Circuits {
    ends: BTreeMap<CircuitId, End>,
    by_tuple: HashMap<(Tuple, Role, Scope), CircuitId>,
    outputs: VecDeque<Output>,
    deadlines: BTreeSet<(Duration, CircuitId)>,
    last: u64,
    pending: HashMap<HostId, usize>,
    pending_max: usize,
}

impl Circuits {
    /// No circuits yet; each host may have `pending_max` ends here that no program has accepted.
    pub fn new(pending_max: usize) -> Self {
        Self {
            ends: BTreeMap::new(),
            by_tuple: HashMap::new(),
            outputs: VecDeque::new(),
            deadlines: BTreeSet::new(),
            last: 0,
            pending: HashMap::new(),
            pending_max,
        }
    }

    /// An end by its id.
    pub fn get(&self, circuit: CircuitId) -> Option<&End> {
        self.ends.get(&circuit)
    }

    /// All ends, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (CircuitId, &End)> {
        self.ends.iter().map(|(id, end)| (*id, end))
    }

    /// The newest end of a connection on this host.
    pub fn find(&self, tuple: &Tuple, role: Role, scope: Scope) -> Option<CircuitId> {
        self.by_tuple.get(&(*tuple, role, scope)).copied()
    }

    /// Makes an end towards a neighbour. The caller sends `Open` with the id that comes back. No answer until
    /// `deadline` means [`Output::Failed`].
    pub fn dial(
        &mut self,
        tuple: Tuple,
        port: PortId,
        epoch: Epoch,
        host: HostId,
        deadline: Duration,
    ) -> CircuitId {
        let far = Far::Cable { port, epoch, host, name: None };
        self.insert((tuple, Role::Client, Scope(0)), far, State::Opening(deadline))
    }

    /// Makes both ends of a connection inside this host: the client's is open, the server's is pending.
    pub fn local(&mut self, tuple: Tuple, scope: Scope) -> Result<(CircuitId, CircuitId), Refusal> {
        self.admit(HostId(0))?;
        let client = CircuitId(self.last + 1);
        let server = CircuitId(self.last + 2);
        self.insert((tuple, Role::Client, scope), Far::Here(server), State::Open);
        self.insert((tuple, Role::Server, scope), Far::Here(client), State::Pending);
        Ok((client, server))
    }

    /// A neighbour asks for a circuit to a program here. On success the caller answers `Opened`, else `Refused`.
    pub fn handle_open(
        &mut self,
        tuple: Tuple,
        port: PortId,
        epoch: Epoch,
        host: HostId,
        name: CircuitId,
    ) -> Result<CircuitId, Refusal> {
        self.admit(host)?;
        let far = Far::Cable { port, epoch, host, name: Some(name) };
        Ok(self.insert((tuple, Role::Server, Scope(0)), far, State::Pending))
    }

    /// The neighbour made the circuit that was asked for.
    pub fn handle_opened(
        &mut self,
        port: PortId,
        circuit: CircuitId,
        theirs: CircuitId,
        slice: SliceRange,
        key: u64,
    ) -> Result<(), Contradiction> {
        let end = self.on_port(port, circuit)?;
        if let Far::Cable { name: name @ None, .. } = &mut end.far {
            *name = Some(theirs);
        }
        match end.state {
            State::Opening(_) => {
                end.state = State::Open;
                self.outputs.push_back(Output::Opened { circuit, slice, key });
            }
            State::Abandoned => {
                end.state = State::Closing;
                self.send_closed(circuit, true);
            }
            _ => return Err(Contradiction(circuit)),
        }
        Ok(())
    }

    /// The neighbour will not make the circuit that was asked for.
    pub fn handle_refused(
        &mut self,
        port: PortId,
        circuit: CircuitId,
        why: Refusal,
    ) -> Result<(), Contradiction> {
        match self.on_port(port, circuit)?.state {
            State::Opening(_) => self.outputs.push_back(Output::Failed { circuit, why }),
            State::Abandoned => {}
            _ => return Err(Contradiction(circuit)),
        }
        self.remove(circuit);
        Ok(())
    }

    /// The neighbour closed its end.
    pub fn handle_closed(
        &mut self,
        port: PortId,
        circuit: CircuitId,
        abort: bool,
    ) -> Result<(), Contradiction> {
        let end = self.on_port(port, circuit)?;
        if end.far_closed || matches!(end.state, State::Opening(_) | State::Abandoned) {
            return Err(Contradiction(circuit));
        }
        self.far_close(circuit, abort);
        Ok(())
    }

    /// A program accepted the connection: its pending end, if there is one, is open from now on.
    pub fn accept(&mut self, tuple: &Tuple, scope: Scope) -> Option<CircuitId> {
        let circuit = self.find(tuple, Role::Server, scope)?;
        let end = self.ends.get_mut(&circuit)?;
        if end.state != State::Pending {
            return None;
        }
        end.state = State::Open;
        self.admitted_leaves(circuit);
        Some(circuit)
    }

    /// The end is closed on this side: by its program, or because its program is gone (`abort`). Tells the far side.
    pub fn close(&mut self, circuit: CircuitId, abort: bool) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        match end.state {
            State::Opening(_) => end.state = State::Abandoned,
            State::Abandoned | State::Closing => {}
            State::Pending | State::Open => {
                if end.state == State::Pending {
                    self.admitted_leaves(circuit);
                }
                self.close_here(circuit, abort);
            }
        }
    }

    /// Takes back a [`Self::dial`] whose `Open` was never sent.
    pub fn cancel(&mut self, circuit: CircuitId) {
        if self.ends.get(&circuit).is_some_and(|end| matches!(end.state, State::Opening(_))) {
            self.remove(circuit);
        }
    }

    /// The cable at `port` is down: all its circuits are dead.
    pub fn handle_link_down(&mut self, port: PortId, death: Death) {
        let on_port = |end: &End| matches!(end.far, Far::Cable { port: at, .. } if at == port);
        let dead: Vec<CircuitId> =
            self.ends.iter().filter(|(_, end)| on_port(end)).map(|(circuit, _)| *circuit).collect();
        for circuit in dead {
            self.kill(circuit, death);
        }
    }

    /// The end's ring broke the protocol, or its neighbour did: both sides get an error.
    pub fn kill(&mut self, circuit: CircuitId, death: Death) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.far_closed = true;
        let state = end.state;
        match state {
            State::Opening(_) => {
                self.outputs.push_back(Output::Failed { circuit, why: Refusal::NoRoute });
                self.remove(circuit);
            }
            State::Abandoned | State::Closing => self.remove(circuit),
            State::Pending | State::Open => self.die(circuit, death),
        }
    }

    /// Ends whose time is over.
    pub fn handle_time(&mut self, now: Duration) {
        let mut late = Vec::new();
        while let Some(&(until, circuit)) = self.deadlines.first().filter(|(until, _)| *until <= now) {
            self.deadlines.remove(&(until, circuit));
            if self.ends.get(&circuit).is_some_and(|end| end.state == State::Opening(until)) {
                late.push(circuit);
            }
        }
        for circuit in late {
            if let Some(end) = self.ends.get_mut(&circuit) {
                end.state = State::Abandoned;
            }
            self.outputs.push_back(Output::Failed { circuit, why: Refusal::Timeout });
        }
    }

    /// What shall be done next, in this order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_time`] shall be called next.
    pub fn poll_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// How many ends no program has accepted yet.
    pub fn pending(&self) -> usize {
        self.pending.values().sum()
    }

    fn insert(&mut self, key: (Tuple, Role, Scope), far: Far, state: State) -> CircuitId {
        self.last += 1;
        let circuit = CircuitId(self.last);
        self.by_tuple.insert(key, circuit);
        if let State::Opening(until) = state {
            self.deadlines.insert((until, circuit));
        }
        if state == State::Pending {
            *self.pending.entry(far_host(&far)).or_default() += 1;
        }
        let (tuple, role, scope) = key;
        self.ends.insert(circuit, End { tuple, scope, role, far, state, far_closed: false, death: None });
        circuit
    }

    fn admit(&self, host: HostId) -> Result<(), Refusal> {
        let waiting = self.pending.get(&host).copied().unwrap_or(0);
        if waiting >= self.pending_max { Err(Refusal::NoMemory) } else { Ok(()) }
    }

    /// The end is no longer pending.
    fn admitted_leaves(&mut self, circuit: CircuitId) {
        let Some(host) = self.ends.get(&circuit).map(|end| far_host(&end.far)) else { return };
        if let Some(count) = self.pending.get_mut(&host) {
            *count = count.saturating_sub(1);
        }
    }

    fn on_port(&mut self, port: PortId, circuit: CircuitId) -> Result<&mut End, Contradiction> {
        match self.ends.get_mut(&circuit) {
            Some(end) if matches!(end.far, Far::Cable { port: at, .. } if at == port) => Ok(end),
            _ => Err(Contradiction(circuit)),
        }
    }

    fn far_close(&mut self, circuit: CircuitId, abort: bool) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.far_closed = true;
        match end.state {
            State::Closing => self.remove(circuit),
            _ if abort => self.die(circuit, Death::Abort),
            _ => self.outputs.push_back(Output::Doubt { circuit }),
        }
    }

    fn die(&mut self, circuit: CircuitId, death: Death) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        if end.death.is_none() {
            end.death = Some(death);
            self.outputs.push_back(Output::Died { circuit, death });
            self.outputs.push_back(Output::Doubt { circuit });
        }
    }

    fn close_here(&mut self, circuit: CircuitId, abort: bool) {
        let Some(end) = self.ends.get_mut(&circuit) else { return };
        end.state = State::Closing;
        let (far, far_closed, dead) = (end.far, end.far_closed, end.death);
        match far {
            Far::Here(other) => self.far_close(other, abort),
            Far::Cable { .. } if dead.is_none_or(|death| death == Death::Abort) => {
                self.send_closed(circuit, abort);
            }
            Far::Cable { .. } => {}
        }
        if far_closed {
            self.remove(circuit);
        }
    }

    fn send_closed(&mut self, circuit: CircuitId, abort: bool) {
        let far = self.ends.get(&circuit).map(|end| end.far);
        if let Some(Far::Cable { port, name: Some(name), .. }) = far {
            let message = Control::Closed { circuit: name, abort };
            self.outputs.push_back(Output::Send { port, message });
        }
    }

    fn remove(&mut self, circuit: CircuitId) {
        let Some(end) = self.ends.remove(&circuit) else { return };
        if end.state == State::Pending {
            let host = far_host(&end.far);
            if let Some(count) = self.pending.get_mut(&host) {
                *count = count.saturating_sub(1);
            }
        }
        let key = (end.tuple, end.role, end.scope);
        if self.by_tuple.get(&key) == Some(&circuit) {
            self.by_tuple.remove(&key);
        }
        self.outputs.push_back(Output::Free { circuit, end: Box::new(end) });
    }
}

/// Under which host an end counts; 0 for this host itself.
fn far_host(far: &Far) -> HostId {
    match far {
        Far::Here(_) => HostId(0),
        Far::Cable { host, .. } => *host,
    }
}
