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
//! READY counts only if it echoes the key that this side wrote last, so stale words in the scratchpads never bring a cable up.

use crate::host_ok;
use crosslane_wire::scratchpad::{MAGIC, READY, Setup, WORDS};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION};
use std::collections::VecDeque;

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make new memory for the channels at the start of the window: the words that follow announce it.
    Prepare,
    /// Write this word into the peer's scratchpad.
    Write {
        /// Number of the scratchpad.
        index: usize,
        /// The word.
        value: u32,
    },
    /// Ring the peer's set-up doorbell.
    Ring,
    /// The cable is up.
    Up(Agreement),
    /// The cable was up and is down now.
    Down,
    /// The cable will not come up; the text is for display.
    Refused(String),
}

/// What both sides of a cable have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The host at the other end.
    pub peer: HostId,
    /// The larger of the two proposals.
    pub epoch: Epoch,
    /// Bytes of the peer's inbound memory.
    pub peer_window: u64,
    /// Key of the marks that the peer writes.
    pub rx_key: u32,
    /// Key of the marks that this side writes.
    pub tx_key: u32,
}

/// State of a cable's set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No link.
    Down,
    /// This side wrote its words and waits for the peer's.
    Announced,
    /// This side read the peer's words and waits until the peer has read its own.
    Ready,
    /// In use.
    Up(Agreement),
    /// The two sides do not match; the text is for display.
    Refused(String),
}

/// One side of one cable's set-up.
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
    /// A cable of `host`, whose inbound memory is `window` bytes. `epoch` is the last known epoch.
    pub fn new(host: HostId, window: u64, epoch: Epoch) -> Self {
        Self { host, window, state: State::Down, epoch, key: 0, seen: None, outputs: VecDeque::new() }
    }

    /// The present state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last epoch that was agreed on; 0 if none.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The link came up; `words` is the present content of the scratchpads: the peer may have been faster. `key` is random.
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

    /// The scratchpads' present content; to be called after each set-up doorbell. `key` is random, used if set-up must start again.
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

    /// Clears this side's words, so that the peer stops using the cable, and ignores the cable until [`Self::handle_link_up`].
    pub fn withdraw(&mut self) {
        self.handle_link_down();
        self.write(0, 0);
        self.outputs.push_back(Output::Ring);
    }

    /// The next action; the caller executes them in this order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The peer cleared its words, or has not written them yet: starts again.
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
        // The next epoch could not be larger, and messages of this one would then be accepted.
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

/// READY, and an echo of the low 31 bits of the key that was read.
fn ready_flags(key: u32) -> u32 {
    READY | key << 1
}

/// Whether both sets of words are of one life of the peer: equal except for the flags.
fn same_life(a: &Setup, b: &Setup) -> bool {
    Setup { flags: 0, ..*a } == Setup { flags: 0, ..*b }
}
