//! Bringing a cable up: the ring study's procedure on scratchpads and one doorbell.
//!
//! ```text
//!              link up: prepare channels, write words, MAGIC last, ring
//!   [Down] ------------------------------------------> [Announced]
//!     ^                                                    | peer's words are there and good:
//!     | link down                                          | write READY and an echo of its key, ring
//!     | (from every state)                                 v
//!     |            peer's READY echoes our key          [Ready]
//!     +----[Up] <------------------------------------------+
//!     |     |  peer's words changed: it began anew         | words are bad: other version, our own id, ...
//!     |     +------------> [Announced] with new words      v
//!     +----------------------------------------------- [Refused] -- words changed --> [Announced]
//! ```
//! READY is believed only if it echoes the key that we wrote last, so words that lie in the scratchpads from an
//! earlier life never bring a cable up.

use crate::host_ok;
use crosslane_wire::scratchpad::{MAGIC, READY, Setup, WORDS};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION};
use std::collections::VecDeque;

/// What shall be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Put fresh memory behind the channels at the start of the window: the words that follow announce it.
    Prepare,
    /// Write this word into the peer's scratchpad.
    Write {
        /// Number of the scratchpad.
        index: usize,
        /// The word.
        value: u32,
    },
    /// Ring the peer's doorbell of set-up.
    Ring,
    /// The cable is up.
    Up(Agreement),
    /// The cable was up and is not any more.
    Down,
    /// The cable will not come up; for people.
    Refused(String),
}

/// What both sides of a cable agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The host at the other end.
    pub peer: HostId,
    /// The larger of the two proposals.
    pub epoch: Epoch,
    /// Bytes of the peer's inbound memory.
    pub peer_window: u64,
    /// Key of what the peer writes.
    pub rx_key: u32,
    /// Key of what we write.
    pub tx_key: u32,
}

/// What state a cable is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No link.
    Down,
    /// We wrote our words and wait for the peer's.
    Announced,
    /// We read the peer's words and wait until it has read ours.
    Ready,
    /// In use.
    Up(Agreement),
    /// The two sides do not fit; for people.
    Refused(String),
}

/// One side of one cable.
#[derive(Debug)]
pub struct CableSetup {
    host: HostId,
    window: u64,
    state: State,
    epoch: Epoch,
    key: u32,
    seen: Option<Setup>,
    outputs: VecDeque<Output>,
}

