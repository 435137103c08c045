//! One thing of which there is so much: who has how much of it.

use super::{Kind, Payer, Purpose, Settings};
use core::ops::Bound;
use std::collections::BTreeMap;

/// The books of one kind.
#[derive(Debug)]
pub(super) struct Pool {
    kind: Kind,
    /// What there is; `u64::MAX` if only the users' limits bound it.
    capacity: u64,
    used: BTreeMap<Payer, u64>,
    total: u64,
    /// Times that somebody asked for more than he may have.
    refused: u64,
}

impl Pool {
    pub(super) fn new(kind: Kind, capacity: u64) -> Self {
        Self { kind, capacity, used: BTreeMap::new(), total: 0, refused: 0 }
    }

    /// There is no more than this.
    pub(super) fn bound(&mut self, capacity: u64) {
        self.capacity = self.capacity.min(capacity);
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The same without anybody in it: those are [`Self::put`] there.
    pub(super) fn empty_copy(&self) -> Self {
        Self { used: BTreeMap::new(), ..*self }
    }

    /// Who has anything behind a payer in their order, and how much.
    pub(super) fn payers_after(&self, last: Option<Payer>) -> impl Iterator<Item = (Payer, u64)> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.used.range((begin, Bound::Unbounded)).map(|(payer, used)| (*payer, *used))
    }

    /// Notes in a copy what somebody has; the sum is there already.
    pub(super) fn put(&mut self, payer: Payer, used: u64) {
        self.used.insert(payer, used);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Who has anything, and how much.
    pub(super) fn payers(&self) -> impl Iterator<Item = (Payer, u64)> {
        self.used.iter().map(|(payer, used)| (*payer, *used))
    }

    pub(super) fn used_by(&self, payer: Payer) -> u64 {
        self.used.get(&payer).copied().unwrap_or(0)
    }

    /// Most that a payer may have in all now, for a purpose.
    pub(super) fn limit(&self, settings: &Settings, payer: Payer, purpose: Purpose) -> u64 {
        let most = settings.most(payer, self.kind);
        if self.capacity == u64::MAX {
            return most;
        }
        // In a copy that took several pieces the sum may be older.
        let others = self.total.saturating_sub(self.used_by(payer));
        if settings.is_operator(payer) {
            return self.capacity.saturating_sub(others);
        }
        let open = percent(self.capacity, 100 - settings.reserve(purpose)).saturating_sub(others);
        most.min(percent(open, settings.share(payer, purpose)))
    }

    /// Whether so much more may be charged.
    pub(super) fn admits(
        &mut self,
        settings: &Settings,
        payer: Payer,
        amount: u64,
        purpose: Purpose,
    ) -> bool {
        let wanted = self.used_by(payer).saturating_add(amount);
        let admitted = wanted <= self.limit(settings, payer, purpose);
        self.refused += u64::from(!admitted);
        admitted
    }

    pub(super) fn add(&mut self, payer: Payer, amount: u64) {
        if amount > 0 {
            *self.used.entry(payer).or_default() += amount;
            self.total += amount;
        }
    }

    pub(super) fn take(&mut self, payer: Payer, amount: u64) {
        let Some(used) = self.used.get_mut(&payer) else { return };
        *used -= amount;
        self.total -= amount;
        if *used == 0 {
            self.used.remove(&payer);
        }
    }
}

fn percent(whole: u64, part: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::PortId;

    const ALICE: Payer = Payer::User(1000);
    const BOB: Payer = Payer::User(1001);
    const ROOT: Payer = Payer::User(0);
    const NEAR: Payer = Payer::Neighbour(PortId(0));

    fn settings() -> Settings {
        Settings { operators: [0].into(), ..Settings::default() }
    }

    /// Takes as much as there is for a payer; how much that was.
    fn fill(pool: &mut Pool, payer: Payer, purpose: Purpose) -> u64 {
        let settings = settings();
        let mut taken = 0;
        while pool.admits(&settings, payer, 1, purpose) {
            pool.add(payer, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn pool_leaves_a_share_to_who_comes_next() {
        let mut pool = Pool::new(Kind::Descriptors, 10_000);
        let alice = fill(&mut pool, ALICE, Purpose::New);
        let bob = fill(&mut pool, BOB, Purpose::New);
        assert_eq!((alice, bob), (6375, 1593), "75 % of 85 %, and 75 % of what is left of those");
        assert_eq!(pool.refused(), 2);
    }

    #[test]
    fn reserves_are_for_moves_and_for_root() {
        let mut pool = Pool::new(Kind::Window(PortId(0)), 10_000);
        for user in 1..100 {
            fill(&mut pool, Payer::User(user), Purpose::New);
        }
        let full = pool.total();
        assert!(full <= 8500);
        let moved = fill(&mut pool, ALICE, Purpose::Move);
        assert!((800..=1100).contains(&moved), "{moved}");
        for user in 1..100 {
            fill(&mut pool, Payer::User(user), Purpose::Move);
        }
        assert!(pool.total() <= 9500, "{}", pool.total());
        let rest = 10_000 - pool.total();
        assert!(rest >= 500);
        assert_eq!(fill(&mut pool, ROOT, Purpose::New), rest);
    }

    #[test]
    fn shares_rise_along_a_way() {
        let settings = settings();
        for [first, second] in [[Purpose::New, Purpose::Passing], [Purpose::Move, Purpose::PassingMove]] {
            let shares =
                [settings.share(ALICE, first), settings.share(NEAR, second), settings.share(NEAR, first)];
            assert!(shares.is_sorted_by(|a, b| a < b) && shares[2] < 100, "{shares:?}");
        }
    }

    #[test]
    fn root_has_all_that_is_there_and_no_more() {
        let mut pool = Pool::new(Kind::Descriptors, 100);
        assert_eq!(fill(&mut pool, ROOT, Purpose::New), 100);
        assert_eq!(fill(&mut pool, ALICE, Purpose::Move), 0);
    }

    #[test]
    fn pool_has_again_what_is_given_back_and_no_trace_of_it() {
        let mut pool = Pool::new(Kind::Sessions, u64::MAX);
        assert_eq!(fill(&mut pool, ALICE, Purpose::New), settings().user.sessions);
        pool.take(ALICE, settings().user.sessions);
        assert_eq!((pool.total(), pool.payers().count()), (0, 0));
    }

    #[test]
    fn limits_of_a_user_may_be_its_own() {
        let mut settings = settings();
        settings.users.insert(1000, super::super::Limits { sessions: 3, ..settings.user });
        let pool = Pool::new(Kind::Sessions, u64::MAX);
        assert_eq!(pool.limit(&settings, ALICE, Purpose::New), 3);
        assert_eq!(pool.limit(&settings, BOB, Purpose::New), settings.user.sessions);
    }
}
