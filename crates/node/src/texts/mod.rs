//! Texts that sessions and readers of the metrics ask for.
//!
//! ```text
//!   the daemon's thread                              the thread `texts`                       threads aside
//!   asked --> a snapshot, piece by piece ----------> the text for each viewer's sight ------> to the program
//!     ^  (all who ask meanwhile wait for the next)   HTTP: accept, read, write
//!     +------- what the text costs its user -------------------+
//! ```
//! A snapshot is begun at most every 10 ms, its pieces take a tenth of the time at most, and one serves everybody who asked
//! before it was begun: what a text tells is never older than the question. Making texts is the work of a thread that gives way
//! to others, users in turns; sending them is done [aside](crosslane_passing::aside).

mod queue;
mod send;
mod writer;

pub use writer::Writer;

use crate::session_id::SessionId;
use crate::snapshot::collect::Collector;
use crosslane_passing::Foreign;
use std::sync::Arc;
use std::time::Duration;

/// Least time between the beginnings of two snapshots.
const EVERY: Duration = Duration::from_millis(10);
/// So many times as long as a piece of a snapshot took to copy, none is copied.
const PAUSE: u32 = 9;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `Status`.
    Status,
    /// `Metrics`.
    Metrics,
    /// `Explain` of a process.
    Explain(u32),
    /// `Hosts`.
    Hosts,
}

/// A text that a session waits for.
#[derive(Debug)]
pub struct Asked {
    text: Text,
    uid: u32,
    session: SessionId,
    socket: Arc<Foreign>,
}

/// What was asked for, and the snapshot that is being made.
#[derive(Debug)]
pub struct Texts {
    writer: Writer,
    /// Since the last snapshot was begun.
    asked: Vec<Asked>,
    /// Before that.
    serving: Vec<Asked>,
    /// Whether readers of the metrics wait for the next one.
    scraped: bool,
    collector: Option<Box<Collector>>,
    /// When the next piece may be copied.
    next: Duration,
    begun: Duration,
}

impl Texts {
    /// Nothing yet.
    pub fn new(writer: Writer) -> Self {
        Self {
            writer,
            asked: Vec::new(),
            serving: Vec::new(),
            scraped: false,
            collector: None,
            next: Duration::ZERO,
            begun: Duration::ZERO,
        }
    }

    /// What makes the texts.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// When the next piece is copied, if one is wanted.
    pub fn deadline(&self) -> Option<Duration> {
        let is_wanted = self.collector.is_some() || self.scraped || !self.asked.is_empty();
        is_wanted.then_some(self.next)
    }

    /// A reader of the metrics waits.
    pub fn scrape(&mut self) {
        self.scraped = true;
    }

    /// The snapshot that is being made.
    #[cfg(test)]
    pub(crate) fn collector(&self) -> Option<&Collector> {
        self.collector.as_deref()
    }

    /// The same, for what must be copied early.
    pub(crate) fn collector_mut(&mut self) -> Option<&mut Collector> {
        self.collector.as_deref_mut()
    }

    /// A session asks for a text, by a socket that it is sent to.
    pub(crate) fn ask(&mut self, text: Text, (session, uid): (SessionId, u32), socket: Arc<Foreign>) {
        self.asked.push(Asked { text, uid, session, socket });
    }

    /// Whether a piece is to be copied now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// What the next piece is copied to, which [`Self::put`] takes back.
    pub(crate) fn take(&mut self, now: Duration) -> Piece {
        match self.collector.take() {
            Some(collector) => Piece::Next(collector),
            None if self.writer.is_behind() => {
                self.next = now + EVERY;
                Piece::None
            }
            None => {
                self.begin(now);
                Piece::First
            }
        }
    }

    /// A piece was copied; a whole snapshot goes to the thread.
    pub(crate) fn put(&mut self, collector: Box<Collector>) {
        if collector.is_whole() {
            self.writer.write(collector.finish(), std::mem::take(&mut self.serving));
        } else {
            self.collector = Some(collector);
        }
    }

    fn begin(&mut self, now: Duration) {
        self.begun = now;
        self.scraped = false;
        self.serving.append(&mut self.asked);
    }

    /// All that a piece took, from `begin` to `end`.
    pub(crate) fn rest(&mut self, begin: Duration, end: Duration) {
        self.next = end + end.saturating_sub(begin) * PAUSE;
        if self.collector.is_none() {
            self.next = self.next.max(self.begun + EVERY);
        }
    }
}

/// What is to be copied.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Nothing yet: the thread has not caught up.
    None,
    /// The first piece of a new snapshot.
    First,
    /// Another piece of this one.
    Next(Box<Collector>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;

    #[test]
    fn snapshots_keep_their_distance_and_pieces_take_a_tenth_of_the_time() {
        let ms = Duration::from_millis;
        let mut texts = Texts::new(Writer::start(Inbox::new().unwrap().letterbox()).unwrap());
        assert_eq!(texts.deadline(), None);
        texts.scrape();
        assert_eq!(texts.deadline(), Some(Duration::ZERO));
        assert!(texts.is_due(ms(100)) && matches!(texts.take(ms(100)), Piece::First));
        assert_eq!(texts.deadline(), None);
        texts.rest(ms(110), ms(110));
        assert_eq!(texts.next, ms(100) + EVERY);
        texts.rest(ms(110), ms(112));
        assert_eq!(texts.next, ms(130));
    }
}
