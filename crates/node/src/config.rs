//! The configuration file: what was written, and what it means.

use crate::address::{Addresses, Network};
use crate::rule;
use crosslane_fabric::HOST_MAX;
use crosslane_wire::HostId;
use crosslane_wire::local::Rule;
use crosslane_wire::slice::{PAGE, RING_MAX, RING_MIN, ring_max_ok};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Most ports of a host.
pub const PORTS_MAX: usize = crosslane_wire::control::MAX_LINKS;
/// Smallest window of a port, bytes: the daemons' own channels and a few circuits.
pub const WINDOW_MIN: u64 = 16 << 20;
const WINDOW_MAX: u64 = 1 << 44;
/// Longest path of a Unix socket, bytes.
const SOCKET_PATH_MAX: usize = 107;
const INTERFACE_MAX: usize = 15;
const MTU_MAX: u16 = 65520;
const QUEUES_MAX: i64 = 16;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This host and the fabric's subnets.
    pub addresses: Addresses,
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
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Rules, the built-in ones last.
    pub rules: Vec<Rule>,
    /// Ports, in the order of the file.
    pub ports: Vec<PortConfig>,
}

/// A checked port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Name, for people.
    pub name: String,
    /// Path of the socket that both ends of the soft cable share.
    pub cable: PathBuf,
    /// Whether this end listens; the other connects.
    pub listens: bool,
    /// Bytes of inbound memory.
    pub window: u64,
    /// Access mode of the cable's socket.
    pub mode: u32,
    /// Whether it begins cut.
    pub cut: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    host: i64,
    #[serde(default = "default_subnet")]
    subnet: String,
    #[serde(default = "default_subnet6")]
    subnet6: String,
    #[serde(default = "default_control")]
    control: PathBuf,
    #[serde(default = "default_interface")]
    interface: String,
    #[serde(default = "default_mtu")]
    mtu: i64,
    #[serde(default = "default_queues")]
    queues: i64,
    #[serde(default = "default_multicast")]
    multicast: bool,
    #[serde(default = "default_ring_max")]
    ring_max: String,
    #[serde(default = "default_spin_us")]
    spin_us: i64,
    #[serde(default = "default_resilience")]
    resilience: String,
    #[serde(default = "default_resume_ms")]
    resume_ms: i64,
    #[serde(default)]
    one_way: bool,
    metrics: Option<String>,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    port: Vec<RawPort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPort {
    name: String,
    #[serde(default = "default_kind")]
    kind: String,
    cable: PathBuf,
    side: String,
    #[serde(default = "default_window")]
    window: String,
    #[serde(default = "default_mode")]
    mode: String,
    #[serde(default)]
    cut: bool,
}

fn default_subnet() -> String {
    "10.86.0.0/24".to_owned()
}
fn default_subnet6() -> String {
    "fd86::/64".to_owned()
}
fn default_control() -> PathBuf {
    "/run/crosslane/crosslaned.sock".into()
}
fn default_interface() -> String {
    "xl0".to_owned()
}
fn default_mtu() -> i64 {
    65520
}
fn default_queues() -> i64 {
    2
}
fn default_multicast() -> bool {
    true
}
fn default_ring_max() -> String {
    "8M".to_owned()
}
fn default_resilience() -> String {
    "keep".to_owned()
}
fn default_resume_ms() -> i64 {
    3000
}
fn default_spin_us() -> i64 {
    50
}
fn default_kind() -> String {
    "soft".to_owned()
}
fn default_window() -> String {
    "16G".to_owned()
}
fn default_mode() -> String {
    "0600".to_owned()
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
}

impl RawConfig {
    fn check(self) -> Result<Config, ConfigError> {
        let host = u16::try_from(self.host)
            .ok()
            .filter(|host| (1..=HOST_MAX).contains(host))
            .ok_or_else(|| value("host", format!("{} is not between 1 and {HOST_MAX}", self.host)))?;
        let addresses = Addresses {
            me: HostId(host),
            v4: check_subnet("subnet", &self.subnet, true)?,
            v6: check_subnet("subnet6", &self.subnet6, false)?,
        };
        let ports = self.port.into_iter().map(RawPort::check).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&ports)?;
        Ok(Config {
            control: check_socket("control", self.control)?,
            interface: check_interface(self.interface)?,
            mtu: check_mtu(self.mtu)?,
            queues: check_queues(self.queues)?,
            multicast: self.multicast,
            ring_max: check_ring_max(&self.ring_max)?,
            spin_us: check_spin(self.spin_us)?,
            resume: check_resume(&self.resilience, self.resume_ms)?,
            one_way: self.one_way,
            metrics: self.metrics.as_deref().map(check_metrics).transpose()?,
            rules: check_rules(&self.rules, &addresses)?,
            addresses,
            ports,
        })
    }
}

