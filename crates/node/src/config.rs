//! The configuration file: what was written, and what it means.

mod check;
mod port;
mod quota;
mod raw;

use crate::address::Addresses;
use crate::offload::Settings;
pub use crate::port::{PortConfig, PortKind};
use crosslane_wire::HostId;
use crosslane_wire::local::Rule;
use crosslane_wire::segment::{RING_MIN, segment_len};
use ipnet::IpNet;
use raw::RawConfig;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Most ports of a host.
pub const PORTS_MAX: usize = crosslane_wire::control::MAX_LINKS;
/// Smallest window of a port, bytes: the daemons' own channels and a few circuits.
pub const WINDOW_MIN: u64 = 896 << 10;
const _: () = assert!(WINDOW_MIN - crate::cable::circuits(WINDOW_MIN) >= 4 * segment_len(RING_MIN));
const WINDOW_MAX: u64 = 1 << 44;

/// Why a configuration is not used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is not TOML, or has keys that are not known.
    #[error("{path}: {text}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        text: String,
    },
    /// A value makes no sense.
    #[error("{key}: {text}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong, and what to write.
        text: String,
    },
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This host and the fabric's subnets.
    pub addresses: Addresses,
    /// Networks behind hosts: their addresses count as those of the host.
    pub networks: Vec<(IpNet, HostId)>,
    /// File of this host's private key ([`crate::keys`]).
    pub key: Option<PathBuf>,
    /// File of all hosts' public keys.
    pub keys: Option<PathBuf>,
    /// Control socket.
    pub control: PathBuf,
    /// Name of the TUN interface; `None` for no interface.
    pub interface: Option<String>,
    /// Longest IP packet, bytes.
    pub mtu: u16,
    /// Queues of the interface.
    pub queues: usize,
    /// Whether IPv4 multicast without an interface of its own goes into the fabric.
    pub multicast: bool,
    /// Largest ring of a stream, bytes.
    pub ring_max: u64,
    /// Longest spin before a sleep, us.
    pub spin_us: u32,
    /// How long a stream that lost its circuit looks for another one; zero: it is reset at once.
    pub resume: Duration,
    /// Circuits and packets leave by ports of side `a` only.
    pub one_way: bool,
    /// Circuits that this host requests are spread over all paths, not over the shortest only.
    pub all_ways: bool,
    /// Whether circuits through this host are pumped also where its cables are memory of this machine.
    pub pump: bool,
    /// How the offload engine works for those who want it.
    pub offload: Settings,
    /// Group whose members may see what all users have.
    pub operators: Option<u32>,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Rules, the built-in ones last; `offload` and `stripe` are among those.
    pub rules: Vec<Rule>,
    /// What users and neighbours may have.
    pub quota: crate::quota::Settings,
    /// What joins programs of this host.
    pub inside: PortKind,
    /// Whether rules about stripes count for streams inside this host, too: for tests of programs.
    pub inside_stripes: bool,
    /// Ports, in the order of the file.
    pub ports: Vec<PortConfig>,
}

impl Config {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text).map_err(|error| match error {
            ConfigError::Syntax { text, .. } => ConfigError::Syntax { path: path.to_owned(), text },
            ConfigError::Value { key, text } => {
                ConfigError::Value { key: format!("{}: {key}", path.display()), text }
            }
            ConfigError::Read { .. } => error,
        })
    }

    /// Checks a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let raw: RawConfig = toml::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: PathBuf::new(), text: error.to_string() })?;
        raw.check()
    }

    /// The host that sends packets from this address and gets those to it: its own address, or one of a network behind
    /// it.
    pub fn host_at(&self, address: IpAddr) -> Option<HostId> {
        let behind = || self.networks.iter().find(|(network, _)| network.contains(&address));
        self.addresses.on_link(address).or_else(|| behind().map(|(_, host)| *host))
    }
}

