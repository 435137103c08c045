use super::*;

fn record(origin: u16, incarnation: u64, sequence: u64, to: &[u16]) -> LinkState {
    let neighbours = to.iter().map(|to| HostId(*to)).collect();
    LinkState { origin: HostId(origin), incarnation, sequence, neighbours, age: 0, seal: None }
}

#[test]
fn stale_records_are_ignored_and_answered_with_the_newer_one() {
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
fn links_are_those_that_both_hosts_declare_and_that_can_be_reached() {
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
fn a_twin_is_told_from_our_own_earlier_life() {
    let mut links = Links::new(HostId(1), 10);
    links.handle_cable_up(PortId(0), HostId(2));
    links.handle_link_states(PortId(0), vec![record(1, 50, 9, &[3])]).unwrap();
    assert!(!links.has_twin());
    let sent = links.poll_output(PortId(0)).unwrap();
    assert!(sent.iter().any(|own| own.origin == HostId(1) && own.incarnation == 51));
    for round in 0..10 {
        links.handle_link_states(PortId(0), vec![record(1, 60 + round, 1, &[3])]).unwrap();
    }
    assert!(links.has_twin());
}

#[test]
fn one_way_round_takes_the_long_way_too() {
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
fn lies_are_refused_whole() {
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
fn what_comes_by_a_cable_comes_from_behind_it() {
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
