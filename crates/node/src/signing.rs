//! Whether link states are signed and checked here, and what is said of those that were not believed.

use crate::keys::KeyRing;
use crate::seldom::Seldom;
use crosslane_fabric::links::AllRefused;
use std::time::Duration;

/// What is known of the keys in use.
#[derive(Debug, Default)]
pub struct Signing {
    signs: bool,
    checks: bool,
    /// Link states that were not believed, as far as that was said.
    refused: u64,
    said: Seldom,
}

impl Signing {
    /// These keys are in use from now on; what they refuse is counted anew.
    pub fn begin(&mut self, keys: &KeyRing) {
        (self.signs, self.checks, self.refused) = (keys.signs(), keys.checks(), 0);
    }

    /// Whether our link states are signed, and whether we check those of others.
    pub fn both(&self) -> (bool, bool) {
        (self.signs, self.checks)
    }

    /// Says now and then that link states were not believed, if there were more of them.
    pub fn note_refused(&mut self, refused: &AllRefused, now: Duration) {
        let count = refused.values().map(|refused| refused.count).sum();
        let last = refused.iter().max_by_key(|(_, refused)| refused.count);
        if count > self.refused
            && let Some((host, refused)) = last
            && self.said.take(now).is_some()
        {
            tracing::warn!(%host, why = %refused.why, count, "link states in that host's name are not believed");
            self.refused = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_fabric::links::{Distrust, Refused};
    use crosslane_wire::HostId;

    #[test]
    fn refused_link_states_are_said_seldom_and_anew_with_other_keys() {
        let mut signing = Signing::default();
        let refused = |count| AllRefused::from([(HostId(7), Refused { count, why: Distrust::Forged })]);
        let mut said = |count, seconds| {
            signing.note_refused(&refused(count), Duration::from_secs(seconds));
            signing.refused
        };
        assert_eq!([said(1, 0), said(2, 1), said(2, 100), said(2, 200)], [1, 1, 2, 2]);
        signing.begin(&KeyRing::default());
        assert_eq!((signing.refused, signing.both()), (0, (false, false)));
    }
}
