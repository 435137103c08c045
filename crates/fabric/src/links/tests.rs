use super::*;

fn record(origin: u16, incarnation: u64, sequence: u64, to: &[u16]) -> LinkState {
    let neighbours = to.iter().map(|to| HostId(*to)).collect();
    LinkState { origin: HostId(origin), incarnation, sequence, neighbours, age: 0, seal: None }
}

#[test]
fn record_stale_is_ignored_and_answered_with_the_newer() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    while links.poll_output(PortId(0)).is_some() {}
    links.handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3])]).unwrap();
    links.handle_link_states(PortId(0), vec![record(3, 5, 2, &[2])]).unwrap();
    assert_eq!(links.next_hop(HostId(3)), Some(Way { hops: 2, port: PortId(0) }));
    links.handle_link_states(PortId(0), vec![record(3, 5, 1, &[])]).unwrap();
    assert!(links.next_hop(HostId(3)).is_some());
    assert_eq!(links.poll_output(PortId(0)), Some(vec![LinkState { age: 1, ..record(3, 5, 2, &[2]) }]));
}

#[test]
fn links_are_declared_by_both_hosts_and_reachable() {
    let mut links = Links::new(HostId(1), 10);
    assert!(links.links().is_empty());
    links.handle_cable_up(PortId(0), HostId(2));
    let records = vec![
        record(2, 5, 2, &[1, 3, 4]),
        record(3, 5, 2, &[2]),
        record(7, 5, 1, &[8]),
        record(8, 5, 1, &[7]),
    ];
    links.handle_link_states(PortId(0), records).unwrap();
    assert_eq!(links.links(), [(HostId(1), HostId(2)), (HostId(2), HostId(3))]);
    links.handle_cable_down(PortId(0));
    assert!(links.links().is_empty());
}

#[test]
fn duplicate_id_is_not_taken_for_our_own_earlier_life() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_link_states(PortId(0), vec![record(1, 50, 9, &[3])]).unwrap();
    assert!(!links.has_duplicate());
    let sent = links.poll_output(PortId(0)).unwrap();
    assert!(sent.iter().any(|own| own.origin == HostId(1) && own.incarnation == 51));
    for round in 0..10 {
        links.handle_link_states(PortId(0), vec![record(1, 60 + round, 1, &[3])]).unwrap();
    }
    assert!(links.has_duplicate());
}

#[test]
fn links_one_way_round_take_the_long_way_too() {
    let mut links = Links::new(HostId(1), 10);
    links.go_one_way([PortId(0)]);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_cable_up(PortId(1), HostId(3));
    links.handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3]), record(3, 5, 2, &[1, 2])]).unwrap();
    assert_eq!(links.next_hop(HostId(3)), Some(Way { hops: 2, port: PortId(0) }));
    let paths: Vec<_> = links.paths(HostId(3)).collect();
    assert_eq!(paths, [(Way { hops: 2, port: PortId(0) }, vec![HostId(3)])]);
    assert!(links.is_behind(HostId(3), PortId(0)) && links.is_behind(HostId(3), PortId(1)));
    assert!(!links.is_behind(HostId(1), PortId(0)) && !links.is_behind(HostId(4), PortId(1)));
}

#[test]
fn record_that_lies_is_refused_whole() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    let many = vec![3; MAX_LINKS + 1];
    for bad in [
        record(0, 1, 1, &[]),
        record(3, 1, 1, &[3]),
        record(3, 1, 1, &[0]),
        record(3, 1, 1, &[2, 2]),
        record(3, 1, 1, &[4, 2]),
        record(3, 1, 1, &many),
    ] {
        let records = vec![record(2, 1, 1, &[1]), bad];
        assert!(links.handle_link_states(PortId(0), records).is_err());
    }
    assert!(links.handle_link_states(PortId(0), vec![record(2, 1, 1, &[]); BATCH + 1]).is_err());
    assert!(!links.states.contains_key(&HostId(2)));
}

