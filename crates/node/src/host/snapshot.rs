//! What is copied for a snapshot, piece by piece, on the daemon's thread.

use super::{Host, Provider};
use crate::snapshot::collect::{Collector, Next, circuit_row, port_row, worked};
use crate::snapshot::{CircuitRow, Head, HostRow};
use crosslane_fabric::circuit::End;
use crosslane_wire::{CircuitId, HostId, PortId, TransitId};

impl Host {
    /// Begins a snapshot: its head, with the counters as they are now.
    pub(crate) fn begin_snapshot(&self) -> Box<Collector> {
        Box::new(Collector::new(self.head(), self.accounts.ledger()))
    }

    /// Copies a piece.
    pub(crate) fn copy_piece(&self, to: &mut Collector) {
        to.begin_piece();
        while let Some(next) = to.next() {
            match next {
                Next::Hosts => to.add_hosts(self.host_rows(), self.policy.links.links()),
                Next::Sessions(last) => to.add_sessions(last, self.sessions.after(last)),
                Next::Listeners(last) => to.add_listeners(last, self.listeners.after(last)),
                Next::Circuits(last) => {
                    let ends = self.policy.circuits.iter_after(last);
                    to.add_circuits(last, ends.map(|(circuit, end)| (circuit, self.row_of(circuit, end))));
                }
                Next::Transits(last) => to.add_transits(last, self.transits.after(last)),
                Next::Books(kind, last) => to.add_books(self.accounts.ledger(), kind, last),
                Next::Nothing => {}
            }
        }
    }

    /// An end is about to be closed or to move on, which moves its counts to the totals: the snapshot that is being made has
    /// the totals already.
    pub(crate) fn copy_early(&mut self, circuit: CircuitId) {
        let (policy, mut provider) = self.split();
        if let Some(end) = policy.circuits.get(circuit) {
            provider.copy_early((circuit, end), policy.port_of(circuit));
        }
    }

    /// The same for a circuit that passes through.
    pub(crate) fn copy_transit_early(&mut self, transit: TransitId) {
        let Some(through) = self.transits.through(transit) else { return };
        if let Some(collector) = self.texts.collector_mut()
            && collector.lacks_transit(transit)
        {
            collector.add_passing(through, false);
        }
    }

    fn head(&self) -> Head {
        Head {
            me: self.me(),
            addresses: self.config.addresses,
            operators: self.config.operators,
            uptime: self.now,
            duplicate_id: self.policy.links.has_duplicate(),
            namespaces: self.knows_namespaces(),
            signing: self.signing.both(),
            refused: self.policy.links.refused().clone(),
            ports: self.cables.iter().map(|cable| port_row(cable, self.policy.is_silent(cable.id))).collect(),
            counters: self.counters.clone(),
            offload: self.offload.as_ref().map(|engines| engines.tallies().map(worked).collect()),
            transits: self.transits.len(),
        }
    }

    fn host_rows(&self) -> Vec<HostRow> {
        let ways =
            |host: HostId| self.policy.links.ways(host).iter().map(|way| (way.hops, way.port)).collect();
        let row = |host| HostRow { id: host, signed: self.policy.links.is_signed(host), ways: ways(host) };
        self.policy.links.hosts().map(|(host, _)| row(host)).collect()
    }

    fn row_of(&self, circuit: CircuitId, end: &End) -> Option<CircuitRow> {
        let resources = self.ends.get(circuit)?;
        Some(circuit_row(self.me(), circuit, end, resources, self.policy.port_of(circuit)))
    }
}

impl Provider<'_> {
    /// Copies the row of an end that changes before its turn comes, for those who count; it leaves by `port`.
    pub(crate) fn copy_early(&mut self, (circuit, end): (CircuitId, &End), port: Option<PortId>) {
        let Some(collector) = self.texts.collector_mut().filter(|collector| collector.lacks(circuit)) else {
            return;
        };
        if let Some(resources) = self.ends.get(circuit) {
            collector.add_early(circuit_row(self.config.addresses.me, circuit, end, resources, port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cables::Cables;
    use crate::config::Config;
    use crate::end_resources::EndResources;
    use crate::inside::Inside;
    use crate::quota::Payer;
    use crate::session::SessionId;
    use crate::texts::{Piece, Text};
    use crosslane_fabric::circuit::Scope;
    use crosslane_passing::{Foreign, Owner};
    use crosslane_wire::Tuple;
    use std::os::unix::net::UnixStream;

    /// Rows of the longest piece.
    const PIECE: usize = 64;

    /// A host with so many sessions.
    fn host(sessions: u64) -> (Host, Vec<UnixStream>) {
        let config = Config::parse("host = 1\ninterface = \"\"").unwrap();
        let mut host = Host::new(config, (Cables::default(), Inside::default()), None).unwrap();
        let mut connect = |id| {
            let (near, far) = UnixStream::pair().unwrap();
            host.add_session(SessionId(id), Foreign::new(near.into(), Owner::NOBODY));
            far
        };
        let far = (1..=sessions).map(&mut connect).collect();
        (host, far)
    }

    #[test]
    fn snapshot_is_copied_in_pieces_and_misses_nothing() {
        let (host, _far) = host(200);
        let mut collector = host.begin_snapshot();
        let mut sizes = vec![0];
        while !collector.is_whole() {
            host.copy_piece(&mut collector);
            sizes.push(collector.sessions());
        }
        assert!(sizes.is_sorted() && sizes.windows(2).all(|pair| pair[1] - pair[0] <= PIECE), "{sizes:?}");
        assert!(sizes.len() > 4, "{sizes:?}");
        let ids: Vec<u64> = collector.finish().sessions.iter().map(|session| session.id.0).collect();
        assert!(ids.into_iter().eq(1..=200));
    }

    #[test]
    fn end_that_is_closed_meanwhile_is_told_as_the_totals_have_it() {
        let (mut host, _far) = host(200);
        let address = "127.0.0.1:7".parse().unwrap();
        let (client, server) =
            host.policy.circuits.local(Tuple { client: address, server: address }, Scope(0));
        for end in [client, server] {
            let mut resources = EndResources::new(None, Payer::User(0), Vec::new());
            resources.holders = vec![(SessionId(1), 1)];
            host.ends.add(end, resources);
        }
        host.ask_text(SessionId(1), Text::Status);
        host.tend_texts();
        assert!(host.texts.collector().expect("there is more than one piece").lacks(client));
        host.close_end(client, false);
        assert_eq!(host.counters.streams_closed + host.counters.streams_aborted, 1);
        let Piece::Next(mut collector) = host.texts.take(host.now) else { panic!("the snapshot is gone") };
        while !collector.is_whole() {
            host.copy_piece(&mut collector);
        }
        let snapshot = collector.finish();
        let row = snapshot.circuits.iter().find(|row| row.id == client).unwrap();
        assert!(row.open && row.holders == [SessionId(1)], "{row:?}");
        let totals = &snapshot.head.counters;
        assert_eq!(totals.streams_closed + totals.streams_aborted, 0, "{totals:?}");
    }
}
