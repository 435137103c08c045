//! The configuration file of one host's daemon.

use crate::LabError;
use crate::plan::{Cable, CableKind, Posted};
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the keeper is told: the options of the lab, resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) hosts: u8,
    pub(crate) topology: crate::Topology,
    pub(crate) cable_kind: crate::CableKind,
    pub(crate) window: String,
    pub(crate) ring_max: Option<String>,
    pub(crate) spin_us: Option<u32>,
    pub(crate) one_way: bool,
    pub(crate) pump: bool,
    pub(crate) resilience: Option<crate::Resilience>,
    pub(crate) rules: Vec<String>,
    pub(crate) log: String,
    pub(crate) counted: bool,
    pub(crate) daemon: std::path::PathBuf,
    pub(crate) keeper: std::path::PathBuf,
    pub(crate) sockets: Option<std::path::PathBuf>,
}

#[derive(Serialize)]
struct Daemon {
    host: u8,
    control: String,
    interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spin_us: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    one_way: bool,
    #[serde(skip_serializing_if = "is_false")]
    pump: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resilience: Option<crate::Resilience>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    port: Vec<Port>,
}

#[derive(Serialize)]
struct Port {
    name: &'static str,
    kind: &'static str,
    cable: String,
    side: &'static str,
    window: String,
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    #[serde(flatten)]
    posted: crate::Posted,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Text of the configuration of host `id` whose lab lies in `folder`.
pub(crate) fn text(order: &Order, folder: &Path, id: u8, state: &State) -> Result<String, LabError> {
    let port = |cable: &Cable| Port {
        name: cable.port_name(id),
        kind: match order.cable_kind {
            CableKind::Soft => "soft",
            CableKind::Posted(_) => "posted",
        },
        posted: posted(order, cable, id),
        cable: folder.join(format!("c{}.sock", cable.number)).display().to_string(),
        side: if cable.a == id { "a" } else { "b" },
        window: order.window.clone(),
        // One end is enough, and the other shall notice by itself.
        cut: cable.a == id && state.cut.contains(&cable.number),
    };
    let daemon = Daemon {
        host: id,
        control: folder.join(format!("h{id}.sock")).display().to_string(),
        interface: if state.tun { "xl0" } else { "" },
        ring_max: order.ring_max.clone(),
        spin_us: order.spin_us,
        one_way: order.one_way,
        pump: order.pump,
        resilience: order.resilience,
        rules: order.rules.clone(),
        port: state.cables.iter().filter(|c| c.other(id).is_some()).map(port).collect(),
    };
    toml::to_string(&daemon).map_err(|e| LabError::io("write a configuration")(std::io::Error::other(e)))
}

/// What the port of host `id` says of its stores: a seed of its own for each end of each cable.
fn posted(order: &Order, cable: &Cable, id: u8) -> Posted {
    let CableKind::Posted(posted) = order.cable_kind else { return Posted::default() };
    let end = 2 * u32::from(cable.number) + u32::from(cable.a == id);
    Posted { seed: Some(posted.seed.unwrap_or(0).wrapping_add(end)), ..posted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Topology, cables};

    #[test]
    fn a_host_of_a_ring_has_a_right_and_a_left_port() {
        let mut order = Order {
            name: "x".into(),
            hosts: 3,
            topology: Topology::Ring,
            cable_kind: CableKind::Soft,
            window: "1G".into(),
            ring_max: None,
            spin_us: Some(0),
            one_way: false,
            pump: false,
            resilience: None,
            rules: vec!["use tcp client * 0.0.0.0/0:*".into()],
            log: "info".into(),
            counted: false,
            daemon: "/bin/true".into(),
            keeper: "/bin/true".into(),
            sockets: None,
        };
        let mut state = state();
        let read = |order: &Order, state: &State| -> toml::Table {
            let text = text(order, Path::new("/run/l \"x"), 1, state).expect("text");
            text.parse().expect("is TOML")
        };
        let plain = read(&order, &state);
        let ports = plain["port"].as_array().expect("ports");
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0]["side"].as_str(), Some("a"));
        assert_eq!(ports[0]["cable"].as_str(), Some("/run/l \"x/c1.sock"));
        assert_eq!(ports[1]["name"].as_str(), Some("left"));
        assert_eq!(plain["spin_us"].as_integer(), Some(0));
        assert!(["ring_max", "one_way", "pump", "resilience"].iter().all(|key| !plain.contains_key(*key)));
        assert!(["cut", "delay_us", "seed", "combine"].iter().all(|key| ports[0].get(key).is_none()));

        order.cable_kind = CableKind::Posted(Posted { delay_us: Some((0, 9)), ..Posted::default() });
        let posted = read(&order, &state);
        let (one, other) = (&posted["port"][0], &posted["port"][1]);
        assert_eq!((one["kind"].as_str(), one.get("combine")), (Some("posted"), None));
        assert_eq!(one["delay_us"].as_array().map(|both| both[1].as_integer()), Some(Some(9)));
        assert_ne!(one["seed"], other["seed"]);

        (order.one_way, order.pump, order.resilience) = (true, true, Some(crate::Resilience::Reset));
        // Of cable 3 it is the other side: that one switches it off.
        state.cut = vec![1, 3];
        let changed = read(&order, &state);
        assert_eq!(changed["one_way"].as_bool(), Some(true));
        assert_eq!(changed["pump"].as_bool(), Some(true));
        assert_eq!(changed["resilience"].as_str(), Some("reset"));
        assert_eq!(changed["port"][0]["cut"].as_bool(), Some(true));
        assert!(changed["port"][1].get("cut").is_none());
    }

    fn state() -> State {
        let process = crate::Identity { pid: 1, start: 1 };
        State {
            name: "x".into(),
            topology: Topology::Ring,
            mark: "x".into(),
            keeper: process,
            ready: true,
            user: None,
            tun: true,
            program: "/bin/true".into(),
            sockets: None,
            hosts: Vec::new(),
            cables: cables(3, Topology::Ring),
            cut: Vec::new(),
        }
    }
}
