//! Wakers of a neighbour's waiters, as far as the daemon has found them.

use crosslane_shm::Outbound;
use crosslane_shm::wake::FarWaker;
use crosslane_wire::WaiterId;
use std::collections::VecDeque;

/// Most waiters of one leg without a known waker: a neighbour that names waiters which do not exist would otherwise keep
/// the daemon busy with lookups.
const UNKNOWN_WAITERS_MAX: usize = 64;
/// Most wakers that are kept for one leg.
const KEPT: usize = 64;

/// The waiters of one leg.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    found: VecDeque<(WaiterId, FarWaker)>,
    /// Waiters that only daemons can wake.
    far: Vec<WaiterId>,
}

impl Wakers {
    /// Wakes a waiter, behind what was stored to the neighbour by `outbound`; `false` if the daemon must.
    pub(super) fn wake(&mut self, waiter: WaiterId, outbound: &Outbound) -> bool {
        if let Some(at) = self.found.iter().position(|(known, _)| *known == waiter) {
            match &self.found[at].1 {
                FarWaker::Queued(number) => {
                    outbound.wake(*number);
                    return true;
                }
                FarWaker::Own(waker) if waker.wake() => return true,
                FarWaker::Own(_) => {}
            }
            // The waiter is gone; if a waiter of this number wants a wake again, it is another one.
            self.found.remove(at);
        }
        if self.far.contains(&waiter) {
            return false;
        }
        let patient = self.far.len() < UNKNOWN_WAITERS_MAX;
        if patient {
            self.far.push(waiter);
        }
        !patient
    }

    /// The daemon's answer to the lookup of a waker. An answer without a lookup changes nothing.
    pub(super) fn answer(&mut self, waiter: WaiterId, waker: Option<FarWaker>) {
        let Some(at) = self.far.iter().position(|known| *known == waiter) else { return };
        let Some(waker) = waker else { return };
        self.far.swap_remove(at);
        if self.found.len() == KEPT {
            self.found.pop_front();
        }
        self.found.push_back((waiter, waker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::mem::new_segment;
    use crosslane_shm::wake::Receiver;

    /// Of a neighbour whose memory is this machine's: wakes do not go by it.
    fn outbound() -> Outbound {
        Outbound::sealed(new_segment("test", 4096).unwrap(), 4096).unwrap()
    }

    #[test]
    fn waiter_is_rung_by_the_daemon_until_it_is_found() {
        let (mut wakers, sleeper, outbound) = (Wakers::default(), Receiver::new().unwrap(), outbound());
        assert!(!wakers.wake(WaiterId(7), &outbound));
        wakers.answer(WaiterId(7), None);
        assert!(!wakers.wake(WaiterId(7), &outbound));
        wakers.answer(WaiterId(7), Some(FarWaker::Own(sleeper.waker().unwrap())));
        assert!(wakers.wake(WaiterId(7), &outbound));
        assert!(sleeper.clear());
        drop(sleeper);
        assert!(
            !wakers.wake(WaiterId(7), &outbound) && wakers.found.is_empty(),
            "one that is gone is forgotten"
        );
    }

    #[test]
    fn patience_with_waiters_that_do_not_exist_ends_and_those_that_do_do_not_use_it_up() {
        let (mut wakers, sleeper, outbound) = (Wakers::default(), Receiver::new().unwrap(), outbound());
        for number in 0..1000 {
            assert!(!wakers.wake(WaiterId(number), &outbound));
            wakers.answer(WaiterId(number), Some(FarWaker::Own(sleeper.waker().unwrap())));
        }
        assert_eq!(wakers.found.len(), KEPT);
        let asked = (1000..100_000).filter(|&number| !wakers.wake(WaiterId(number), &outbound)).count();
        assert_eq!(asked, UNKNOWN_WAITERS_MAX);
    }
}
