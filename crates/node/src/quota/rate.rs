//! How many requests a second each user is served: who asks for more is not read from until his time has come.
//!
//! ```text
//!   due:  |--------|-----------------|        each request moves its user's `due` on by what it costs;
//!        now      due           now + BURST   at now + BURST or beyond he rests
//! ```
//! What is asked for at one time is bounded in each turn of the engine, too: the others' requests come between.

use crate::session_id::SessionId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How far ahead of his rate a user may be, after a pause.
const BURST: Duration = Duration::from_secs(2);
/// Who rests does so until he has this much of his rate: not for each request by itself.
const REST: Duration = Duration::from_millis(5);
/// Sessions of one user that are woken in one turn: many may rest, and few of them have a turn anyway.
const WAKES: usize = 16;
/// What one user is served in a turn of the engine, in requests of the smallest kind.
const TURN: u64 = 128;

/// What a request costs that has the daemon look through all that it has, besides its answer's bytes.
pub const HEAVY: u64 = 100;
/// Bytes of a text that cost as much as a request.
pub const TEXT: u64 = 256;

#[derive(Debug, Default)]
struct User {
    /// When all that he was served is paid off.
    due: Duration,
    /// What he was served in this turn.
    turn: u64,
    /// His sessions that are not read from, the next one to be first.
    resting: VecDeque<SessionId>,
}

/// What becomes of a session that has requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// It is served.
    Serve,
    /// It is served in the next turn.
    Wait,
    /// It is not read from until [`Rates::wake`] names it.
    Rest,
}

/// All users that were served lately.
#[derive(Debug, Default)]
pub struct Rates {
    users: BTreeMap<u32, User>,
}

impl Rates {
    /// A turn of the engine begins.
    pub fn begin_turn(&mut self, now: Duration) {
        self.users.retain(|_, user| {
            user.turn = 0;
            user.due > now || !user.resting.is_empty()
        });
    }

    /// Whether a session of the user may be served now. One that shall rest is kept here.
    pub fn may(&mut self, uid: u32, session: SessionId, now: Duration) -> May {
        let Some(user) = self.users.get_mut(&uid) else { return May::Serve };
        if user.due >= now + BURST {
            user.resting.push_back(session);
            May::Rest
        } else if user.turn >= TURN {
            May::Wait
        } else {
            May::Serve
        }
    }

    /// The user was served something of this cost, and may be served `rate` in a second; `None`: as much as he wants.
    pub fn spend(&mut self, uid: u32, cost: u64, rate: Option<u64>, now: Duration) {
        let user = self.users.entry(uid).or_default();
        user.turn = user.turn.saturating_add(cost);
        if let Some(rate) = rate {
            let time = Duration::from_nanos(cost.saturating_mul(1_000_000_000) / rate.max(1));
            user.due = user.due.max(now) + time;
        }
    }

    /// When [`Self::wake`] has somebody.
    pub fn deadline(&self) -> Option<Duration> {
        self.users.values().filter(|user| !user.resting.is_empty()).map(User::rested).min()
    }

    /// Sessions that have rested long enough; a part of them at a time.
    pub fn wake(&mut self, now: Duration) -> Vec<SessionId> {
        let rested = self.users.values_mut().filter(|user| user.rested() <= now);
        rested.flat_map(|user| user.resting.drain(..WAKES.min(user.resting.len()))).collect()
    }
}

impl User {
    fn rested(&self) -> Duration {
        (self.due + REST).saturating_sub(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Option<u64> = Some(1000);

    /// Serves a session of the user as long as it may be; how often that was.
    fn serve(rates: &mut Rates, uid: u32, session: u64, cost: u64, now: Duration) -> (usize, May) {
        for count in 0.. {
            match rates.may(uid, SessionId(session), now) {
                May::Serve => rates.spend(uid, cost, RATE, now),
                other => return (count, other),
            }
        }
        unreachable!()
    }

    #[test]
    fn rate_serves_a_user_so_much_in_a_turn_and_another_as_much() {
        let (mut rates, now) = (Rates::default(), Duration::from_secs(5));
        assert_eq!(serve(&mut rates, 7, 1, 1, now), (128, May::Wait));
        assert_eq!(serve(&mut rates, 7, 2, 1, now), (0, May::Wait), "his other sessions wait, too");
        assert_eq!(serve(&mut rates, 8, 3, 1, now), (128, May::Wait));
        rates.begin_turn(now);
        assert_eq!(serve(&mut rates, 7, 1, HEAVY, now), (2, May::Wait), "large ones count more");
    }

    #[test]
    fn rate_makes_who_is_ahead_of_it_rest_until_he_is_not() {
        let (mut rates, mut now, mut served) = (Rates::default(), Duration::from_secs(5), 0);
        let begin = now;
        let mut session = 1;
        while now < begin + Duration::from_secs(10) {
            rates.begin_turn(now);
            for woken in rates.wake(now) {
                session = woken.0;
            }
            if rates.deadline().is_none() {
                served += serve(&mut rates, 7, session, 1, now).0;
            }
            now += Duration::from_millis(1);
        }
        assert!((11_900..=12_100).contains(&served), "{served} of 1000 a second and 2000 at once");
    }

    #[test]
    fn rate_wakes_many_that_rest_a_few_at_a_time_in_turns() {
        let (mut rates, now) = (Rates::default(), Duration::from_secs(5));
        rates.spend(7, 3000, RATE, now);
        for session in 0..40 {
            assert_eq!(rates.may(7, SessionId(session), now), May::Rest);
        }
        let at = rates.deadline().unwrap();
        assert_eq!(at, now + Duration::from_millis(1005));
        assert!(rates.wake(at - Duration::from_nanos(1)).is_empty());
        let woken: Vec<usize> = (0..4).map(|_| rates.wake(at).len()).collect();
        assert_eq!(woken, [16, 16, 8, 0]);
        assert_eq!(rates.deadline(), None);
    }

    #[test]
    fn root_rests_never_and_nobody_is_remembered_for_ever() {
        let (mut rates, now) = (Rates::default(), Duration::from_secs(5));
        rates.spend(0, 1_000_000, None, now);
        rates.begin_turn(now);
        assert_eq!(rates.may(0, SessionId(1), now), May::Serve);
        rates.spend(7, 10, RATE, now);
        rates.begin_turn(now + Duration::from_secs(1));
        assert!(rates.users.is_empty());
    }
}
