//! SIGHUP: the rules of the configuration file are read again, while everything goes on.

use crate::config::Config;
use crate::host::Host;
use crate::rule;
use crosslane_wire::local::Rule;
use std::path::Path;

impl Host {
    /// Takes the rules out of `file`, and logs what changed. A file that is not good changes nothing. Programs that
    /// have met the daemon keep the rules that it told them for what they connect to.
    pub fn reload(&mut self, file: &Path) {
        let new = match Config::read(file) {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%error, "the configuration is not good: the rules stay as they were");
                return;
            }
        };
        if (Config { rules: Vec::new(), ..new.clone() })
            != (Config { rules: Vec::new(), ..self.config.clone() })
        {
            tracing::warn!(
                "only rules are read again: restart the daemon for what else has changed in the file"
            );
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
}

/// Those of `rules` that are not among `others`.
fn missing<'a>(rules: &'a [Rule], others: &'a [Rule]) -> impl Iterator<Item = &'a Rule> {
    rules.iter().filter(|rule| !others.contains(rule))
}
