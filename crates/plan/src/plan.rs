//! A plan: the figures of a network, and of what is left of it when cables are lost.

use crate::check::check;
use crate::figure::Figure;
use crate::formulas::{Formulas, Forwarding};
use crate::memory::Memory;
use crate::network::{Network, cable_name};
use crate::topology::{BadNetwork, Topology};
use crate::view::View;
use crosslane_fabric::HOST_MAX;
use crosslane_pcie::{Cable, NANOSECOND};
use crosslane_wire::control::MAX_HOPS;
use serde::Serialize;

/// The form of the document.
pub const VERSION: u32 = 1;

/// What is planned.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many hosts.
    pub hosts: u16,
    /// How they are cabled.
    pub topology: Topology,
    /// What all cables are.
    pub cable: Cable,
    /// What hosts between do.
    pub forwarding: Forwarding,
    /// Streams that each host opens to each other one.
    pub streams: u64,
    /// Cables that are lost, by their hosts; none: one that matters most.
    pub lost: Vec<(u16, u16)>,
}

/// What a plan is made of, in the document.
#[derive(Clone, Debug, Serialize)]
pub struct Assumed {
    /// The cable, with all its parts.
    pub cable: String,
    /// Bytes a second that a host between copies.
    pub forward_rate: f64,
    /// From data in the memory of a host between until it writes them on, nanoseconds.
    pub forward_latency_ns: f64,
    /// Bytes of a ring in the memory of each host on a path.
    pub ring: u64,
}

/// All of one network.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Cables.
    pub cables: usize,
    /// Cables between the hosts that are farthest from one another.
    pub farthest: u8,
    /// Pairs of hosts, in each order, that do not reach one another.
    pub parted_pairs: u64,
    /// The figures; none if no host reaches another.
    pub figures: Vec<Figure>,
}

/// The document.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// How many hosts.
    pub hosts: u16,
    /// How they are cabled.
    pub topology: String,
    /// What was assumed.
    pub assumed: Assumed,
    /// The whole network.
    pub whole: Part,
    /// Cables that are lost: `h1-h2`.
    pub lost_cables: Vec<String>,
    /// What is left without them.
    pub after_loss: Part,
    /// What windows must hold, of the whole network.
    pub memory: Memory,
    /// What to know beside it.
    pub notes: Vec<String>,
}

/// Makes a plan by formulas, and runs the simulator beside them if there is a seed for it. `progress` hears what is simulated,
/// and which share of it is done.
///
/// # Errors
/// There is no such network, or no such cable.
pub fn plan(
    settings: &Settings,
    simulate: Option<u64>,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Plan, BadNetwork> {
    let Settings { hosts, topology, cable, forwarding, .. } = *settings;
    let (network, sides) = (Network::new(topology, hosts)?, topology.sides(hosts)?);
    let lost = if settings.lost.is_empty() { vec![exemplary(&network)] } else { settings.lost.clone() };
    let left = network.without(&lost)?;
    let formulas = Formulas { cable, forwarding };
    let part = |network: &Network, progress: &mut dyn FnMut(&str, f64)| {
        let view = View::new(network, sides, formulas);
        let mut figures = view.figures();
        if let Some(seed) = simulate {
            check(&view, &mut figures, seed, progress);
        }
        let cables = network.cables().len();
        let part = Part { cables, farthest: view.farthest(), parted_pairs: view.parted(), figures };
        (part, view.memory(settings.streams))
    };
    let (whole, memory) = part(&network, progress);
    let (after_loss, _) = part(&left, progress);
    let notes = notes(settings, &whole, &after_loss);
    Ok(Plan {
        version: VERSION,
        hosts,
        topology: shown(topology, sides),
        assumed: Assumed {
            cable: cable.to_string(),
            forward_rate: forwarding.rate,
            forward_latency_ns: forwarding.latency as f64 / NANOSECOND as f64,
            ring: forwarding.ring,
        },
        whole,
        lost_cables: lost
            .into_iter()
            .map(|(one, other)| cable_name((one.min(other), one.max(other))))
            .collect(),
        after_loss,
        memory,
        notes,
    })
}

/// The cable whose loss shows what one costs: that in the middle, which parts a chain into halves.
fn exemplary(network: &Network) -> (u16, u16) {
    let cables = network.cables();
    let middle = usize::from(network.hosts() - 1) / 2;
    cables[middle.min(cables.len() - 1)]
}

fn shown(topology: Topology, (rows, columns): (u16, u16)) -> String {
    match topology {
        Topology::Torus { .. } => Topology::Torus { size: Some((rows, columns)) }.to_string(),
        _ => topology.to_string(),
    }
}

fn notes(settings: &Settings, whole: &Part, after_loss: &Part) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.hosts > HOST_MAX {
        notes.push(format!(
            "{} hosts: daemons take {HOST_MAX} at most, as host ids are of one byte",
            settings.hosts
        ));
    }
    for (part, name) in [(whole, "the network"), (after_loss, "what is left")] {
        if part.parted_pairs > 0 {
            let farther = if part.farthest >= MAX_HOPS {
                format!(", or are more than {MAX_HOPS} cables apart")
            } else {
                String::new()
            };
            notes.push(format!(
                "{name}: {} ordered pairs of hosts have no path{farther}; figures are of the others",
                part.parted_pairs
            ));
        }
    }
    notes
}
