//! Cables that come up, by two sides and by one that lies.

use crosslane_fabric::setup::{Agreement, CableSetup, Output, State};
use crosslane_wire::scratchpad::{MAGIC, READY, Setup, WORDS};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION};

/// Two sides and their scratchpads; `drain` plays the cable.
struct Pair {
    sides: [CableSetup; 2],
    pads: [[u32; WORDS]; 2],
    bells: [bool; 2],
    events: [Vec<Output>; 2],
    keys: u32,
}

impl Pair {
    fn new(a: u16, b: u16) -> Self {
        let side = |host| CableSetup::new(HostId(host), 1 << 30, Epoch(0));
        Self {
            sides: [side(a), side(b)],
            pads: [[0; WORDS]; 2],
            bells: [false; 2],
            events: [vec![], vec![]],
            keys: 7,
        }
    }

    fn key(&mut self) -> u32 {
        self.keys = self.keys.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.keys
    }

    fn up(&mut self, side: usize) {
        let key = self.key();
        self.sides[side].handle_link_up(self.pads[side], key);
        self.drain();
    }

    fn drain(&mut self) {
        for _ in 0..100 {
            for side in 0..2 {
                while let Some(output) = self.sides[side].poll_output() {
                    match output {
                        Output::Write { index, value } => self.pads[1 - side][index] = value,
                        Output::Ring => self.bells[1 - side] = true,
                        other => self.events[side].push(other),
                    }
                }
            }
            for side in 0..2 {
                if std::mem::take(&mut self.bells[side]) {
                    let key = self.key();
                    self.sides[side].handle_words(self.pads[side], key);
                }
            }
        }
        assert_eq!(self.bells, [false; 2], "set-up does not come to rest");
    }

    fn agreement(&self, side: usize) -> Agreement {
        match self.sides[side].state() {
            State::Up(agreement) => *agreement,
            other => panic!("side {side} is {other:?}"),
        }
    }
}

#[test]
fn setup_both_sides_agree() {
    let mut pair = Pair::new(1, 2);
    pair.up(0);
    pair.up(1);
    let (a, b) = (pair.agreement(0), pair.agreement(1));
    assert_eq!((a.peer, b.peer, a.epoch, b.epoch), (HostId(2), HostId(1), Epoch(1), Epoch(1)));
    assert_eq!((a.rx_key, a.tx_key), (b.tx_key, b.rx_key));
}

#[test]
fn epoch_rises_on_peer_restart_with_stale_scratchpads_and_no_link_event() {
    let mut pair = Pair::new(1, 2);
    pair.up(0);
    pair.up(1);
    pair.sides[1] = CableSetup::new(HostId(2), 1 << 30, Epoch(0));
    pair.up(1);
    assert_eq!((pair.agreement(0).epoch, pair.agreement(1).epoch), (Epoch(2), Epoch(2)));
    assert!(pair.events[0].contains(&Output::Down));
    assert_eq!(pair.agreement(0).rx_key, pair.agreement(1).tx_key);
}

#[test]
fn link_loss_on_both_sides_and_recovery() {
    let mut pair = Pair::new(1, 2);
    for round in 1..5 {
        pair.up(1);
        pair.up(0);
        assert_eq!(pair.agreement(0).epoch, Epoch(round));
        pair.sides[0].handle_link_down();
        pair.sides[1].handle_link_down();
        pair.drain();
    }
}

#[test]
fn setup_withdrawn_takes_the_other_side_down_and_recovers() {
    let mut pair = Pair::new(1, 2);
    pair.up(0);
    pair.up(1);
    pair.sides[0].withdraw();
    pair.drain();
    assert_eq!(*pair.sides[1].state(), State::Announced);
    pair.up(0);
    assert_eq!((pair.agreement(0).epoch, pair.agreement(1).epoch), (Epoch(2), Epoch(2)));
}

#[test]
fn setup_refuses_a_duplicate_id() {
    let mut pair = Pair::new(3, 3);
    pair.up(0);
    pair.up(1);
    for side in 0..2 {
        assert!(matches!(pair.sides[side].state(), State::Refused(why) if why.contains("id 3")));
    }
}

#[test]
fn setup_refuses_another_version_until_the_peer_begins_anew() {
    let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
    side.handle_link_up([0; WORDS], 5);
    let good =
        Setup { version: PROTOCOL_VERSION, host: HostId(2), epoch: Epoch(1), window: 1, key: 9, flags: 0 };
    side.handle_words(Setup { version: 99, ..good }.to_words(), 6);
    assert!(matches!(side.state(), State::Refused(why) if why.contains("version 99")));
    side.handle_words(Setup { flags: READY | 5 << 1, ..good }.to_words(), 6);
    assert!(matches!(side.state(), State::Up(_)));
}

#[test]
fn epoch_never_counts_twice_however_large_the_peers() {
    let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
    let mut epochs = Vec::new();
    for (key, epoch) in [(5, u32::MAX), (6, u32::MAX - 1), (7, 1), (8, 1)] {
        let flags = READY | key << 1;
        let peer =
            Setup { version: PROTOCOL_VERSION, host: HostId(2), epoch: Epoch(epoch), window: 1, key, flags };
        side.handle_link_up(peer.to_words(), key);
        epochs.extend(match side.state() {
            State::Up(agreement) => Some(agreement.epoch.0),
            _ => None,
        });
        side.handle_link_down();
    }
    assert_eq!(epochs, [u32::MAX - 1]);
}

#[test]
fn setup_refuses_rubbish() {
    let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
    side.handle_link_up([0; WORDS], 5);
    for words in [[u32::MAX; WORDS], [MAGIC, 1, 70_000, 1, 1, 0, 0, 0], [MAGIC, 1, 2, 0, 0, 0, 0, 1]] {
        side.handle_words(words, 6);
        assert!(matches!(side.state(), State::Refused(_)));
    }
}
