//! A peer that stores anything into the scratchpads, in any order with link events: a cable comes up only for good
//! words that answer ours, with an epoch of its own each time, and an honest peer can follow.

use bolero::TypeGenerator;
use crosslane_fabric::host_ok;
use crosslane_fabric::setup::{CableSetup, Output, State};
use crosslane_wire::scratchpad::{MAGIC, READY, Setup, WORDS};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION};

const OWN: HostId = HostId(1);
const PEER: HostId = HostId(2);
/// More than any one event may want done.
const MOST: usize = 64;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    LinkUp,
    LinkDown,
    Withdraw,
    /// The doorbell of set-up.
    Bell,
    /// A word of the peer's.
    Store(u8, Word),
    /// All words of a side that is honest but for these.
    Words {
        host: u8,
        epoch: u8,
        window: u8,
        key: u8,
        version: bool,
    },
}

#[derive(Clone, Debug, TypeGenerator)]
enum Word {
    Any(u32),
    Small(u8),
    Magic,
    Version,
    /// The answer to the key that we wrote last, with these bits changed.
    Echo(u8),
    Largest(u8),
}

/// What is tried, and what its peer sees.
struct Victim {
    setup: CableSetup,
    /// Our scratchpads, which the peer writes.
    pads: [u32; WORDS],
    /// The peer's, which we write.
    written: [u32; WORDS],
    up: bool,
    last: Epoch,
    key: u32,
}

impl Victim {
    fn new() -> Self {
        let setup = CableSetup::new(OWN, 1 << 30, Epoch(0));
        let (pads, written) = ([0; WORDS], [0; WORDS]);
        Self { setup, pads, written, up: false, last: Epoch(0), key: 1 }
    }

    fn next_key(&mut self) -> u32 {
        self.key = self.key.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.key
    }

    fn apply(&mut self, step: &Step) {
        let key = self.next_key();
        match step {
            Step::LinkUp => self.setup.handle_link_up(self.pads, key),
            Step::LinkDown => self.setup.handle_link_down(),
            Step::Withdraw => self.setup.withdraw(),
            Step::Bell => self.setup.handle_words(self.pads, key),
            Step::Store(index, word) => self.store(usize::from(*index), word),
            Step::Words { host, epoch, window, key, version } => {
                let version = PROTOCOL_VERSION + u32::from(!version);
                let (host, epoch) = (HostId((*host).into()), Epoch((*epoch).into()));
                let flags = READY | self.written[6] << 1;
                let (window, key) = ((*window).into(), (*key).into());
                self.pads = Setup { version, host, epoch, window, key, flags }.to_words();
            }
        }
        self.take_outputs();
    }

    fn store(&mut self, index: usize, word: &Word) {
        self.pads[index % WORDS] = match word {
            Word::Any(word) => *word,
            Word::Small(word) => (*word).into(),
            Word::Magic => MAGIC,
            Word::Version => PROTOCOL_VERSION,
            Word::Echo(bits) => (READY | self.written[6] << 1) ^ u32::from(*bits),
            Word::Largest(less) => u32::MAX - u32::from(*less),
        };
    }

    fn take_outputs(&mut self) {
        for count in 0.. {
            assert!(count < MOST, "one event wants more than {MOST} things done");
            match self.setup.poll_output() {
                None => break,
                Some(Output::Write { index, value }) => self.written[index] = value,
                Some(Output::Up(agreement)) => {
                    assert!(!self.up, "up twice");
                    self.up = true;
                    let words = Setup::from_words(self.pads).unwrap().unwrap();
                    assert_eq!((words.version, words.host), (PROTOCOL_VERSION, agreement.peer));
                    assert_eq!(words.flags, READY | agreement.tx_key << 1, "an answer to another key");
                    assert!(host_ok(agreement.peer) && agreement.peer != OWN && agreement.peer_window > 0);
                    assert!(agreement.epoch > self.last && agreement.epoch < Epoch(u32::MAX));
                    self.last = agreement.epoch;
                }
                Some(Output::Down) => assert!(std::mem::take(&mut self.up), "down twice"),
                Some(Output::Prepare | Output::Ring | Output::Refused(_)) => {}
            }
        }
        assert_eq!(self.up, matches!(self.setup.state(), State::Up(_)), "{:?}", self.setup.state());
    }

    /// The liar is gone, and an honest peer comes.
    fn joins_an_honest_one(&mut self) {
        self.apply(&Step::LinkDown);
        let mut peer = CableSetup::new(PEER, 1 << 30, Epoch(0));
        self.pads = [0; WORDS];
        self.apply(&Step::LinkUp);
        peer.handle_link_up(self.written, 77);
        for _ in 0..10 {
            while let Some(output) = peer.poll_output() {
                if let Output::Write { index, value } = output {
                    self.pads[index] = value;
                }
            }
            self.apply(&Step::Bell);
            peer.handle_words(self.written, 77);
        }
        let used_up = self.last >= Epoch(u32::MAX - 2);
        assert!(self.up || used_up, "{:?}, {:?}", self.setup.state(), peer.state());
    }
}

#[test]
fn scratchpads_hostile_words_do_no_harm() {
    bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut victim = Victim::new();
        for step in steps {
            victim.apply(step);
        }
        victim.joins_an_honest_one();
    });
}
