//! The configuration file of one host's daemon.

use crate::LabError;
use crate::folder::{Folder, ORDER, Programs};
use crate::plan::{Cable, CableKind, MACHINE_CONTROL, Options, Posted};
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How long streams between virtual machines look for another way, ms: three emulated machines may share a processor, and what takes a
/// millisecond on one of its own takes a second there.
const MACHINES_RESUME_MS: u32 = 60_000;

/// The values that the keeper passes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) options: Options,
    pub(crate) programs: Programs,
}

impl Order {
    /// The order of the lab in `folder`.
    pub(crate) fn read(folder: &Folder) -> Result<Self, LabError> {
        let order = std::fs::read(folder.file(ORDER)).map_err(LabError::io("read the lab's order"))?;
        serde_json::from_slice(&order).map_err(|e| LabError::Options(format!("the lab's order: {e}")))
    }
}

#[derive(Serialize)]
struct Daemon<'a> {
    host: u8,
    control: String,
    interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_max: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spin_us: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    one_way: bool,
    #[serde(skip_serializing_if = "is_false")]
    all_ways: bool,
    #[serde(skip_serializing_if = "is_false")]
    stripe: bool,
    #[serde(skip_serializing_if = "is_false")]
    pump: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    resilience: Option<crate::Resilience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_ms: Option<u32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    port: Vec<Port<'a>>,
}

#[derive(Serialize)]
struct Port<'a> {
    name: &'static str,
    kind: &'static str,
    cable: String,
    side: &'static str,
    window: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    #[serde(flatten)]
    posted: crate::Posted,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Text of the configuration of host `id` whose lab lies in `folder`.
pub(crate) fn text(options: &Options, folder: &Path, id: u8, state: &State) -> Result<String, LabError> {
    let port = |cable: &Cable| Port {
        name: cable.port_name(id),
        kind: match (&options.machines, options.cable_kind) {
            (Some(_), _) => "ntb",
            (None, CableKind::Soft) => "soft",
            (None, CableKind::Posted(_)) => "posted",
        },
        posted: posted(options, cable, id),
        cable: match options.machines {
            Some(_) => format!("/dev/crosslane{}", state.device(id, cable)),
            None => folder.join(format!("c{}.sock", cable.number)).display().to_string(),
        },
        side: if cable.a == id { "a" } else { "b" },
        window: &options.window,
        // One end is enough; the other is to notice by itself.
        cut: options.machines.is_none() && cable.a == id && state.cut.contains(&cable.number),
    };
    let daemon = Daemon {
        host: id,
        control: match options.machines {
            Some(_) => MACHINE_CONTROL.to_owned(),
            None => folder.join(format!("h{id}.sock")).display().to_string(),
        },
        interface: if state.tun { "xl0" } else { "" },
        ring_max: options.ring_max.as_deref(),
        spin_us: options.spin_us,
        one_way: options.one_way,
        all_ways: options.all_ways,
        stripe: options.stripe,
        pump: options.pump,
        resilience: options.resilience,
        resume_ms: options.machines.as_ref().map(|_| MACHINES_RESUME_MS),
        rules: &options.rules,
        port: state.cables.iter().filter(|c| c.other(id).is_some()).map(port).collect(),
    };
    toml::to_string(&daemon).map_err(|e| LabError::io("write a configuration")(std::io::Error::other(e)))
}

/// The delay options of a port of host `id`: each end of each cable has a seed of its own.
fn posted(options: &Options, cable: &Cable, id: u8) -> Posted {
    let CableKind::Posted(posted) = options.cable_kind else { return Posted::default() };
    let end = 2 * u32::from(cable.number) + u32::from(cable.a == id);
    Posted { seed: Some(posted.seed.unwrap_or(0).wrapping_add(end)), ..posted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Topology;

    #[test]
    fn config_ring_host_has_a_right_and_a_left_port() {
        let mut options = Options {
            window: "1G".into(),
            spin_us: Some(0),
            rules: vec!["use tcp client * 0.0.0.0/0:*".into()],
            ..Options::named("x")
        };
        let mut state = state();
        let read = |options: &Options, state: &State| -> toml::Table {
            let text = text(options, Path::new("/run/l \"x"), 1, state).expect("text");
            text.parse().expect("is TOML")
        };
        let plain = read(&options, &state);
        let ports = plain["port"].as_array().expect("ports");
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0]["side"].as_str(), Some("a"));
        assert_eq!(ports[0]["cable"].as_str(), Some("/run/l \"x/c1.sock"));
        assert_eq!(ports[1]["name"].as_str(), Some("left"));
        assert_eq!(plain["spin_us"].as_integer(), Some(0));
        assert!(["ring_max", "one_way", "pump", "resilience"].iter().all(|key| !plain.contains_key(*key)));
        assert!(["cut", "delay_us", "seed", "combine"].iter().all(|key| ports[0].get(key).is_none()));

        let link = Some("gen4 x8, mps 256, fibre 10 m".parse().unwrap());
        options.cable_kind = CableKind::Posted(Posted { link, ..Posted::default() });
        let timed = read(&options, &state);
        let written = timed["port"][0]["link"].as_str();
        assert_eq!(written, Some("gen4 x8, mps 256, fibre 10 m, hops 2, stores"));

        options.cable_kind = CableKind::Posted(Posted { delay_us: Some((0, 9)), ..Posted::default() });
        let posted = read(&options, &state);
        let (one, other) = (&posted["port"][0], &posted["port"][1]);
        assert_eq!((one["kind"].as_str(), one.get("combine")), (Some("posted"), None));
        assert_eq!(one["delay_us"].as_array().map(|both| both[1].as_integer()), Some(Some(9)));
        assert_ne!(one["seed"], other["seed"]);

        (options.one_way, options.pump, options.resilience) = (true, true, Some(crate::Resilience::Reset));
        assert!(!read(&options, &state).contains_key("all_ways"));
        (options.all_ways, options.stripe) = (true, true);
        // Cable 3 reaches it from the other side: that host switches it off.
        state.cut = vec![1, 3];
        let changed = read(&options, &state);
        assert_eq!(changed["one_way"].as_bool(), Some(true));
        assert_eq!(changed["all_ways"].as_bool(), Some(true));
        assert_eq!(changed["stripe"].as_bool(), Some(true));
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
            accelerator: None,
            hosts: Vec::new(),
            cables: Options::named("x").cables(),
            cut: Vec::new(),
        }
    }
}
