//! Circuits that pass through a host.

use crate::{LATE, PATH, PATIENCE, PORT, SEGMENT, circuits, closed, opened, refused};
use crosslane_fabric::Circuits;
use crosslane_fabric::circuit::{Death, Output, Path};
use crosslane_wire::control::{Closing, Control, Refusal};
use crosslane_wire::{ChannelId, HostId, PortId, TransitId};

/// A host that was asked for a circuit through it, from port 0 to port 1; the neighbour calls its channel 50.
fn host_asked() -> (Circuits, TransitId, [ChannelId; 2]) {
    let mut host = circuits(PATIENCE);
    let behind = Path { port: PortId(1), ..PATH };
    let (transit, channels) = host.transit(PATH, ChannelId(50), behind, (LATE, Closing::Abort));
    (host, transit, channels)
}

/// The same once the circuit is there; the neighbour behind calls its channel 60.
fn host_between() -> (Circuits, TransitId, [ChannelId; 2]) {
    let (mut host, transit, channels) = host_asked();
    host.handle_message(PortId(1), opened(channels[1], ChannelId(60), 3, 4)).unwrap();
    let passed = Output::Passed { transit, segment: SEGMENT, key: 3, arrived: 4, pumps: 0 };
    assert_eq!(host.poll_output(), Some(passed));
    host.pass(transit, (SEGMENT, 5), 4, 0);
    let message = opened(ChannelId(50), channels[0], 5, 4);
    assert_eq!(host.poll_output(), Some(Output::Send { port: PORT, message }));
    (host, transit, channels)
}

fn sent(host: &mut Circuits) -> Vec<(PortId, Control)> {
    let mut all = Vec::new();
    while let Some(output) = host.poll_output() {
        if let Output::Send { port, message } = output {
            all.push((port, message));
        }
    }
    all
}

#[test]
fn transit_closes_in_order_once_drained() {
    let (mut host, transit, channels) = host_between();
    host.handle_message(PORT, closed(channels[0], Closing::Done)).unwrap();
    assert_eq!(host.poll_output(), Some(Output::Drain { transit, side: 0 }));
    assert_eq!(host.poll_output(), None);
    host.drained(transit, 1);
    assert_eq!(host.poll_output(), None, "the other side did not close");
    host.drained(transit, 0);
    let done = |channel| closed(ChannelId(channel), Closing::Done);
    assert_eq!(sent(&mut host), [(PortId(1), done(60))], "one side hears of the other");
    host.handle_message(PortId(1), closed(channels[1], Closing::Done)).unwrap();
    assert_eq!(sent(&mut host), [(PORT, done(50))], "and the other that it was heard");
    assert_eq!((host.transits().count(), host.channel_count()), (0, 0));
}

#[test]
fn transit_reports_a_loss_to_a_side_that_closed_before_the_other_confirmed() {
    let (mut host, transit, channels) = host_between();
    host.handle_message(PortId(1), closed(channels[1], Closing::Done)).unwrap();
    assert_eq!(host.poll_output(), Some(Output::Drain { transit, side: 1 }));
    host.drained(transit, 1);
    assert_eq!(sent(&mut host), [(PORT, closed(ChannelId(50), Closing::Done))]);
    host.handle_link_down(PORT, HostId(1), Death::Cable);
    assert_eq!(sent(&mut host), [(PortId(1), closed(ChannelId(60), Closing::Lost))]);
    assert_eq!((host.transits().count(), host.channel_count()), (0, 0));
}

#[test]
fn transit_passes_failures_to_the_other_side() {
    for how in [Closing::Abort, Closing::Lost] {
        let (mut host, transit, channels) = host_between();
        host.handle_message(PortId(1), closed(channels[1], how)).unwrap();
        assert_eq!(host.poll_output(), Some(Output::Stop { transit }));
        assert!(sent(&mut host).contains(&(PORT, closed(ChannelId(50), how))));
    }
    let (mut host, transit, _) = host_between();
    host.handle_link_down(PORT, HostId(1), Death::Cable);
    assert_eq!(host.poll_output(), Some(Output::Stop { transit }));
    assert_eq!(sent(&mut host), [(PortId(1), closed(ChannelId(60), Closing::Lost))]);
}

#[test]
fn transit_refusal_gives_its_reason() {
    let (mut host, _, channels) = host_asked();
    host.handle_message(PortId(1), refused(channels[1], Refusal::NoListener)).unwrap();
    assert_eq!(sent(&mut host), [(PORT, refused(ChannelId(50), Refusal::NoListener))]);
    assert_eq!((host.transits().count(), host.channel_count()), (0, 0));
}

#[test]
fn transit_arrived_may_cross_the_end_of_its_circuit() {
    let (mut host, _, channels) = host_between();
    host.handle_silence(PortId(1), HostId(2));
    assert_eq!(host.handle_message(PORT, Control::Arrived { channel: channels[0], units: 5 }), Ok(()));
    assert!(!sent(&mut host).iter().any(|(_, message)| matches!(message, Control::Arrived { .. })));
    assert!(host.handle_message(PORT, Control::Arrived { channel: ChannelId(77), units: 5 }).is_err());
}
