//! The quotas in `status`: limits, reserves, and who has how much.

use super::pool::Pool;
use super::{Kind, Ledger, Payer, Purpose, Settings};
use serde_json::{Map, Value, json};
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

    /// As JSON, as far as a viewer may see it: a user its own part, nobody else's; `None` sees all.
    pub fn report(&self, viewer: Option<u32>) -> Value {
        let own = viewer.map(Payer::User);
        let all = self.pools.iter().flat_map(Pool::payers).map(|(payer, _)| payer);
        let mut payers: BTreeSet<Payer> = all.filter(|payer| own.is_none_or(|own| own == *payer)).collect();
        payers.extend(own);
        let settings = &self.settings;
        json!({
            "share_percent": settings.share,
            "neighbour_share_percent": settings.neighbour_share,
            "moves_percent": settings.moves,
            "root_percent": settings.root,
            "pools": self.pools.iter().map(pool_json).collect::<Vec<_>>(),
            "payers": payers.into_iter().map(|payer| self.payer_json(payer)).collect::<Vec<_>>(),
        })
    }

    /// Times that somebody asked for more than he may have, by kind.
    pub fn refusals(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.pools.iter().map(|pool| (pool.kind(), pool.refused()))
    }

    fn payer_json(&self, payer: Payer) -> Value {
        let mut held = Map::new();
        let mut windows = Vec::new();
        for pool in &self.pools {
            let (used, limit) = (pool.used_by(payer), pool.limit(&self.settings, payer, Purpose::New));
            let entry = json!({"port": port_of(pool.kind()), "used": used, "limit": bound(limit)});
            match pool.kind() {
                Kind::Window(_) => windows.push(entry),
                kind => drop(held.insert(kind.name().to_owned(), entry)),
            }
        }
        let (user, port) = match payer {
            Payer::User(uid) => (Some(uid), None),
            Payer::Neighbour(port) => (None, Some(port.0)),
        };
        held.insert("window".to_owned(), windows.into());
        if let Payer::User(uid) = payer {
            held.insert("requests".to_owned(), json!({"a_second": self.settings.requests(uid)}));
        }
        json!({"user": user, "neighbour_at_port": port, "holds": held})
    }
}

fn pool_json(pool: &Pool) -> Value {
    json!({
        "kind": pool.kind().name(),
        "port": port_of(pool.kind()),
        "capacity": bound(pool.capacity()),
        "used": pool.total(),
        "refused": pool.refused(),
    })
}

fn port_of(kind: Kind) -> Option<u8> {
    match kind {
        Kind::Window(port) => Some(port.0),
        _ => None,
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
    fn a_user_sees_its_own_and_root_all() {
        let ledger = Ledger::new(Settings { operators: [0].into(), ..Settings::default() }, 1000, []);
        let _held = [1000, 1001].map(|uid| ledger.charge_always(Payer::User(uid), Kind::Sessions, 2));
        let books = copy_of(&ledger, 1);
        let users = |viewer| {
            let report = books.report(viewer);
            report["payers"].as_array().unwrap().iter().map(|payer| payer["user"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(users(None), [json!(1000), json!(1001)]);
        assert_eq!(users(Some(1001)), [json!(1001)]);
        assert_eq!(users(Some(7)), [json!(7)], "who has nothing sees what he may have");
        let own = &books.report(Some(1001))["payers"][0]["holds"]["sessions"];
        assert_eq!((&own["used"], &own["limit"]), (&json!(2), &json!(4096)));
    }
}