/// The fabric addresses of this host, for `Welcome`.
pub fn own_addresses(config: &Config) -> Vec<IpAddr> {
    config.addresses.of(config.addresses.me).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::Choice;
    use crosslane_port::posted::{Stores, Timing};

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = Config::parse("host = 1").unwrap();
        assert_eq!(config.control, Path::new("/run/crosslane/crosslaned.sock"));
        assert_eq!((config.interface.as_deref(), config.mtu, config.spin_us), (Some("xl0"), 65520, 50));
        assert_eq!((config.queues, config.multicast), (2, true));
        assert_eq!((config.ring_max, config.metrics, config.ports.len()), (8 << 20, None, 0));
        assert_eq!(config.offload, Settings { processors: None, copy: Choice::Auto, least: 768 << 10 });
        assert_eq!(own_addresses(&config).len(), 2);
    }

    #[test]
    fn stripes_for_all_are_a_rule_behind_the_others() {
        let rules =
            |text: &str| Config::parse(text).unwrap().rules.iter().map(crate::rule::text).collect::<Vec<_>>();
        let (off, on) = (rules("host = 1"), rules("host = 1\nstripe = true"));
        let added = ["0.0.0.0", "::"].map(|any| format!("stripe on client * {any}/0:*"));
        assert_eq!(on, [off, added.to_vec()].concat());
    }

    #[test]
    fn offload_for_all_is_a_rule_behind_the_others() {
        let rules =
            |text: &str| Config::parse(text).unwrap().rules.iter().map(crate::rule::text).collect::<Vec<_>>();
        let (off, on) = (rules("host = 1\noffload = false"), rules("host = 1\noffload = true"));
        assert_eq!(off, rules("host = 1"));
        let added: Vec<&String> = on.iter().filter(|rule| !off.contains(rule)).collect();
        assert_eq!(
            added,
            ["client", "server"]
                .map(|role| { ["0.0.0.0", "::"].map(|any| format!("offload on {role} * {any}/0:*")) })
                .concat()
                .iter()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn port_is_read() {
        let text =
            "host = 2\n[[port]]\nname = \"right\"\ncable = \"/run/c.sock\"\nside = \"a\"\nwindow = \"64M\"";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.ports[0].listens, config.ports[0].window, config.ports[0].mode),
            (true, 64 << 20, 0o600)
        );
    }

    #[test]
    fn posted_port_is_read() {
        let kind = |more: &str| {
            let port = "host = 2\n[[port]]\nname = \"p\"\nkind = \"posted\"\ncable = \"/c\"\nside = \"a\"\n";
            Config::parse(&format!("{port}{more}")).unwrap().ports[0].kind
        };
        let stores = |(least, most), seed, combine| {
            PortKind::Posted(Stores { timing: Timing::Drawn(least, most), seed, combine })
        };
        assert_eq!(kind(""), stores((0, 10_000), 0, true));
        assert_eq!(kind("delay_us = 25\nseed = 7"), stores((25_000, 25_000), 7, true));
        assert_eq!(kind("delay_us = [0, 1000]\ncombine = false"), stores((0, 1_000_000), 0, false));
        let cable = "gen4 x8, mps 256, fibre 10 m";
        let timing = Timing::Cable(cable.parse().unwrap());
        let timed = PortKind::Posted(Stores { timing, seed: 0, combine: true });
        assert_eq!(kind(&format!("link = \"{cable}\"")), timed);
        let spin = |more: &str| {
            let port = format!(
                "[[port]]\nname = \"p\"\nkind = \"posted\"\ncable = \"/c\"\nside = \"a\"\nlink = \"{cable}\""
            );
            Config::parse(&format!("host = 2\n{more}\n{port}")).unwrap().spin_us
        };
        assert_eq!((spin(""), spin("spin_us = 7")), (0, 7));
        let small = kind("delay_us = 0\nwindow = \"896K\"");
        assert_eq!(small, stores((0, 0), 0, true));
    }

    #[test]
    fn bridges_say_how_long_a_store_is_under_way() {
        let kind = |more: &str| {
            let port = "host = 2\n[[port]]\nname = \"p\"\nkind = \"ntb\"\ncable = \"/dev/crosslane0\"\nside = \"a\"\n";
            Config::parse(&format!("{port}{more}")).unwrap().ports[0].kind
        };
        assert_eq!(kind(""), PortKind::Ntb { posted_ns: 100_000 });
        assert_eq!(kind("delay_us = 20000"), PortKind::Ntb { posted_ns: 20_000_000 });
    }

    #[test]
    fn inside_is_soft_or_posted() {
        let inside = |text: &str| Config::parse(&format!("host = 1\n{text}")).map(|config| config.inside);
        assert_eq!(inside("").unwrap(), PortKind::Soft);
        let posted = inside("[inside]\nkind = \"posted\"\ndelay_us = [0, 1000]").unwrap();
        assert_eq!(posted, {
            let timing = Timing::Drawn(0, 1_000_000);
            PortKind::Posted(Stores { timing, seed: 0, combine: true })
        });
        assert!(
            inside("[inside]\nkind = \"ntb\"").unwrap_err().to_string().contains("`ntb` joins two hosts")
        );
        let error = inside("[inside]\ndelay_us = 3").unwrap_err().to_string();
        assert_eq!(error, "inside: delay_us: kind `soft` does not have this key");
    }

    #[test]
    fn addresses_of_a_network_behind_a_host_are_its() {
        let config = Config::parse("host = 1\nnetworks = [\"192.168.7.0/24 3\", \"fd99::/64 2\"]").unwrap();
        let at = |address: &str| config.host_at(address.parse().unwrap()).map(|host| host.0);
        assert_eq!((at("192.168.7.200"), at("fd99::1"), at("10.86.0.9")), (Some(3), Some(2), Some(9)));
        assert_eq!((at("192.168.8.1"), at("8.8.8.8"), at("fe80::5")), (None, None, Some(5)));
    }

    #[test]
    fn mistakes_are_named() {
        let port = "[[port]]\nname = \"p\"\ncable = \"/c\"\nside = \"a\"\n";
        for (text, word) in [
            ("", "host"),
            ("host = 0", "host"),
            ("host = 300", "300"),
            ("host = 1\ncolour = 3", "colour"),
            ("host = 1\nmtu = 100", "mtu"),
            ("host = 1\nresilience = \"some\"", "resilience"),
            ("host = 1\nresume_ms = 5", "resume_ms"),
            ("host = 1\nmtu = 65521", "65520"),
            ("host = 1\nqueues = 0", "queues"),
            ("host = 1\noffload_cpus = [1]", "offload_cpus"),
            ("host = 1\noffload_cpus = [0, -1]", "offload_cpus"),
            ("host = 1\noffload_copy = \"dma\"", "offload_copy"),
            ("host = 1\noffload_least = \"much\"", "offload_least"),
            ("host = 1\nring_max = \"3M\"", "ring_max"),
            ("host = 1\nring_max = \"99999999999T\"", "size"),
            ("host = 1\nmetrics = \"10.0.0.1:80\"", "loopback"),
            ("host = 1\nsubnet = \"10.0.0.0/30\"", "subnet"),
            ("host = 1\nnetworks = [\"10.0.0.0/8 2\"]", "10.86.0.0/24"),
            ("host = 1\nnetworks = [\"fd86::/80 2\"]", "fd86::/64"),
            ("host = 1\nnetworks = [\"239.0.0.0/8 2\"]", "multicast"),
            ("host = 1\nnetworks = [\"192.168.7.0/24\"]", "NETWORK HOST"),
            ("host = 1\nnetworks = [\"192.168.7.0/24 255\"]", "NETWORK HOST"),
            ("host = 1\nnetworks = [\"192.168.7.0/24 2\", \"192.168.7.1 3\"]", "192.168.7.0/24"),
            ("host = 1\nkey = \"key\"", "absolute"),
            ("host = 1\nkeys = \"keys\"", "absolute"),
            ("host = 1\ncontrol = \"x\"", "absolute"),
            ("host = 1\nrules = [\"x\"]", "rule"),
            ("host = 1\ninterface = \"a b\"", "interface"),
            (&format!("host = 1\n{port}{port}"), "one name"),
            (&format!("host = 1\n{port}window = \"892K\""), "window"),
            (&format!("host = 1\n{port}mode = \"9\""), "mode"),
            (&format!("host = 1\n{port}kind = \"dolphin\""), "`soft`, `posted` and `ntb`"),
            (&format!("host = 1\n{port}delay_us = 5"), "delay_us: kind `soft`"),
            (&format!("host = 1\n{port}combine = true"), "combine: kind `soft`"),
            (&format!("host = 1\n{port}kind = \"ntb\"\nseed = 1"), "seed: kind `ntb`"),
            (&format!("host = 1\n{port}kind = \"ntb\"\ndelay_us = 100001"), "100000"),
            (&format!("host = 1\n{port}kind = \"ntb\"\ndelay_us = [0, 1]"), "one number"),
            ("host = 1\n[inside]\nkind = \"posted\"\nlink = \"gen4 x8\"", "inside: link"),
            (&format!("host = 1\n{port}kind = \"posted\"\ndelay_us = [2, 1]"), "delay_us"),
            (&format!("host = 1\n{port}kind = \"posted\"\ndelay_us = 100001"), "100000"),
            (&format!("host = 1\n{port}kind = \"posted\"\ndelay_us = [-1, 1]"), "delay_us"),
            (&format!("host = 1\n{port}kind = \"posted\"\nseed = -1"), "seed"),
            (&format!("host = 1\n{port}kind = \"posted\"\nlink = \"gen9 x8\""), "link: `gen9 x8`"),
            (
                &format!("host = 1\n{port}kind = \"posted\"\nlink = \"gen4 x8\"\ndelay_us = 1"),
                "not with `delay_us`",
            ),
            (&format!("host = 1\n{port}link = \"gen4 x8\""), "link: kind `soft`"),
            (&format!("host = 1\n{}", port.replace("\"a\"", "\"c\"")), "side"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
