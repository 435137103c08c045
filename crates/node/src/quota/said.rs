//! What is logged at most once in a while.

use super::{Kind, Payer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause between two lines about one payer and one kind.
const PAUSE: Duration = Duration::from_secs(60);
/// Most that is remembered.
const REMEMBERED_MAX: usize = 256;

/// When what was said last.
#[derive(Debug, Default)]
pub struct Said {
    at: BTreeMap<(Payer, Kind), Duration>,
}

impl Said {
    /// Whether it is to be said now.
    pub fn is_due(&mut self, payer: Payer, kind: Kind, now: Duration) -> bool {
        self.at.retain(|_, at| *at + PAUSE > now);
        if self.at.contains_key(&(payer, kind)) {
            return false;
        }
        // The log bounds what a crowd of users can have said. It must not keep others from being named.
        if self.at.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.at.iter().min_by_key(|(_, at)| **at).map(|(whose, _)| *whose)
        {
            self.at.remove(&oldest);
        }
        self.at.insert((payer, kind), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_a_while_for_each() {
        let mut said = Said::default();
        let mut due =
            |user, seconds| said.is_due(Payer::User(user), Kind::Sessions, Duration::from_secs(seconds));
        assert_eq!(
            [due(1, 0), due(1, 59), due(2, 59), due(1, 60), due(1, 61)],
            [true, false, true, true, false]
        );
        assert_eq!((1000..9000).filter(|user| due(*user, 200)).count(), 8000, "a crowd hides nobody");
        assert_eq!(said.at.len(), REMEMBERED_MAX);
    }
}
