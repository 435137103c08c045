//! The quotas in `status`: limits, reserves, and who has how much.

use super::{Kind, Ledger, Payer, Purpose};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

impl Ledger {
    /// As JSON, as far as a viewer may see it: a user its own part, nobody else's; `None` sees all.
    pub fn report(&self, viewer: Option<u32>) -> Value {
        let own = viewer.map(Payer::User);
        let mut payers: BTreeSet<Payer> = self
            .kinds()
            .into_iter()
            .flat_map(|kind| {
                self.look(kind, |pool| pool.payers().map(|(payer, _)| payer).collect::<Vec<_>>())
            })
            .filter(|payer| own.is_none_or(|own| own == *payer))
            .collect();
        payers.extend(own);
        let settings = self.settings();
        json!({
            "share_percent": settings.share,
            "neighbour_share_percent": settings.neighbour_share,
            "moves_percent": settings.moves,
            "root_percent": settings.root,
            "pools": self.kinds().into_iter().map(|kind| self.pool_json(kind)).collect::<Vec<_>>(),
            "payers": payers.into_iter().map(|payer| self.payer_json(payer)).collect::<Vec<_>>(),
        })
    }

    /// Times that somebody asked for more than he may have, by kind.
    pub fn refusals(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.kinds().into_iter().map(|kind| (kind, self.look(kind, |pool| pool.refused())))
    }

    fn pool_json(&self, kind: Kind) -> Value {
        self.look(kind, |pool| {
            json!({
                "kind": kind.name(),
                "port": port_of(kind),
                "capacity": bound(pool.capacity()),
                "used": pool.total(),
                "refused": pool.refused(),
            })
        })
    }

    fn payer_json(&self, payer: Payer) -> Value {
        let mut held = Map::new();
        let mut windows = Vec::new();
        for kind in self.kinds() {
            let (used, limit) = self
                .look(kind, |pool| (pool.used_by(payer), pool.limit(self.settings(), payer, Purpose::New)));
            let entry = json!({"port": port_of(kind), "used": used, "limit": bound(limit)});
            match kind {
                Kind::Window(_) => windows.push(entry),
                _ => drop(held.insert(kind.name().to_owned(), entry)),
            }
        }
        let (user, port) = match payer {
            Payer::User(uid) => (Some(uid), None),
            Payer::Neighbour(port) => (None, Some(port.0)),
        };
        held.insert("window".to_owned(), windows.into());
        if let Payer::User(uid) = payer {
            held.insert("requests".to_owned(), json!({"a_second": self.settings().requests(uid)}));
        }
        json!({"user": user, "neighbour_at_port": port, "holds": held})
    }
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
    use super::super::Settings;
    use super::*;

    #[test]
    fn a_user_sees_its_own_and_root_all() {
        let ledger = Ledger::new(Settings { operators: [0].into(), ..Settings::default() }, 1000, []);
        let _held = [1000, 1001].map(|uid| ledger.charge_always(Payer::User(uid), Kind::Sessions, 2));
        let users = |viewer| {
            let report = ledger.report(viewer);
            report["payers"].as_array().unwrap().iter().map(|payer| payer["user"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(users(None), [json!(1000), json!(1001)]);
        assert_eq!(users(Some(1001)), [json!(1001)]);
        assert_eq!(users(Some(7)), [json!(7)], "who has nothing sees what he may have");
        let own = &ledger.report(Some(1001))["payers"][0]["holds"]["sessions"];
        assert_eq!((&own["used"], &own["limit"]), (&json!(2), &json!(4096)));
    }
}
