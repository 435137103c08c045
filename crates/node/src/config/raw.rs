//! The configuration file as it is written.

use super::check::{
    check_all_ways, check_distinct, check_file, check_group, check_interface, check_metrics, check_mtu,
    check_networks, check_offload_copy, check_offload_cpus, check_queues, check_resume, check_ring_max,
    check_rules, check_socket, check_spin, check_subnet, parse_size, value,
};
use super::port::{RawKind, RawPort};
use super::quota::RawQuota;
use super::{Config, ConfigError};
use crate::address::Addresses;
use crate::offload::Settings;
use crate::port::{PortConfig, PortKind};
use crosslane_fabric::HOST_MAX;
use crosslane_port::posted::{Stores, Timing};
use crosslane_wire::HostId;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    host: i64,
    #[serde(default = "default_subnet")]
    subnet: String,
    #[serde(default = "default_subnet6")]
    subnet6: String,
    #[serde(default)]
    networks: Vec<String>,
    key: Option<PathBuf>,
    keys: Option<PathBuf>,
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
    spin_us: Option<i64>,
    #[serde(default = "default_resilience")]
    resilience: String,
    #[serde(default = "default_resume_ms")]
    resume_ms: i64,
    #[serde(default)]
    one_way: bool,
    #[serde(default)]
    all_ways: bool,
    #[serde(default)]
    stripe: bool,
    #[serde(default)]
    pump: bool,
    #[serde(default)]
    offload: bool,
    offload_cpus: Option<Vec<i64>>,
    #[serde(default = "default_offload_copy")]
    offload_copy: String,
    #[serde(default = "default_offload_least")]
    offload_least: String,
    metrics: Option<String>,
    operators: Option<String>,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    quota: RawQuota,
    #[serde(default)]
    inside: RawKind,
    #[serde(default)]
    port: Vec<RawPort>,
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
fn default_offload_copy() -> String {
    "auto".to_owned()
}
fn default_offload_least() -> String {
    "768K".to_owned()
}
/// Where stores land as on a timed cable, a thread of this machine brings what is waited for, and needs the processor that a spin would take.
fn default_spin_us(ports: &[PortConfig]) -> i64 {
    let is_timed =
        |port: &PortConfig| matches!(port.kind, PortKind::Posted(Stores { timing: Timing::Cable(_), .. }));
    if ports.iter().any(is_timed) { 0 } else { 50 }
}

impl RawConfig {
    pub(super) fn check(self) -> Result<Config, ConfigError> {
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
            key: check_file("key", self.key)?,
            keys: check_file("keys", self.keys)?,
            networks: check_networks(&self.networks, &addresses)?,
            control: check_socket("control", self.control)?,
            interface: check_interface(self.interface)?,
            mtu: check_mtu(self.mtu)?,
            queues: check_queues(self.queues)?,
            multicast: self.multicast,
            ring_max: check_ring_max(&self.ring_max)?,
            spin_us: check_spin(self.spin_us.unwrap_or_else(|| default_spin_us(&ports)))?,
            resume: check_resume(&self.resilience, self.resume_ms)?,
            one_way: self.one_way,
            all_ways: check_all_ways(self.all_ways, self.one_way)?,
            pump: self.pump,
            offload: Settings {
                processors: self.offload_cpus.as_deref().map(check_offload_cpus).transpose()?,
                copy: check_offload_copy(&self.offload_copy)?,
                least: parse_size("offload_least", &self.offload_least)?,
            },
            operators: self.operators.as_deref().map(check_group).transpose()?,
            metrics: self.metrics.as_deref().map(check_metrics).transpose()?,
            quota: self.quota.check()?,
            rules: check_rules(&self.rules, &addresses, (self.offload, self.stripe))?,
            inside: self.inside.check_inside()?,
            inside_stripes: self.inside.stripe,
            addresses,
            ports,
        })
    }
}
