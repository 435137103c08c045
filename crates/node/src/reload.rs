//! SIGHUP: the rules and quotas of the configuration file, and the keys, are read again, while everything goes on.

use crate::config::Config;
use crate::host::Host;
use crate::keys::KeyRing;
use crate::rule;
use crosslane_wire::local::Rule;
use std::path::Path;

impl Host {
    /// Takes the rules and quotas out of `file`, and the keys out of the files that it names, and logs what changed. A file that
    /// is not good changes nothing. Programs that have met the daemon keep the rules that it told them for what they connect to,
    /// and users keep what they have, also if it is more than they may have now.
    pub fn reload(&mut self, file: &Path) {
        let new = match Config::read(file) {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%error, "the configuration is not good: rules and quotas stay as they were");
                return;
            }
        };
        let quota = &self.config.quota;
        let others = |config: &Config| Config {
            rules: Vec::new(),
            key: None,
            keys: None,
            quota: quota.clone(),
            ..config.clone()
        };
        if others(&new) != others(&self.config) {
            tracing::warn!(
                "only rules, quotas and keys are read again: restart the daemon for what else has changed in the file"
            );
        }
        self.reload_keys(&new);
        if new.quota != self.config.quota {
            tracing::info!("quotas were read again, and changed");
            self.accounts.use_settings(new.quota.clone());
            self.config.quota = new.quota;
        }
        for (what, rules) in [
            ("rule is gone", missing(&self.config.rules, &new.rules)),
            ("rule is new", missing(&new.rules, &self.config.rules)),
        ] {
            for rule in rules {
                tracing::info!(rule = %rule::text(rule), "{what}");
            }
        }
        let changed = new.rules != self.config.rules;
        tracing::info!(changed, count = new.rules.len(), "rules were read again");
        self.config.rules = new.rules;
    }

    fn reload_keys(&mut self, new: &Config) {
        match KeyRing::load(new) {
            Ok(keys) if keys.signs() || keys.checks() || self.signing.both() != (false, false) => {
                tracing::info!(signs = keys.signs(), checks = keys.checks(), "keys were read again");
                (self.config.key, self.config.keys) = (new.key.clone(), new.keys.clone());
                self.use_keys(keys);
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the keys are not good: they stay as they were"),
        }
    }
}

/// Those of `rules` that are not among `others`.
fn missing<'a>(rules: &'a [Rule], others: &'a [Rule]) -> impl Iterator<Item = &'a Rule> {
    rules.iter().filter(|rule| !others.contains(rule))
}
