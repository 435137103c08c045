//! The books, and what is charged in them.

use super::pool::Pool;
use super::{Kind, Payer, Purpose, Settings};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Of descriptors, so many of a hundred are the daemon's own: ports, interface, pumps, what is on its way.
const OWN_PERCENT: u64 = 6;
const OWN_LEAST: u64 = 64;
/// Of mappings so many.
const OWN_MAPPINGS: u64 = 4096;
/// How many mappings the kernel allows a process if it does not say.
const MAPPINGS: u64 = 65530;
/// Most circuits through this host: they are the work of one thread.
const TRANSITS: u64 = 8192;

/// Shelves at most.
pub const SHELVES: usize = 8;
/// Numbers of a shelf's table that are not for what is kept.
pub const SHELF_OWN: u64 = 64;
/// How many descriptors of streams lie in the daemon's own table, of so many that it may have, before some go to a shelf.
pub fn here_of(descriptors: u64) -> u64 {
    descriptors / 4
}

/// How many descriptors of streams a daemon can keep in all.
fn capacity_of(descriptors: u64) -> u64 {
    let shelf = descriptors.saturating_sub(SHELF_OWN);
    u64::try_from(SHELVES)
        .map_or(0, |shelves| shelf.saturating_mul(shelves))
        .saturating_add(here_of(descriptors))
}

/// Somebody asked for more than he may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{payer} has {used} of {kind} and may have {limit} now: see [quota] in the daemon's configuration")]
pub struct Denied {
    /// Who.
    pub payer: Payer,
    /// Of what.
    pub kind: Kind,
    /// What he has.
    pub used: u64,
    /// What he may have, as long as others have what they have.
    pub limit: u64,
}

/// How many mappings this process may have.
fn mapping_limit() -> u64 {
    let said = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    said.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS)
}

/// How many descriptors this process may have.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// All books, and what is charged by.
#[derive(Debug, Default)]
struct Open {
    settings: Arc<Settings>,
    pools: BTreeMap<Kind, Pool>,
}

/// The books.
#[derive(Clone, Debug)]
pub struct Ledger {
    books: Arc<Mutex<Open>>,
}

/// What was charged; dropped, it is given back. May be dropped by any thread.
#[derive(Debug)]
pub struct Charge {
    books: Arc<Mutex<Open>>,
    payer: Payer,
    kind: Kind,
    amount: u64,
}

impl Ledger {
    /// Books for a process of so many descriptors, and for the windows of its ports, in bytes.
    pub fn new(settings: Settings, descriptors: u64, windows: impl IntoIterator<Item = (Kind, u64)>) -> Self {
        let own = (descriptors / 100 * OWN_PERCENT).max(OWN_LEAST);
        let capacity = |kind| match kind {
            Kind::Descriptors if descriptors < u64::MAX => {
                descriptors.saturating_sub(own + here_of(descriptors))
            }
            Kind::Stored if descriptors < u64::MAX => capacity_of(descriptors),
            Kind::Mappings => mapping_limit().saturating_sub(OWN_MAPPINGS),
            Kind::Transits => TRANSITS,
            _ => u64::MAX,
        };
        let pools = Kind::OF_HOST
            .into_iter()
            .map(|kind| (kind, capacity(kind)))
            .chain(windows)
            .map(|(kind, capacity)| (kind, Pool::new(kind, capacity)))
            .collect();
        Self { books: Arc::new(Mutex::new(Open { settings: Arc::new(settings), pools })) }
    }

    /// What the quotas go by now.
    pub fn settings(&self) -> Arc<Settings> {
        lock(&self.books).settings.clone()
    }

    /// Charges by other settings from now on. Nobody loses what he has; who has more than he may have now gets nothing more.
    pub fn use_settings(&self, settings: Settings) {
        lock(&self.books).settings = Arc::new(settings);
    }

    /// Of this kind there is less than was thought. Nobody loses what he has.
    pub fn bound(&self, kind: Kind, capacity: u64) {
        pool(&mut lock(&self.books), kind).bound(capacity);
    }

    /// Charges if the payer may have so much.
    ///
    /// # Errors
    /// He may not.
    pub fn charge(&self, payer: Payer, kind: Kind, amount: u64, purpose: Purpose) -> Result<Charge, Denied> {
        let Open { settings, pools } = &mut *lock(&self.books);
        let pool = pool_in(pools, kind);
        if !pool.admits(settings, payer, amount, purpose) {
            let (used, limit) = (pool.used_by(payer), pool.limit(settings, payer, purpose));
            return Err(Denied { payer, kind, used, limit });
        }
        pool.add(payer, amount);
        Ok(Charge { books: self.books.clone(), payer, kind, amount })
    }

