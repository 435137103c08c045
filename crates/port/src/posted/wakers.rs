//! Wakers of the peer's sleepers, which the lander rings behind the stores that came before each wake.

use crosslane_shm::wake::Waker;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most wakers that are kept; if there are more, the daemons forward wakes. Each keeps a descriptor of the daemon's.
const KEPT: usize = 256;

/// Wakers by numbers that cannot be guessed: a program rings by those only which it was given. Shared by port and lander.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_number: HashMap<u64, Arc<Waker>>,
    /// Numbers by the word of the wake event: all who may wake one sleeper do it by one waker.
    by_word: HashMap<u64, u64>,
}

impl Wakers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a waker; its number, or `None` if there is no room.
    pub(super) fn keep(&self, waker: Waker) -> Option<u64> {
        let mut known = self.known();
        if let Some(number) = known.by_word.get(&waker.word()) {
            return Some(*number);
        }
        if known.by_number.len() >= KEPT {
            known.drop_dead();
        }
        if known.by_number.len() >= KEPT {
            return None;
        }
        let number = random()?;
        known.by_word.insert(waker.word(), number);
        known.by_number.insert(number, Arc::new(waker));
        Some(number)
    }

    /// Wakes the sleepers with these numbers, each once. Writers may name numbers that were never given.
    pub(super) fn wake(&self, mut numbers: Vec<u64>) {
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let waker = self.known().by_number.get(&number).cloned();
            if waker.is_some_and(|waker| !waker.wake()) {
                self.known().forget(number);
            }
        }
    }

    /// The peer is gone, with all its sleepers.
    pub(super) fn clear(&self) {
        *self.known() = Known::default();
    }
}

impl Known {
    fn forget(&mut self, number: u64) {
        if let Some(waker) = self.by_number.remove(&number) {
            self.by_word.remove(&waker.word());
        }
    }

    /// Wakes all sleepers, which find nothing, and forgets those that are gone.
    fn drop_dead(&mut self) {
        let dead = self.by_number.iter().filter(|(_, waker)| !waker.wake());
        let dead: Vec<u64> = dead.map(|(number, _)| *number).collect();
        dead.into_iter().for_each(|number| self.forget(number));
    }
}

fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::wake::Receiver;

    #[test]
    fn waker_is_rung_by_its_number_only_and_once_for_each_batch() {
        let (wakers, sleeper) = (Wakers::default(), Receiver::new().unwrap());
        let number = wakers.keep(sleeper.waker().unwrap()).unwrap();
        assert_eq!(wakers.keep(sleeper.waker().unwrap()), Some(number), "one is enough");
        wakers.wake(vec![number.wrapping_add(1), 0]);
        assert!(!sleeper.clear());
        wakers.wake(vec![number; 1000]);
        assert_eq!(std::iter::from_fn(|| rustix::io::read(&sleeper, &mut [0; 16]).ok()).count(), 1);
        wakers.clear();
        wakers.wake(vec![number]);
        assert!(!sleeper.clear());
    }

    #[test]
    fn wakers_of_sleepers_that_are_gone_make_room() {
        let wakers = Wakers::default();
        let stays = Receiver::new().unwrap();
        let number = wakers.keep(stays.waker().unwrap()).unwrap();
        for _ in 0..KEPT + 10 {
            assert!(wakers.keep(Receiver::new().unwrap().waker().unwrap()).is_some());
        }
        wakers.wake(vec![number]);
        assert!(stays.clear());
        let all: Vec<_> = (0..KEPT).map(|_| Receiver::new().unwrap()).collect();
        let kept = all.iter().filter(|sleeper| wakers.keep(sleeper.waker().unwrap()).is_some()).count();
        assert!(kept < KEPT, "{kept}: there is no room for one more where all live");
    }
}
