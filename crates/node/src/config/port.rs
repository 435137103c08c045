//! The keys of a port in the configuration file, and their permitted values.

use super::check::{check_socket, parse_size, value};
use super::{ConfigError, WINDOW_MAX, WINDOW_MIN};
use crate::port::{PortConfig, PortKind};
use crosslane_port::kernel::POSTED_NS;
use crosslane_port::posted::{DELAY_MAX, Stores, Timing};
use crosslane_wire::segment::PAGE;
use serde::Deserialize;
use std::path::PathBuf;

/// Bounds of a store's delay if none are given, ns.
const DELAY: (u32, u32) = (0, 10_000);

/// A port, or what joins programs inside the host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKind {
    #[serde(default = "default_kind")]
    kind: String,
    delay_us: Option<Delay>,
    link: Option<String>,
    seed: Option<i64>,
    combine: Option<bool>,
    #[serde(default)]
    pub(super) stripe: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPort {
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
    delay_us: Option<Delay>,
    link: Option<String>,
    seed: Option<i64>,
    combine: Option<bool>,
}

/// One delay for all stores, or its bounds.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Delay {
    Same(i64),
    Bounds([i64; 2]),
}

fn default_kind() -> String {
    "soft".to_owned()
}
fn default_window() -> String {
    "32G".to_owned()
}
fn default_mode() -> String {
    "0600".to_owned()
}

impl Default for RawKind {
    fn default() -> Self {
        Self { kind: default_kind(), delay_us: None, link: None, seed: None, combine: None, stripe: false }
    }
}

impl RawPort {
    pub(super) fn check(self) -> Result<PortConfig, ConfigError> {
        let key = |name: &str| self.key(name);
        if self.name.is_empty() || self.name.len() > 32 {
            return Err(value("port: name", "must have 1 to 32 characters".to_owned()));
        }
        let raw = RawKind {
            kind: self.kind.clone(),
            delay_us: self.delay_us,
            link: self.link.clone(),
            seed: self.seed,
            combine: self.combine,
            stripe: false,
        };
        let kind = raw.check(&format!("port {}", self.name))?;
        let listens = match self.side.as_str() {
            "a" => true,
            "b" => false,
            other => return Err(value(&key("side"), format!("`{other}` is neither `a` (listens) nor `b`"))),
        };
        let window = parse_size(&key("window"), &self.window)?;
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) || window % PAGE != 0 {
            return Err(value(&key("window"), format!("`{}` is not between 896K and 16T", self.window)));
        }
        let mode = u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777);
        let mode =
            mode.ok_or_else(|| value(&key("mode"), format!("`{}` is no octal access mode", self.mode)))?;
        let cable = check_socket(&key("cable"), self.cable.clone())?;
        Ok(PortConfig { name: self.name, kind, cable, listens, window, mode, cut: self.cut })
    }

    fn key(&self, name: &str) -> String {
        format!("port {}: {name}", self.name)
    }
}

impl RawKind {
    /// `of`: the name of the port, for errors.
    pub(super) fn check(&self, of: &str) -> Result<PortKind, ConfigError> {
        match self.kind.as_str() {
            "soft" => self.check_unqueued(of, self.delay_us).map(|()| PortKind::Soft),
            "ntb" => self.check_bridge(of),
            "posted" => self.check_posted(of),
            other => {
                let text = format!("`{other}` is not known; this release has `soft`, `posted` and `ntb`");
                Err(value(&format!("{of}: kind"), text))
            }
        }
    }

    /// As [`Self::check`], of what joins programs of one host.
    pub(super) fn check_inside(&self) -> Result<PortKind, ConfigError> {
        if self.link.is_some() {
            return Err(value("inside: link", "there is no cable inside a host".to_owned()));
        }
        match self.check("inside")? {
            PortKind::Ntb { .. } => {
                Err(value("inside: kind", "`ntb` joins two hosts; `soft` or `posted`".to_owned()))
            }
            kind => Ok(kind),
        }
    }

    /// That no key is given that only posted ports have.
    fn check_unqueued(&self, of: &str, delay: Option<Delay>) -> Result<(), ConfigError> {
        let given = [
            ("delay_us", delay.is_some()),
            ("link", self.link.is_some()),
            ("seed", self.seed.is_some()),
            ("combine", self.combine.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(value(&format!("{of}: {name}"), format!("kind `{}` does not have this key", self.kind)))
            }
            None => Ok(()),
        }
    }

    fn check_bridge(&self, of: &str) -> Result<PortKind, ConfigError> {
        self.check_unqueued(of, None)?;
        let posted_ns = match self.delay_us {
            None => POSTED_NS,
            Some(delay @ Delay::Same(_)) => Self::check_delay(of, delay)?.1,
            Some(Delay::Bounds(_)) => {
                return Err(value(&format!("{of}: delay_us"), "one number, for `ntb`".to_owned()));
            }
        };
        Ok(PortKind::Ntb { posted_ns })
    }

    fn check_posted(&self, of: &str) -> Result<PortKind, ConfigError> {
        let timing = self.check_timing(of)?;
        let seed = self.seed.unwrap_or(0);
        let seed = u64::try_from(seed)
            .map_err(|_| value(&format!("{of}: seed"), format!("{seed} is not a number from 0 on")))?;
        Ok(PortKind::Posted(Stores { timing, seed, combine: self.combine.unwrap_or(true) }))
    }

    fn check_timing(&self, of: &str) -> Result<Timing, ConfigError> {
        let drawn = |(least, most)| Timing::Drawn(least, most);
        let key = format!("{of}: link");
        match (&self.link, self.delay_us) {
            (None, None) => Ok(drawn(DELAY)),
            (None, Some(delay)) => Self::check_delay(of, delay).map(drawn),
            (Some(link), None) => {
                link.parse().map(Timing::Cable).map_err(|error| value(&key, format!("{error}")))
            }
            (Some(_), Some(_)) => {
                Err(value(&key, "not with `delay_us`: either says how long a store takes".to_owned()))
            }
        }
    }

    fn check_delay(of: &str, delay: Delay) -> Result<(u32, u32), ConfigError> {
        let [least, most] = match delay {
            Delay::Same(delay) => [delay; 2],
            Delay::Bounds(bounds) => bounds,
        };
        let ns = |us: i64| {
            let ns = u32::try_from(us).ok().and_then(|us| us.checked_mul(1000));
            ns.filter(|ns| *ns <= DELAY_MAX)
        };
        match (ns(least), ns(most)) {
            (Some(least), Some(most)) if least <= most => Ok((least, most)),
            _ => {
                let most_us = DELAY_MAX / 1000;
                let text = format!(
                    "{least} to {most}; write one number from 0 to {most_us}, or two as [least, most]"
                );
                Err(value(&format!("{of}: delay_us"), text))
            }
        }
    }
}