impl RawPort {
    fn check(self) -> Result<PortConfig, ConfigError> {
        let key = |name: &str| format!("port {}: {name}", self.name);
        if self.name.is_empty() || self.name.len() > 32 {
            return Err(value("port: name", "must have 1 to 32 characters".to_owned()));
        }
        if self.kind != "soft" {
            return Err(value(
                &key("kind"),
                format!("`{}` is not known; this release has `soft`", self.kind),
            ));
        }
        let listens = match self.side.as_str() {
            "a" => true,
            "b" => false,
            other => return Err(value(&key("side"), format!("`{other}` is neither `a` (listens) nor `b`"))),
        };
        let window = parse_size(&key("window"), &self.window)?;
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) || window % PAGE != 0 {
            return Err(value(&key("window"), format!("`{}` is not between 16M and 16T", self.window)));
        }
        let mode = u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777);
        let mode =
            mode.ok_or_else(|| value(&key("mode"), format!("`{}` is no octal access mode", self.mode)))?;
        let cable = check_socket(&key("cable"), self.cable.clone())?;
        Ok(PortConfig { name: self.name, cable, listens, window, mode, cut: self.cut })
    }
}

fn value(key: &str, text: String) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), text }
}

/// Reads `64K`, `8M`, `16G` or plain bytes.
fn parse_size(key: &str, text: &str) -> Result<u64, ConfigError> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 64,
    };
    let number: Option<u64> = digits.parse().ok().filter(|_| shift < 64);
    number
        .and_then(|number| number.checked_mul(1 << (shift % 64)))
        .ok_or_else(|| value(key, format!("`{text}` is no size; write for example 64K, 8M or 16G")))
}

fn check_subnet(key: &str, text: &str, v4: bool) -> Result<Network, ConfigError> {
    let network = Network::parse(text).map_err(|text| value(key, text))?;
    let (most, family) = if v4 { (24, "IPv4") } else { (112, "IPv6") };
    if network.address.is_ipv4() != v4 || network.prefix > most {
        return Err(value(
            key,
            format!("`{text}` is no {family} network with a prefix of at most {most} bits"),
        ));
    }
    Ok(network)
}

fn check_socket(key: &str, path: PathBuf) -> Result<PathBuf, ConfigError> {
    let len = path.as_os_str().len();
    if !path.is_absolute() || len > SOCKET_PATH_MAX {
        let text =
            format!("`{}` must be an absolute path of at most {SOCKET_PATH_MAX} bytes", path.display());
        return Err(value(key, text));
    }
    Ok(path)
}

fn check_interface(name: String) -> Result<Option<String>, ConfigError> {
    if name.is_empty() {
        return Ok(None);
    }
    let ok =
        name.len() <= INTERFACE_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !ok {
        let text = format!(
            "`{name}` is no interface name (at most {INTERFACE_MAX} letters and digits; \"\" for none)"
        );
        return Err(value("interface", text));
    }
    Ok(Some(name))
}

fn check_mtu(mtu: i64) -> Result<u16, ConfigError> {
    u16::try_from(mtu)
        .ok()
        .filter(|mtu| (1280..=MTU_MAX).contains(mtu))
        .ok_or_else(|| value("mtu", format!("{mtu} is not between 1280 and {MTU_MAX}")))
}

fn check_queues(queues: i64) -> Result<usize, ConfigError> {
    usize::try_from(queues)
        .ok()
        .filter(|_| (1..=QUEUES_MAX).contains(&queues))
        .ok_or_else(|| value("queues", format!("{queues} is not between 1 and {QUEUES_MAX}")))
}

fn check_ring_max(text: &str) -> Result<u64, ConfigError> {
    let size = parse_size("ring_max", text)?;
    if !ring_max_ok(size) {
        let (min, max) = (RING_MIN >> 10, RING_MAX >> 20);
        return Err(value("ring_max", format!("`{text}` is no power of two between {min}K and {max}M")));
    }
    Ok(size)
}