#[test]
fn record_by_a_cable_must_come_from_behind_it() {
    // 2 - 1 - 3 - 4
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_cable_up(PortId(1), HostId(3));
    let records = vec![record(2, 5, 2, &[1]), record(3, 5, 2, &[1, 4]), record(4, 5, 2, &[3])];
    links.handle_link_states(PortId(1), records).unwrap();
    let can_come = |host, neighbour, hops| links.can_come(HostId(host), HostId(neighbour), hops);
    assert!(can_come(2, 2, 1) && can_come(3, 3, 1) && can_come(4, 3, 2) && can_come(4, 3, 3));
    assert!(!can_come(4, 3, 1), "it is farther than that");
    assert!(!can_come(4, 2, 2) && !can_come(3, 2, 2), "the way from there passes us");
    assert!(!can_come(2, 2, 2) && !can_come(9, 2, 2));
}

#[test]
fn record_flood_of_one_origin_is_paced_and_the_last_counts() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_cable_up(PortId(1), HostId(3));
    let mut passed_on = 0;
    let mut last = 0;
    let mut listen = |links: &mut Links| {
        while let Some(records) = links.poll_output(PortId(1)) {
            for record in records.iter().filter(|record| record.origin == HostId(9)) {
                (passed_on, last) = (passed_on + 1, record.sequence);
            }
        }
        (passed_on, last)
    };
    for number in 1..=10_000 {
        links.handle_time(Duration::from_micros(100 * number));
        links.handle_link_states(PortId(0), vec![record(9, 5, number, &[2])]).unwrap();
        listen(&mut links);
    }
    assert!(listen(&mut links).0 <= 16 + 4 + 1, "{:?}", listen(&mut links));
    let due = links.poll_deadline();
    assert!(due <= Duration::from_millis(1300), "{due:?}");
    links.handle_time(due);
    assert_eq!(listen(&mut links).1, 10_000, "the newest one waited");
}

#[test]
fn record_not_renewed_expires_and_its_age_is_passed_on() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3]), record(3, 5, 2, &[2])]).unwrap();
    let later = Duration::from_secs(1000);
    links.handle_time(later);
    links.handle_cable_up(PortId(1), HostId(4));
    let told = links.poll_output(PortId(1)).unwrap();
    let age =
        |told: &[LinkState], origin| told.iter().find(|it| it.origin == HostId(origin)).map(|it| it.age);
    assert_eq!((age(&told, 3), age(&told, 1)), (Some(1001), Some(0)));
    // The same record with a younger age is news: other hosts were told that it is old.
    links.handle_link_states(PortId(0), vec![record(2, 5, 2, &[1, 3])]).unwrap();
    assert_eq!(links.poll_output(PortId(1)).unwrap(), [LinkState { age: 1, ..record(2, 5, 2, &[1, 3]) }]);
    links.handle_time(LIFE + LOOK);
    let known: Vec<u16> = links.hosts().map(|(host, _)| host.0).collect();
    assert_eq!((known, links.known()), (vec![2, 4], 2), "host 4 is next to us, and never said anything");
    let old = LinkState { age: 1800, ..record(3, 5, 2, &[2]) };
    links.handle_link_states(PortId(0), vec![old]).unwrap();
    assert_eq!(links.known(), 2);
}

/// Incarnations are compared modulo 2^64: a record that waited in a port's pace may be newer than the origin's record by
/// then. The origin, behind that port, must then get it, so that it can go above it.
#[test]
fn origin_receives_a_held_record_that_supersedes_its_own() {
    const HALF: u64 = 1 << 63;
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    for sequence in 1..=16 {
        links.handle_link_states(PortId(0), vec![record(2, 5, sequence, &[1])]).unwrap();
    }
    let waits = record(2, 5, 17, &[1, 3]);
    for next in [waits.clone(), record(2, 6 + HALF, 1, &[1])] {
        links.handle_link_states(PortId(0), vec![next]).unwrap();
    }
    while links.poll_output(PortId(0)).is_some() {}
    links.handle_time(Duration::from_secs(1));
    let said: Vec<LinkState> = std::iter::from_fn(|| links.poll_output(PortId(0))).flatten().collect();
    let about: Vec<_> =
        said.iter().map(|record| (record.origin, record.incarnation, record.sequence)).collect();
    assert_eq!(about, [(HostId(2), 5, 17)]);
}