impl CableSetup {
    /// A cable of `host`, whose inbound memory is `window` bytes. `epoch` is the last one that is known of.
    pub fn new(host: HostId, window: u64, epoch: Epoch) -> Self {
        Self { host, window, state: State::Down, epoch, key: 0, seen: None, outputs: VecDeque::new() }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last epoch that was agreed upon; 0 if none was.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The link came up; `words` is what lies in the scratchpads already: the peer may have been faster. `key` is
    /// random.
    pub fn handle_link_up(&mut self, words: [u32; WORDS], key: u32) {
        self.leave_up();
        self.announce(key);
        self.handle_words(words, key);
    }

    /// The link went down.
    pub fn handle_link_down(&mut self) {
        self.leave_up();
        self.seen = None;
        self.state = State::Down;
    }

    /// The scratchpads as they are now; asked for after each doorbell of set-up. `key` is random, used if set-up must
    /// begin anew.
    pub fn handle_words(&mut self, words: [u32; WORDS], key: u32) {
        if self.state == State::Down {
            return;
        }
        let setup = match Setup::from_words(words) {
            Ok(Some(setup)) => setup,
            Ok(None) => return self.begin_anew(key),
            Err(error) => return self.refuse(format!("peer's scratchpads make no sense: {error}")),
        };
        let same = self.seen.is_some_and(|seen| same_life(&seen, &setup));
        if !same && matches!(self.state, State::Up(_)) {
            self.leave_up();
            self.announce(key);
        }
        if let Err(text) = self.check(&setup) {
            self.seen = Some(setup);
            return self.refuse(text);
        }
        if !same || matches!(self.state, State::Announced | State::Refused(_)) {
            self.acknowledge(setup);
        }
        self.confirm(&setup);
    }

    /// Takes our words back, so that the peer stops using the cable, and forgets it until [`Self::handle_link_up`].
    pub fn withdraw(&mut self) {
        self.handle_link_down();
        self.write(0, 0);
        self.outputs.push_back(Output::Ring);
    }

    /// What shall be done next, in this order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The peer took its words back, or has not written them yet.
    fn begin_anew(&mut self, key: u32) {
        if self.state != State::Announced {
            self.leave_up();
            self.announce(key);
        }
    }

    fn leave_up(&mut self) {
        if matches!(self.state, State::Up(_)) {
            self.outputs.push_back(Output::Down);
        }
    }

    fn announce(&mut self, key: u32) {
        self.key = key;
        self.seen = None;
        self.state = State::Announced;
        let words = self.words(0);
        self.outputs.push_back(Output::Prepare);
        self.write(0, 0);
        for (index, value) in words.into_iter().enumerate().skip(1) {
            self.write(index, value);
        }
        self.write(0, MAGIC);
        self.outputs.push_back(Output::Ring);
    }

    fn words(&self, flags: u32) -> [u32; WORDS] {
        Setup {
            version: PROTOCOL_VERSION,
            host: self.host,
            epoch: self.proposal(),
            window: self.window,
            key: self.key,
            flags,
        }
        .to_words()
    }

    fn proposal(&self) -> Epoch {
        Epoch(self.epoch.0.saturating_add(1))
    }

    fn write(&mut self, index: usize, value: u32) {
        self.outputs.push_back(Output::Write { index, value });
    }

    fn check(&self, setup: &Setup) -> Result<(), String> {
        if setup.version != PROTOCOL_VERSION {
            return Err(format!(
                "peer speaks protocol version {}, we speak {PROTOCOL_VERSION}: install the same release on both",
                setup.version
            ));
        }
        if setup.host == self.host {
            return Err(format!("two hosts have the id {}: give each host its own", self.host));
        }
        if !host_ok(setup.host) {
            return Err(format!("peer's host id {} is out of range", setup.host));
        }
        if setup.epoch.0 == 0 || setup.window == 0 {
            return Err("peer proposes no epoch or no window".to_owned());
        }
        // Else the next one could not be larger, and what is of this one would be believed then.
        if self.proposal().max(setup.epoch) == Epoch(u32::MAX) {
            return Err("the cable's epochs are used up: restart both daemons".to_owned());
        }
        Ok(())
    }

    fn refuse(&mut self, text: String) {
        self.leave_up();
        if self.state != State::Refused(text.clone()) {
            self.state = State::Refused(text.clone());
            self.outputs.push_back(Output::Refused(text));
        }
    }

    fn acknowledge(&mut self, setup: Setup) {
        self.seen = Some(setup);
        self.state = State::Ready;
        let flags = ready_flags(setup.key);
        self.write(WORDS - 1, flags);
        self.outputs.push_back(Output::Ring);
    }

    fn confirm(&mut self, setup: &Setup) {
        if self.state != State::Ready || setup.flags != ready_flags(self.key) {
            return;
        }
        self.epoch = self.proposal().max(setup.epoch);
        let agreement = Agreement {
            peer: setup.host,
            epoch: self.epoch,
            peer_window: setup.window,
            rx_key: setup.key,
            tx_key: self.key,
        };
        self.state = State::Up(agreement);
        self.outputs.push_back(Output::Up(agreement));
    }
}

/// READY, and the low 31 bits of the key that was read.
fn ready_flags(key: u32) -> u32 {
    READY | key << 1
}

/// Whether both sets of words are of one life of the peer: all but the flags.
fn same_life(a: &Setup, b: &Setup) -> bool {
    Setup { flags: 0, ..*a } == Setup { flags: 0, ..*b }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn both_sides_agree() {
        let mut pair = Pair::new(1, 2);
        pair.up(0);
        pair.up(1);
        let (a, b) = (pair.agreement(0), pair.agreement(1));
        assert_eq!((a.peer, b.peer, a.epoch, b.epoch), (HostId(2), HostId(1), Epoch(1), Epoch(1)));
        assert_eq!((a.rx_key, a.tx_key), (b.tx_key, b.rx_key));
    }

    #[test]
    fn a_restarted_peer_raises_the_epoch_with_stale_scratchpads_and_no_link_event() {
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
    fn link_loss_on_both_sides_and_back() {
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
    fn a_side_that_withdraws_takes_the_other_down_and_comes_back() {
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
    fn two_hosts_of_one_id_refuse_each_other() {
        let mut pair = Pair::new(3, 3);
        pair.up(0);
        pair.up(1);
        for side in 0..2 {
            assert!(matches!(pair.sides[side].state(), State::Refused(why) if why.contains("id 3")));
        }
    }

    #[test]
    fn another_version_is_refused_until_the_peer_begins_anew() {
        let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
        side.handle_link_up([0; WORDS], 5);
        let good = Setup {
            version: PROTOCOL_VERSION,
            host: HostId(2),
            epoch: Epoch(1),
            window: 1,
            key: 9,
            flags: 0,
        };
        side.handle_words(Setup { version: 99, ..good }.to_words(), 6);
        assert!(matches!(side.state(), State::Refused(why) if why.contains("version 99")));
        side.handle_words(Setup { flags: READY | 5 << 1, ..good }.to_words(), 6);
        assert!(matches!(side.state(), State::Up(_)));
    }

    #[test]
    fn no_epoch_counts_twice_however_large_the_peers_are() {
        let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
        let mut epochs = Vec::new();
        for (key, epoch) in [(5, u32::MAX), (6, u32::MAX - 1), (7, 1), (8, 1)] {
            let flags = READY | key << 1;
            let peer = Setup {
                version: PROTOCOL_VERSION,
                host: HostId(2),
                epoch: Epoch(epoch),
                window: 1,
                key,
                flags,
            };
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
    fn rubbish_is_refused() {
        let mut side = CableSetup::new(HostId(1), 4096, Epoch(0));
        side.handle_link_up([0; WORDS], 5);
        for words in [[u32::MAX; WORDS], [MAGIC, 1, 70_000, 1, 1, 0, 0, 0], [MAGIC, 1, 2, 0, 0, 0, 0, 1]] {
            side.handle_words(words, 6);
            assert!(matches!(side.state(), State::Refused(_)));
        }
    }
}
