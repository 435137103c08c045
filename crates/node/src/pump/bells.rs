//! The wake events of a neighbour's waiters, as far as the daemon has found them.

use crate::eventfd;
use crosslane_wire::WaiterId;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// Waiters of one leg whose wake event is not known, at most: one that names waiters which do not exist would keep the
/// daemon busy with questions.
const PATIENCE: usize = 64;
/// Wake events that are kept of one leg, at most.
const KEPT: usize = 64;

/// The waiters of one leg.
#[derive(Debug, Default)]
pub(super) struct Bells {
    found: VecDeque<(WaiterId, OwnedFd)>,
    /// Rung through daemons.
    far: Vec<WaiterId>,
}

impl Bells {
    /// Rings a waiter; `false` if the daemon must.
    pub(super) fn ring(&mut self, waiter: WaiterId) -> bool {
        if let Some((_, bell)) = self.found.iter().find(|(known, _)| *known == waiter) {
            eventfd::ring(bell.as_fd());
            return true;
        }
        if self.far.contains(&waiter) {
            return false;
        }
        let patient = self.far.len() < PATIENCE;
        if patient {
            self.far.push(waiter);
        }
        !patient
    }

    /// The daemon has looked for a waiter's wake event. An answer that nobody asked for changes nothing.
    pub(super) fn answer(&mut self, waiter: WaiterId, bell: Option<OwnedFd>) {
        let Some(at) = self.far.iter().position(|known| *known == waiter) else { return };
        let Some(bell) = bell else { return };
        self.far.swap_remove(at);
        if self.found.len() == KEPT {
            self.found.pop_front();
        }
        self.found.push_back((waiter, bell));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_rung_by_the_daemon_until_it_is_found() {
        let (mut bells, bell) = (Bells::default(), eventfd::new().unwrap());
        assert!(!bells.ring(WaiterId(7)));
        bells.answer(WaiterId(7), None);
        assert!(!bells.ring(WaiterId(7)));
        bells.answer(WaiterId(7), Some(bell.try_clone().unwrap()));
        assert!(bells.ring(WaiterId(7)));
        assert!(eventfd::drain(bell.as_fd()));
    }

    #[test]
    fn patience_with_waiters_that_do_not_exist_ends_and_those_that_do_do_not_use_it_up() {
        let mut bells = Bells::default();
        for number in 0..1000 {
            assert!(!bells.ring(WaiterId(number)));
            bells.answer(WaiterId(number), Some(eventfd::new().unwrap()));
        }
        assert_eq!(bells.found.len(), KEPT);
        let asked = (1000..100_000).filter(|&number| !bells.ring(WaiterId(number))).count();
        assert_eq!(asked, PATIENCE);
    }
}
