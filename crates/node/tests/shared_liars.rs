//! Neighbours that say what they must not through a host between that only hands on what they give (decision 33).

mod support;

use crosslane_shm::wake::{FarWaker, Receiver};
use crosslane_shm::{Outbound, Store};
use crosslane_wire::control::{Closing, Control, Doorbell};
use crosslane_wire::segment::{CREDIT, segment_len};
use crosslane_wire::{ChannelId, SegmentRange, Tuple, WaiterId};
use std::time::Duration;
use support::liar::Liar;
use support::*;

const RING: u64 = 1 << 16;
/// The opener's end of its channel, and the answerer's.
const ENDS: [ChannelId; 2] = [ChannelId(5), ChannelId(9)];

/// Host 1 between two liars, of which 2 opened a circuit to 3; the names by which they call host 1's ends.
struct Between {
    lab: Lab,
    before: Liar,
    behind: Liar,
    names: [ChannelId; 2],
    /// Where 3 stores, and where 2 does, by the memory that the other one gave.
    stores: [Outbound; 2],
}

fn tuple() -> Tuple {
    Tuple { client: "127.86.0.2:1000".parse().unwrap(), server: "127.86.0.3:80".parse().unwrap() }
}

fn between() -> Between {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true), port("d", true)], "");
    lab.start(1);
    let (mut before, mut behind) = (Liar::new(&lab, "c", 2), Liar::new(&lab, "d", 3));
    lab.wait(1, "both cables", |status| {
        status["ports"].as_array().unwrap().iter().all(|port| port["link"] == "up")
    });
    let (names, stores) = open(&mut before, &mut behind, ENDS);
    Between { lab, before, behind, names, stores }
}

/// Has a circuit made through host 1, with these ends; the names for host 1's, and the memory.
fn open(before: &mut Liar, behind: &mut Liar, ends: [ChannelId; 2]) -> ([ChannelId; 2], [Outbound; 2]) {
    let (given, _own) = before.cable.carve_inbound(segment_len(RING)).unwrap();
    before.say(&opening(ends[0], given));
    let Control::Open { channel: name_behind, segment, key, pumps, passed, .. } = behind.hear() else {
        panic!("not passed on")
    };
    assert_eq!((key, pumps, passed), (1, 0, 1), "it is the opener's memory");
    let far = behind.cable.carve_outbound(segment).unwrap();
    let (given, _own) = behind.cable.carve_inbound(segment_len(RING)).unwrap();
    let opened =
        Control::Opened { channel: name_behind, peer: ends[1], segment: given, key: 2, arrived: 0, pumps: 0 };
    behind.say(&opened);
    let Control::Opened { peer, segment, key, pumps, .. } = before.hear() else { panic!("not opened") };
    assert_eq!((key, pumps), (2, 0), "it is the answerer's memory");
    let near = before.cable.carve_outbound(segment).unwrap();
    ([peer, name_behind], [&far, &near].map(|segment| Outbound::map(segment).unwrap()))
}

fn opening(channel: ChannelId, segment: SegmentRange) -> Control {
    Control::Open {
        channel,
        tuple: tuple(),
        stream: 1000 + channel.0,
        segment,
        key: 1,
        passed: 0,
        pumps: 0,
        route: vec![crosslane_wire::HostId(3)],
        resume: None,
        twin_of: 0,
    }
}