    /// Charges what is there already and cannot be refused.
    pub fn charge_always(&self, payer: Payer, kind: Kind, amount: u64) -> Charge {
        pool(&mut lock(&self.books), kind).add(payer, amount);
        Charge { books: self.books.clone(), payer, kind, amount }
    }

    /// Whether so much more could be charged.
    ///
    /// # Errors
    /// It could not.
    pub fn check(&self, payer: Payer, kind: Kind, amount: u64, purpose: Purpose) -> Result<(), Denied> {
        self.charge(payer, kind, amount, purpose).map(drop)
    }

    /// Looks into the books of a kind.
    pub(super) fn look<T>(&self, kind: Kind, look: impl FnOnce(&Pool) -> T) -> T {
        look(pool(&mut lock(&self.books), kind))
    }

    /// The kinds that there are books of.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        lock(&self.books).pools.keys().copied().collect()
    }
}

impl Charge {
    /// One that stands for nothing.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        Self { books: Arc::default(), payer: Payer::User(0), kind: Kind::Sessions, amount: 0 }
    }

    /// Who pays.
    pub fn payer(&self) -> Payer {
        self.payer
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Another pays from now on, also if he has more than he may then.
    pub fn pass_to(&mut self, payer: Payer) {
        let mut books = lock(&self.books);
        let pool = pool(&mut books, self.kind);
        pool.take(self.payer, self.amount);
        pool.add(payer, self.amount);
        self.payer = payer;
    }

    /// It stands for so much from now on, whether the payer may have that or not.
    pub fn set(&mut self, amount: u64) {
        if amount != self.amount {
            let mut books = lock(&self.books);
            let pool = pool(&mut books, self.kind);
            pool.take(self.payer, self.amount);
            pool.add(self.payer, amount);
            self.amount = amount;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        pool(&mut lock(&self.books), self.kind).take(self.payer, self.amount);
    }
}

/// Sums are whole between any two statements: a thread that panicked has left none half done.
fn lock(books: &Mutex<Open>) -> MutexGuard<'_, Open> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A window that nobody spoke of has no room.
fn pool_in(pools: &mut BTreeMap<Kind, Pool>, kind: Kind) -> &mut Pool {
    pools.entry(kind).or_insert_with(|| Pool::new(kind, 0))
}

fn pool(books: &mut Open, kind: Kind) -> &mut Pool {
    pool_in(&mut books.pools, kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::PortId;

    const ALICE: Payer = Payer::User(1000);
    const BOB: Payer = Payer::User(1001);

    fn ledger() -> Ledger {
        let settings = Settings { operators: [0].into(), ..Settings::default() };
        Ledger::new(settings, 1000, [(Kind::Window(PortId(1)), 100)])
    }

    fn used(ledger: &Ledger, payer: Payer, kind: Kind) -> u64 {
        ledger.look(kind, |pool| pool.used_by(payer))
    }

    #[test]
    fn charge_that_is_dropped_is_given_back_wherever_that_is() {
        let ledger = ledger();
        let charges: Vec<Charge> =
            std::iter::from_fn(|| ledger.charge(ALICE, Kind::Descriptors, 10, Purpose::New).ok()).collect();
        assert_eq!(charges.len(), 43, "75 % of 85 % of what is neither the daemon's own nor for streams");
        let denied = ledger.charge(ALICE, Kind::Descriptors, 10, Purpose::New).unwrap_err();
        assert_eq!((denied.used, denied.limit), (430, 437));
        std::thread::spawn(move || drop(charges)).join().unwrap();
        assert_eq!(used(&ledger, ALICE, Kind::Descriptors), 0);
    }

    #[test]
    fn another_may_pay_and_amounts_change() {
        let ledger = ledger();
        let mut charge = ledger.charge_always(ALICE, Kind::Circuits, 2);
        charge.pass_to(BOB);
        charge.set(5);
        assert_eq!((used(&ledger, ALICE, Kind::Circuits), used(&ledger, BOB, Kind::Circuits)), (0, 5));
        drop(charge);
        assert_eq!(used(&ledger, BOB, Kind::Circuits), 0);
    }

    #[test]
    fn windows_are_counted_each_by_itself() {
        let ledger = ledger();
        let _held = ledger.charge(ALICE, Kind::Window(PortId(1)), 60, Purpose::New).unwrap();
        assert!(ledger.check(ALICE, Kind::Window(PortId(1)), 10, Purpose::New).is_err());
        assert!(ledger.check(ALICE, Kind::Window(PortId(1)), 10, Purpose::Move).is_ok());
        assert!(
            ledger.check(ALICE, Kind::Window(PortId(7)), 1, Purpose::New).is_err(),
            "there is no such port"
        );
    }
}