fn check_spin(spin: i64) -> Result<u32, ConfigError> {
    u32::try_from(spin)
        .ok()
        .filter(|spin| *spin <= 1000)
        .ok_or_else(|| value("spin_us", format!("{spin} is not between 0 and 1000")))
}

fn check_resume(resilience: &str, ms: i64) -> Result<Duration, ConfigError> {
    let wait = u64::try_from(ms).ok().filter(|ms| (100..=600_000).contains(ms));
    let wait = wait.ok_or_else(|| value("resume_ms", format!("{ms} is not between 100 and 600000")))?;
    match resilience {
        "keep" => Ok(Duration::from_millis(wait)),
        "reset" => Ok(Duration::ZERO),
        other => Err(value("resilience", format!("`{other}` is neither `keep` nor `reset`"))),
    }
}

fn check_metrics(text: &str) -> Result<SocketAddr, ConfigError> {
    let address: SocketAddr =
        text.parse().map_err(|_| value("metrics", format!("`{text}` is no address with a port")))?;
    if !address.ip().is_loopback() {
        return Err(value("metrics", format!("`{text}` is not on loopback; use 127.0.0.1:PORT")));
    }
    Ok(address)
}

fn check_rules(lines: &[String], addresses: &Addresses) -> Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    for line in lines {
        rules.extend(rule::parse(line).map_err(|text| value("rules", text))?);
    }
    rules.extend(rule::defaults(addresses));
    if rules.len() > 80 {
        return Err(value(
            "rules",
            format!("{} rules are too many; 80 fit a message, the built-in ones among them", rules.len()),
        ));
    }
    Ok(rules)
}

fn check_distinct(ports: &[PortConfig]) -> Result<(), ConfigError> {
    if ports.len() > PORTS_MAX {
        return Err(value("port", format!("{} ports; a host has at most {PORTS_MAX}", ports.len())));
    }
    let names: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    if names.len() < ports.len() {
        return Err(value("port: name", "two ports have one name".to_owned()));
    }
    let ends: BTreeSet<(&Path, bool)> =
        ports.iter().map(|port| (port.cable.as_path(), port.listens)).collect();
    if ends.len() < ports.len() {
        return Err(value("port: cable", "two ports are the same end of one cable".to_owned()));
    }
    Ok(())
}

/// The fabric addresses of this host, for `Welcome`.
pub fn own_addresses(config: &Config) -> Vec<IpAddr> {
    config.addresses.of(config.addresses.me).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = Config::parse("host = 1").unwrap();
        assert_eq!(config.control, Path::new("/run/crosslane/crosslaned.sock"));
        assert_eq!((config.interface.as_deref(), config.mtu, config.spin_us), (Some("xl0"), 65520, 50));
        assert_eq!((config.queues, config.multicast), (2, true));
        assert_eq!((config.ring_max, config.metrics, config.ports.len()), (8 << 20, None, 0));
        assert_eq!(own_addresses(&config).len(), 2);
    }

    #[test]
    fn a_port_is_read() {
        let text =
            "host = 2\n[[port]]\nname = \"right\"\ncable = \"/run/c.sock\"\nside = \"a\"\nwindow = \"64M\"";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.ports[0].listens, config.ports[0].window, config.ports[0].mode),
            (true, 64 << 20, 0o600)
        );
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
            ("host = 1\nring_max = \"3M\"", "ring_max"),
            ("host = 1\nring_max = \"99999999999T\"", "size"),
            ("host = 1\nmetrics = \"10.0.0.1:80\"", "loopback"),
            ("host = 1\nsubnet = \"10.0.0.0/30\"", "subnet"),
            ("host = 1\ncontrol = \"x\"", "absolute"),
            ("host = 1\nrules = [\"x\"]", "rule"),
            ("host = 1\ninterface = \"a b\"", "interface"),
            (&format!("host = 1\n{port}{port}"), "one name"),
            (&format!("host = 1\n{port}window = \"1M\""), "window"),
            (&format!("host = 1\n{port}mode = \"9\""), "mode"),
            (&format!("host = 1\n{}", port.replace("\"a\"", "\"c\"")), "side"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
