//! The table `[quota]`: what users and neighbours may have.

use super::ConfigError;
use super::check::{parse_size, value};
use crate::quota::{Limits, Settings};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Least that `moves` and `root` together must leave to users, percent.
const USERS_LEAST: i64 = 10;
/// Permitted requests per second of a user.
const REQUESTS: std::ops::RangeInclusive<u64> = 100..=10_000_000;

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuota {
    share: Option<i64>,
    neighbour_share: Option<i64>,
    moves: Option<i64>,
    root: Option<i64>,
    sessions: Option<i64>,
    listeners: Option<i64>,
    descriptors: Option<i64>,
    circuits: Option<i64>,
    pending: Option<i64>,
    memory: Option<String>,
    window: Option<String>,
    requests: Option<i64>,
    #[serde(default)]
    user: BTreeMap<String, RawLimits>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    sessions: Option<i64>,
    listeners: Option<i64>,
    descriptors: Option<i64>,
    circuits: Option<i64>,
    pending: Option<i64>,
    memory: Option<String>,
    window: Option<String>,
    requests: Option<i64>,
}

impl RawQuota {
    pub(super) fn check(self) -> Result<Settings, ConfigError> {
        let defaults = Settings::default();
        let percent =
            |key: &str, given: Option<i64>, default: u64, range| check_percent(key, given, default, range);
        let share = percent("share", self.share, defaults.share, 1..=95)?;
        let neighbour_share =
            percent("neighbour_share", self.neighbour_share, defaults.neighbour_share.max(share), 1..=99)?;
        let moves = percent("moves", self.moves, defaults.moves, 0..=90)?;
        let root = percent("root", self.root, defaults.root, 0..=90)?;
        if moves + root > 100 - USERS_LEAST.unsigned_abs() {
            let text = format!("`moves` and `root` together leave less than {USERS_LEAST} percent to users");
            return Err(value("quota", text));
        }
        let user = self.limits().check("quota", Limits { memory: machine_memory(), ..defaults.user })?;
        let mut users = BTreeMap::new();
        for (name, own) in self.user {
            let key = format!("quota.user.{name}");
            let uid = uid_of(&name).ok_or_else(|| {
                value(&key, "is neither the number of a user nor a name in /etc/passwd".to_owned())
            })?;
            users.insert(uid, own.check(&key, user)?);
        }
        Ok(Settings { user, users, share, neighbour_share, moves, root, ..defaults })
    }

    fn limits(&self) -> RawLimits {
        RawLimits {
            sessions: self.sessions,
            listeners: self.listeners,
            descriptors: self.descriptors,
            circuits: self.circuits,
            pending: self.pending,
            memory: self.memory.clone(),
            window: self.window.clone(),
            requests: self.requests,
        }
    }
}

impl RawLimits {
    /// Keys that are not given take their value from `otherwise`.
    fn check(self, table: &str, otherwise: Limits) -> Result<Limits, ConfigError> {
        let count = |name: &str, given: Option<i64>, otherwise: u64| match given {
            None => Ok(otherwise),
            Some(given) => u64::try_from(given)
                .map_err(|_| value(&format!("{table}: {name}"), format!("{given} is less than nothing"))),
        };
        let size = |name: &str, given: Option<String>, otherwise: u64| {
            given.map_or(Ok(otherwise), |text| parse_size(&format!("{table}: {name}"), &text))
        };
        Ok(Limits {
            sessions: count("sessions", self.sessions, otherwise.sessions)?,
            listeners: count("listeners", self.listeners, otherwise.listeners)?,
            descriptors: count("descriptors", self.descriptors, otherwise.descriptors)?,
            circuits: count("circuits", self.circuits, otherwise.circuits)?,
            pending: count("pending", self.pending, otherwise.pending)?,
            memory: size("memory", self.memory, otherwise.memory)?,
            window: size("window", self.window, otherwise.window)?,
            requests: check_requests(table, self.requests, otherwise.requests)?,
        })
    }
}

fn check_requests(table: &str, given: Option<i64>, otherwise: u64) -> Result<u64, ConfigError> {
    let Some(given) = given else { return Ok(otherwise) };
    let outside = || {
        let text = format!("{given} is not between {} and {} a second", REQUESTS.start(), REQUESTS.end());
        value(&format!("{table}: requests"), text)
    };
    u64::try_from(given).ok().filter(|rate| REQUESTS.contains(rate)).ok_or_else(outside)
}

fn check_percent(
    key: &str,
    given: Option<i64>,
    default: u64,
    range: std::ops::RangeInclusive<i64>,
) -> Result<u64, ConfigError> {
    let Some(given) = given else { return Ok(default) };
    let outside = || {
        let text = format!("{given} is not between {} and {} percent", range.start(), range.end());
        value(&format!("quota: {key}"), text)
    };
    u64::try_from(given).ok().filter(|_| range.contains(&given)).ok_or_else(outside)
}

/// A user's number: `name` is a number, or is looked up in `/etc/passwd`.
fn uid_of(name: &str) -> Option<u32> {
    if let Ok(uid) = name.parse() {
        return Some(uid);
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.nth(1)?.parse().ok())?)
}

/// Bytes of memory of this machine; no bound if the kernel does not say.
fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn quota(text: &str) -> Result<Settings, String> {
        Config::parse(&format!("host = 1\n{text}"))
            .map(|config| config.quota)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn quotas_are_there_without_the_table_all_the_same() {
        let settings = quota("").unwrap();
        assert_eq!((settings.share, settings.moves, settings.root), (75, 10, 5));
        assert!((1 << 20..u64::MAX).contains(&settings.user.memory));
        assert_eq!(settings, quota("[quota]").unwrap());
    }

    #[test]
    fn users_have_limits_of_their_own_by_number_or_name() {
        let text = "[quota]\nsessions = 10\nmemory = \"1G\"\n[quota.user.1234]\ncircuits = 7\n[quota.user.root]\nwindow = \"64M\"";
        let settings = quota(text).unwrap();
        let own = settings.users[&1234];
        assert_eq!((own.sessions, own.circuits, own.memory), (10, 7, 1 << 30));
        assert_eq!(settings.users[&0].window, 64 << 20);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("[quota]\nshare = 100", "quota: share"),
            ("[quota]\nsessions = -1", "quota: sessions"),
            ("[quota]\nmoves = 80\nroot = 20", "leave less"),
            ("[quota]\nmemory = \"much\"", "quota: memory"),
            ("[quota]\nrequests = 5", "quota: requests"),
            ("[quota]\ncolour = 3", "colour"),
            ("[quota.user.\"no such user\"]\nsessions = 1", "no such user"),
            ("[quota.user.5]\nlisteners = -4", "quota.user.5: listeners"),
        ] {
            let error = quota(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
