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

pub use send::send_text;
pub use writer::Writer;

use crate::host::Host;
use crate::quota::{HEAVY, TEXT};
use crate::session::SessionId;
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
    collector: Option<Collector>,
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
    pub(crate) fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref()
    }

    /// The same.
    pub(crate) fn collector_mut(&mut self) -> Option<&mut Collector> {
        self.collector.as_mut()
    }

    fn begin(&mut self, now: Duration) {
        self.begun = now;
        self.scraped = false;
        self.serving.append(&mut self.asked);
    }

    /// A piece was copied, which took from `begin` to `end`.
    fn copied(&mut self, begin: Duration, end: Duration, is_whole: bool) {
        self.next = end + end.saturating_sub(begin) * PAUSE;
        if is_whole {
            self.next = self.next.max(self.begun + EVERY);
        }
    }
}

impl Host {
    /// A session asks for a text, and is not served until it has it.
    pub fn ask_text(&mut self, id: SessionId, text: Text) {
        if let Some(session) = self.sessions.get_mut(&id)
            && let Some(socket) = session.socket().cloned()
        {
            session.aside = true;
            let uid = session.uid;
            self.texts.asked.push(Asked { text, uid, session: id, socket });
        }
    }

    /// Copies a piece of a snapshot, if it is time for one.
    pub fn tend_texts(&mut self) {
        if self.texts.deadline().is_none_or(|at| at > self.now) {
            return;
        }
        let begin = self.elapsed();
        let mut collector = match self.texts.collector.take() {
            Some(collector) => collector,
            None if self.texts.writer.is_behind() => {
                self.texts.next = begin + EVERY;
                return;
            }
            None => {
                self.texts.begin(begin);
                self.begin_snapshot()
            }
        };
        let is_whole = self.copy_piece(&mut collector);
        if is_whole {
            let asked = std::mem::take(&mut self.texts.serving);
            self.texts.writer.write(collector.finish(), asked);
        } else {
            self.texts.collector = Some(collector);
        }
        let end = self.elapsed();
        self.texts.copied(begin, end, is_whole);
    }

    /// A session's text was sent, if `heard`, or was not taken.
    pub(crate) fn told(&mut self, (id, uid): (SessionId, u32), bytes: usize, heard: bool) {
        // Also if the session is gone by now: who asks and leaves has had the work done.
        self.spend_of(uid, HEAVY + bytes as u64 / TEXT);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.aside = false;
            if !heard && !session.is_lost() {
                session.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;

    #[test]
    fn pieces_take_a_tenth_of_the_time_and_snapshots_keep_their_distance() {
        let ms = Duration::from_millis;
        let mut texts = Texts::new(Writer::start(Inbox::new().unwrap().letterbox()).unwrap());
        assert_eq!(texts.deadline(), None);
        texts.scrape();
        assert_eq!(texts.deadline(), Some(Duration::ZERO));
        texts.begin(ms(100));
        assert_eq!(texts.deadline(), None);
        texts.copied(ms(100), ms(101), false);
        assert_eq!(texts.next, ms(110));
        texts.copied(ms(110), ms(110), true);
        assert_eq!(texts.next, ms(100) + EVERY);
        texts.copied(ms(110), ms(112), true);
        assert_eq!(texts.next, ms(130));
    }
}
