//! How many lines each call site may log, and how many of them one user or neighbour may cause: the lines of a noisy one suppress
//! nobody else's.

use super::who::Who;
use std::collections::HashMap;
use std::time::Duration;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Token bucket: how many lines may come at once, and after which time one more may come.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    worth: Duration,
}

/// For levels `error` to `info`.
const NEWS: Rate = Rate { burst: 50, worth: Duration::from_millis(500) };
/// For lines of these levels that one user or neighbour causes.
const NEWS_OF_ONE: Rate = Rate { burst: 20, worth: Duration::from_secs(5) };
/// For `debug` and `trace`, which are logged only if `CROSSLANE_LOG` asks for them.
const DETAILS: Rate = Rate { burst: 2000, worth: Duration::from_millis(20) };
/// Users and neighbours with a budget of their own per call site; the others share the call site's budget.
const ONES: usize = 16;

/// The budget of one call site, or of one user or neighbour there.
#[derive(Debug)]
struct Budget {
    rate: Rate,
    /// Time saved up; one line takes `rate.worth` of it.
    saved: Duration,
    at: Duration,
    left_out: u64,
}

/// A call site that has logged.
#[derive(Debug)]
struct Place {
    name: String,
    /// For lines that name neither user nor neighbour.
    common: Budget,
    of_one: HashMap<Who, Budget>,
    /// Lines suppressed by budgets that have been removed since.
    left_out: u64,
}

/// All call sites that have logged.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    places: HashMap<Identifier, Place>,
    left_out: bool,
}

impl Budget {
    fn new(rate: Rate, now: Duration) -> Self {
        Self { rate, saved: rate.worth * rate.burst, at: now, left_out: 0 }
    }

    fn take(&mut self, now: Duration) -> bool {
        self.earn(now);
        let left = self.saved.checked_sub(self.rate.worth);
        self.saved = left.unwrap_or(self.saved);
        self.left_out += u64::from(left.is_none());
        left.is_some()
    }

    fn earn(&mut self, now: Duration) {
        let earned = now.saturating_sub(self.at);
        self.saved = (self.saved + earned).min(self.rate.worth * self.rate.burst);
        self.at = now;
    }

    /// Whether the budget is full, like a new one.
    fn is_full(&mut self, now: Duration) -> bool {
        self.earn(now);
        self.saved == self.rate.worth * self.rate.burst
    }
}

impl Place {
    fn new(metadata: &Metadata<'_>, now: Duration) -> Self {
        let name = format!("{}:{}", metadata.target(), metadata.line().unwrap_or(0));
        let rate = if *metadata.level() <= Level::INFO { NEWS } else { DETAILS };
        Self { name, common: Budget::new(rate, now), of_one: HashMap::new(), left_out: 0 }
    }

    fn take(&mut self, who: Option<Who>, now: Duration) -> bool {
        let Some(who) = who else { return self.common.take(now) };
        if self.of_one.len() >= ONES && !self.of_one.contains_key(&who) {
            self.forget(now);
        }
        let is_room = self.of_one.len() < ONES;
        match self.of_one.get_mut(&who) {
            Some(own) => own.take(now),
            None if is_room => {
                let burst = NEWS_OF_ONE.burst.max(self.common.rate.burst / 4);
                let rate = Rate { burst, worth: NEWS_OF_ONE.worth.min(self.common.rate.worth * 10) };
                self.of_one.entry(who).or_insert_with(|| Budget::new(rate, now)).take(now)
            }
            None => self.common.take(now),
        }
    }

    /// Removes the budgets of users and neighbours that are full again.
    fn forget(&mut self, now: Duration) {
        let quiet = self.of_one.extract_if(|_, budget| budget.is_full(now));
        self.left_out += quiet.map(|(_, budget)| budget.left_out).sum::<u64>();
    }

    fn tell_left_out(&mut self) -> u64 {
        let of_one = self.of_one.values_mut().map(|budget| &mut budget.left_out);
        of_one.chain([&mut self.common.left_out, &mut self.left_out]).map(std::mem::take).sum()
    }
}

impl Budgets {
    /// Whether the call site may log now a line that `who`, if given, has caused.
    pub(super) fn take(&mut self, metadata: &Metadata<'_>, who: Option<Who>, now: Duration) -> bool {
        let new = || Place::new(metadata, now);
        let may = self.places.entry(metadata.callsite()).or_insert_with(new).take(who, now);
        self.left_out |= !may;
        may
    }

    /// Whether lines were suppressed that the log has not counted yet.
    pub(super) fn has_left_out(&self) -> bool {
        self.left_out
    }

    /// Lines suppressed since the last call, by call site.
    pub(super) fn left_out(&mut self) -> Vec<(String, u64)> {
        self.left_out = false;
        let places = self.places.values_mut().map(|place| (place.name.clone(), place.tell_left_out()));
        places.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let common = Budget::new(NEWS, Duration::ZERO);
        Place { name: String::new(), common, of_one: HashMap::new(), left_out: 0 }
    }

    #[test]
    fn burst_passes_and_then_so_many_a_second() {
        let mut news = Budget::new(NEWS, Duration::ZERO);
        assert_eq!((0..1000).filter(|_| news.take(Duration::ZERO)).count(), 50);
        let later = |ms| Duration::from_millis(ms);
        assert_eq!((0..10_000).filter(|ms| news.take(later(*ms))).count(), 19);
        assert_eq!(news.left_out, 950 + 9981);
        assert_eq!((0..1000).filter(|_| news.take(Duration::from_secs(10_000))).count(), 50);
    }

    #[test]
    fn budget_of_a_noisy_user_hides_no_line_of_another_or_of_nobody_in_particular() {
        let mut place = place();
        let mut said = |who, now| place.take(who, now);
        let now = Duration::from_secs(1);
        let noisy = (0..10_000).filter(|_| said(Some(Who::User(7)), now)).count();
        assert_eq!(noisy, 20);
        assert!(said(Some(Who::User(8)), now) && said(Some(Who::Neighbour("right".into())), now));
        assert!(said(None, now));
        assert_eq!(place.tell_left_out(), 9980);
        assert_eq!(place.tell_left_out(), 0);
    }

    #[test]
    fn budget_is_shared_by_many_users_and_quiet_ones_are_forgotten() {
        let (mut place, begin) = (place(), Duration::from_secs(1));
        let crowd = (0..1000).filter(|uid| place.take(Some(Who::User(*uid)), begin)).count();
        assert_eq!((crowd, place.of_one.len()), (ONES + 50, ONES));
        let later = begin + Duration::from_secs(100);
        assert!(place.take(Some(Who::User(5000)), later));
        assert_eq!(place.of_one.len(), 1);
    }
}
