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
