//! A daemon's decisions about its neighbours, circuits and streams: which cables it uses, which paths it tries, how it
//! answers requests, how streams move to other circuits. The protocol underneath is `crosslane-fabric`'s.
//!
//! ```text
//!   handle_cable_up, handle_message, dial, handle_time ... --> [Policy] --> poll_output, poll_deadline
//!                                                                |  ^
//!                                            an answer is needed v  | at once
//!                                                             [Resources]: memory, quotas, who listens
//! ```
//! Nothing here has a clock, a thread, a socket, randomness or memory of its own: time is an argument, and answers that a
//! decision needs at once come from the caller's [`Resources`]. The daemon drives this state machine, and so does the
//! simulator (`tests/simulator`), with the same constants and the same code: decision 34.
//!
//! [`neighbour`] has the cables and the neighbours' messages, [`ways`] the paths in use, [`dial`] circuits that this host
//! requests, [`answer`] circuits that neighbours request, [`resume`] streams that move, [`transit`] circuits that pass
//! through, [`holder_check`] the orphan check of ends.
#![forbid(unsafe_code)]

pub mod answer;
pub mod dial;
pub mod holder_check;
pub mod neighbour;
pub mod output;
pub mod resources;
pub mod resume;
pub mod transit;
pub mod tuple;
pub mod ways;

pub use answer::Asked;
pub use dial::Dial;
pub use output::{Notice, Output};
pub use resources::{Prepared, Purpose, Resources, Ring, Size};

use crosslane_fabric::circuit::{self, Limits};
use crosslane_fabric::{Circuits, Links};
use crosslane_wire::{CircuitId, HostId, PortId, TransitId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// All that a host knows of the network and decides by.
#[derive(Debug)]
pub struct Policy {
    /// Link states and paths.
    pub links: Links,
    /// Ends of circuits, and circuits that pass through.
    pub circuits: Circuits,
    me: HostId,
    ports: BTreeMap<PortId, neighbour::Port>,
    ways: ways::Ways,
    checks: holder_check::Checks,
    ends: HashMap<CircuitId, EndState>,
    transits: BTreeMap<TransitId, transit::State>,
    outputs: VecDeque<Output>,
}

/// State for decisions about one end, besides its state in [`Circuits`].
#[derive(Debug, Default)]
struct EndState {
    /// Ports at which paths were tried for the circuit that is being requested.
    tried: Vec<PortId>,
    /// When the program stops waiting for its connection.
    deadline: Duration,
    /// Length, bytes, of the segment that was refused last for the circuit that is being sought: the next one is shorter.
    refused: Option<u64>,
    /// Length, bytes, of the segment that was last offered to the neighbour; the neighbour must allocate as much.
    len: u64,
    /// The generation whose segments exist and whose programs wait until the connecting side has reported how much arrived there.
    waiting: Option<u32>,
}

impl Policy {
    /// A host without cables and circuits. `incarnation`: see [`Links::new`].
    pub fn new(me: HostId, incarnation: u64, limits: Limits) -> Self {
        Self {
            links: Links::new(me, incarnation),
            circuits: Circuits::new(limits),
            me,
            ports: BTreeMap::new(),
            ways: ways::Ways::default(),
            checks: holder_check::Checks::default(),
            ends: HashMap::new(),
            transits: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Sets the time, and does what is due.
    pub fn handle_time(&mut self, now: Duration, resources: &mut impl Resources) {
        self.circuits.handle_time(now);
        self.links.handle_time(now);
        self.tend_ways(now);
        self.check_due_holders(now, resources);
    }

    /// When [`Self::handle_time`] must be called next.
    pub fn poll_deadline(&self) -> Option<Duration> {
        let links = Some(self.links.poll_deadline());
        [links, self.circuits.poll_deadline(), self.ways_deadline(), self.checks_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next action; the caller executes them in this order. `resources` answers questions on the way.
    pub fn poll_output(&mut self, now: Duration, resources: &mut impl Resources) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let wanted = self.circuits.poll_output()?;
            self.run(wanted, now, resources);
        }
    }

    /// Executes an action that the circuits' state machine asks for, as far as that is possible here.
    fn run(&mut self, wanted: circuit::Output, now: Duration, resources: &mut impl Resources) {
        use circuit::Output as Wanted;
        match wanted {
            Wanted::Send { port, message } => self.send(port, message),
            Wanted::Opened { circuit, segment, key } => {
                self.opened(circuit, Ring { segment, key }, resources)
            }
            Wanted::Failed { circuit, channel, why } => self.failed(circuit, channel, why, now, resources),
            Wanted::Moving { circuit } => self.push(Output::Moving { circuit }),
            Wanted::Seek { circuit } => self.seek(circuit, now, resources),
            Wanted::Resumed { circuit, segment, key, arrived } => {
                self.resumed(circuit, Ring { segment, key }, arrived, resources);
            }
            Wanted::Arrived { circuit, units } => self.arrived_there(circuit, units),
            Wanted::Passed { transit, segment, key, arrived, pumps } => {
                self.passed(transit, Ring { segment, key }, (arrived, pumps), resources);
            }
            Wanted::Drain { transit, side } => self.push(Output::Drain { transit, side }),
            Wanted::Stop { transit } => {
                self.transits.remove(&transit);
                self.push(Output::Stop { transit });
            }
            Wanted::Died { circuit, death } => self.push(Output::Died { circuit, death }),
            Wanted::CheckHolders { circuit } => {
                self.check_holders(circuit, now);
                self.push(Output::FarClosed { circuit });
            }
            Wanted::Prove { circuit } => self.push(Output::Prove { circuit }),
            Wanted::Proven { circuit, is_so } => self.push(Output::Proven { circuit, is_so }),
            Wanted::Freed { channel, port, epoch } => self.push(Output::Freed { channel, port, epoch }),
            Wanted::Free { circuit, .. } => {
                self.ends.remove(&circuit);
                self.checks.remove(circuit);
                self.push(Output::Free { circuit });
            }
        }
    }

    /// Frees memory for more than `ends` ends, or for more than there are.
    pub fn shrink_to(&mut self, ends: usize) {
        self.ends.shrink_to(ends);
        self.checks.shrink_to(ends);
        self.circuits.shrink_to(ends);
        self.outputs.shrink_to(ends);
    }

    /// Number of ends and circuits in transit for which this keeps state.
    pub fn decided(&self) -> usize {
        self.ends.len() + self.transits.len()
    }

    fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }
}