/// Messages that are there, and come within a while.
fn all_of(liar: &mut Liar) -> Vec<Control> {
    let (mut all, mut buffer, mut idle) = (Vec::new(), Vec::new(), 0);
    while idle < 100 {
        liar.poll();
        match liar.cable.receive(&mut buffer) {
            Some(Control::LinkStates(_) | Control::Alive { .. }) => {}
            Some(message) => (idle, _) = (0, all.push(message)),
            None => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        liar.cable.flush();
    }
    all
}

#[test]
fn questions_that_a_neighbour_has_passed_on_are_bounded_and_all_are_answered() {
    let Between { lab, mut before, mut behind, names, .. } = between();
    for number in 1..=200 {
        before.say(&Control::WantWaker { channel: names[0], waiter: WaiterId(number) });
    }
    let no = all_of(&mut before);
    let asked = all_of(&mut behind);
    let is_no = |message: &Control| matches!(message, Control::Waker { doorbell: None, .. });
    assert!(asked.iter().all(|it| matches!(it, Control::WantWaker { channel, .. } if *channel == ENDS[1])));
    assert_eq!((no.len(), asked.len()), (136, 64));
    assert!(no.iter().all(is_no));
    // One answer names a waker that is not there, one is for nobody, and one is good.
    let event = Receiver::new().unwrap();
    let doorbell = behind.cable.export_waker(&event.waker().unwrap());
    for (waiter, doorbell) in [(2, Some(Doorbell { handle: 77, word: 1 })), (9999, None), (1, doorbell)] {
        behind.say(&Control::Waker { channel: ENDS[1], waiter: WaiterId(waiter), doorbell });
    }
    let answers = all_of(&mut before);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(is_no(&answers[0]));
    let Control::Waker { channel, waiter: WaiterId(1), doorbell: Some(doorbell) } = answers[1] else {
        panic!("{answers:?}")
    };
    assert_eq!(channel, names[0], "as it was asked");
    before.cable.want_waker(names[0], WaiterId(1));
    let waker = before.cable.import_waker(Some(doorbell)).expect("it came through");
    let FarWaker::Own(waker) = waker else { panic!("{waker:?}") };
    waker.wake();
    assert!(event.clear(), "and wakes");
    assert_eq!(lab.status(1)["counters"]["violations"], 0);
}

/// Far ends number their waiters as they like: whose an answer is, the channel says.
#[test]
fn wakers_of_one_number_behind_two_channels_are_not_taken_for_each_other() {
    let Between { lab, mut before, mut behind, names, .. } = between();
    let others = [ChannelId(6), ChannelId(10)];
    let (other_names, _stores) = open(&mut before, &mut behind, others);
    let waiter = WaiterId(1);
    for channel in [names[0], other_names[0]] {
        before.say(&Control::WantWaker { channel, waiter });
    }
    assert_eq!(all_of(&mut behind).len(), 2);
    // The later question is answered first.
    let event = Receiver::new().unwrap();
    let doorbell = behind.cable.export_waker(&event.waker().unwrap());
    for (channel, doorbell) in [(others[1], doorbell), (ENDS[1], None)] {
        behind.say(&Control::Waker { channel, waiter, doorbell });
    }
    let answers = all_of(&mut before).into_iter().map(|answer| match answer {
        Control::Waker { channel, doorbell, .. } => (channel, doorbell.is_some()),
        other => panic!("{other:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(other_names[0], true), (names[0], false)]);
    assert_eq!(lab.status(1)["counters"]["violations"], 0);
}

#[test]
fn wakes_for_a_neighbour_that_does_not_read_cost_it_no_cable() {
    let Between { lab, mut before, mut behind, names, .. } = between();
    for number in 0..30_000_u32 {
        before.say(&Control::Wake { channel: names[0], waiter: WaiterId(number) });
        if number % 500 == 0 {
            before.poll();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    lab.wait(1, "both cables are up", |status| {
        status["ports"].as_array().unwrap().iter().all(|port| port["link"] == "up")
    });
    let heard = all_of(&mut behind);
    assert!(!heard.is_empty() && heard.len() < 30_000, "{}", heard.len());
    assert!(heard.iter().all(|it| matches!(it, Control::Wake { channel, .. } if *channel == ENDS[1])));
    behind.say(&Control::Closed { channel: names[1], how: Closing::Abort });
    assert_eq!(all_of(&mut before), [Control::Closed { channel: ENDS[0], how: Closing::Abort }]);
}

#[test]
fn words_of_a_shared_segment_that_lie_harm_their_own_count_only() {
    let Between { lab, mut before, mut behind, names, stores } = between();
    for word in [1 << 20, u64::MAX, 0, u64::MAX / 2] {
        stores.iter().for_each(|segment| segment.store_u64(CREDIT, word));
        assert!(lab.status(1)["counters"]["transit_bytes"].is_u64());
    }
    before.say(&Control::Closed { channel: names[0], how: Closing::Done });
    assert_eq!(all_of(&mut behind), [Control::Closed { channel: ENDS[1], how: Closing::Done }]);
    behind.say(&Control::Closed { channel: names[1], how: Closing::Done });
    assert_eq!(all_of(&mut before), [Control::Closed { channel: ENDS[0], how: Closing::Done }]);
    lab.wait_idle(1);
    assert!(lab.status(1)["counters"]["transit_bytes"].is_u64());
}
