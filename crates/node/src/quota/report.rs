//! The quotas in `status`: limits, reserves, and who has how much.

use super::pool::Pool;
use super::{Kind, Ledger, Payer, Purpose, Settings};
use crosslane_status::{self as status, Holds, Quota, Requests, Use, WindowUse};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The books as they were.
#[derive(Debug)]
pub struct Books {
    settings: Arc<Settings>,
    pools: Vec<Pool>,
}

impl Ledger {
    /// Adds what the book of a kind says to a copy, as far as it goes by so many payers behind one; behind which one to go on.
    pub(crate) fn copy(
        &self,
        kind: Kind,
        last: Option<Payer>,
        most: &mut usize,
        to: &mut Books,
    ) -> Option<Payer> {
        self.look(kind, |pool| {
            if to.pools.last().is_none_or(|into| into.kind() != kind) {
                to.pools.push(pool.empty_copy());
            }
            let Some(into) = to.pools.last_mut() else { return last };
            let mut last = last;
            for (payer, used) in pool.payers_after(last).take(*most) {
                into.put(payer, used);
                (last, *most) = (Some(payer), *most - 1);
            }
            last
        })
    }
}

impl Books {
    /// A copy that has nothing in it yet.
    pub(crate) fn new(ledger: &Ledger) -> Self {
        Self { settings: ledger.settings(), pools: Vec::new() }
    }

    /// As far as a viewer may see it: a user its own part, nobody else's; `None` sees all.
    pub fn report(&self, viewer: Option<u32>) -> Quota {
        let own = viewer.map(Payer::User);
        let all = self.pools.iter().flat_map(Pool::payers).map(|(payer, _)| payer);
        let mut payers: BTreeSet<Payer> = all.filter(|payer| own.is_none_or(|own| own == *payer)).collect();
        payers.extend(own);
        let settings = &self.settings;
        Quota {
            share_percent: settings.share,
            neighbour_share_percent: settings.neighbour_share,
            moves_percent: settings.moves,
            root_percent: settings.root,
            pools: self.pools.iter().map(pool_of).collect(),
            payers: payers.into_iter().map(|payer| self.payer_of(payer)).collect(),
        }
    }

    /// Times that somebody asked for more than he may have, by kind.
    pub fn refusals(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.pools.iter().map(|pool| (pool.kind(), pool.refused()))
    }

    fn payer_of(&self, payer: Payer) -> status::Payer {
        let mut holds = Holds::default();
        for pool in &self.pools {
            let limit = bound(pool.limit(&self.settings, payer, Purpose::New));
            let taken = Use { used: pool.used_by(payer), limit };
            match pool.kind() {
                Kind::Sessions => holds.sessions = taken,
                Kind::Listeners => holds.listeners = taken,
                Kind::Descriptors => holds.descriptors = taken,
                Kind::Stored => holds.stored = taken,
                Kind::Circuits => holds.circuits = taken,
                Kind::Pending => holds.pending = taken,
                Kind::Mappings => holds.mappings = taken,
                Kind::Transits => holds.transits = taken,
                Kind::Memory => holds.memory = taken,
                Kind::Window(port) => {
                    holds.window.push(WindowUse { port: port.0, used: taken.used, limit: taken.limit });
                }
            }
        }
        holds.requests = payer.user().map(|uid| Requests { a_second: self.settings.requests(uid) });
        status::Payer { user: payer.user(), neighbour_at_port: payer.port(), holds }
    }
}

fn pool_of(pool: &Pool) -> status::Pool {
    status::Pool {
        kind: pool.kind().name().to_owned(),
        port: match pool.kind() {
            Kind::Window(port) => Some(port.0),
            _ => None,
        },
        capacity: bound(pool.capacity()),
        used: pool.total(),
        refused: pool.refused(),
    }
}

/// Nothing where there is no bound.
fn bound(limit: u64) -> Option<u64> {
    (limit < u64::MAX).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy made in pieces of so many payers.
    fn copy_of(ledger: &Ledger, piece: usize) -> Books {
        let mut books = Books::new(ledger);
        for kind in ledger.kinds() {
            let mut last = None;
            loop {
                let mut most = piece;
                last = ledger.copy(kind, last, &mut most, &mut books);
                if most > 0 {
                    break;
                }
            }
        }
        books
    }

    #[test]
    fn quota_report_shows_a_user_its_own_and_root_all() {
        let ledger = Ledger::new(Settings { operators: [0].into(), ..Settings::default() }, 1000, []);
        let _held = [1000, 1001].map(|uid| ledger.charge_always(Payer::User(uid), Kind::Sessions, 2));
        let books = copy_of(&ledger, 1);
        let users = |viewer| {
            let report = books.report(viewer);
            report.payers.iter().filter_map(|payer| payer.user).collect::<Vec<_>>()
        };
        assert_eq!(users(None), [1000, 1001]);
        assert_eq!(users(Some(1001)), [1001]);
        assert_eq!(users(Some(7)), [7], "who has nothing sees what he may have");
        let own = books.report(Some(1001)).payers[0].holds.sessions;
        assert_eq!(own, Use { used: 2, limit: Some(4096) });
    }
}
