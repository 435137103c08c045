//! The configuration file of one host's daemon.

use crate::LabError;
use crate::plan::Cable;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the keeper is told: the options of the lab, resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) hosts: u8,
    pub(crate) topology: crate::Topology,
    pub(crate) window: String,
    pub(crate) ring_max: Option<String>,
    pub(crate) spin_us: Option<u32>,
    pub(crate) rules: Vec<String>,
    pub(crate) log: String,
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
}

/// Text of the configuration of host `id` whose lab lies in `folder`.
pub(crate) fn text(
    order: &Order,
    folder: &Path,
    id: u8,
    tun: bool,
    cables: &[Cable],
) -> Result<String, LabError> {
    let port = |cable: &Cable| {
        let (name, side) = if cable.a == id { ("right", "a") } else { ("left", "b") };
        let cable = folder.join(format!("c{}.sock", cable.number)).display().to_string();
        Port { name, kind: "soft", cable, side, window: order.window.clone() }
    };
    let daemon = Daemon {
        host: id,
        control: folder.join(format!("h{id}.sock")).display().to_string(),
        interface: if tun { "xl0" } else { "" },
        ring_max: order.ring_max.clone(),
        spin_us: order.spin_us,
        rules: order.rules.clone(),
        port: cables.iter().filter(|c| c.other(id).is_some()).map(port).collect(),
    };
    toml::to_string(&daemon).map_err(|e| LabError::io("write a configuration")(std::io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Topology, cables};

    #[test]
    fn a_host_of_a_ring_has_a_right_and_a_left_port() {
        let order = Order {
            name: "x".into(),
            hosts: 3,
            topology: Topology::Ring,
            window: "1G".into(),
            ring_max: None,
            spin_us: Some(0),
            rules: vec!["use tcp client * 0.0.0.0/0:*".into()],
            log: "info".into(),
            daemon: "/bin/true".into(),
            keeper: "/bin/true".into(),
            sockets: None,
        };
        let text = text(&order, Path::new("/run/l \"x"), 1, true, &cables(3, Topology::Ring)).expect("text");
        let read: toml::Table = text.parse().expect("is TOML");
        let ports = read["port"].as_array().expect("ports");
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0]["side"].as_str(), Some("a"));
        assert_eq!(ports[0]["cable"].as_str(), Some("/run/l \"x/c1.sock"));
        assert_eq!(ports[1]["name"].as_str(), Some("left"));
        assert_eq!(read["spin_us"].as_integer(), Some(0));
        assert!(!read.contains_key("ring_max"));
    }
}
