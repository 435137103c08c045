//! Texts that sessions and readers of the metrics ask for. They are made on the daemon's thread, which alone knows everything, so there
//! is little of it: one text at a time between packets, for all who have asked for it, and then so long a pause that
//! texts take a tenth of the thread's time at most. Sending them is done aside.

use crate::host::Host;
use crate::quota::{HEAVY, TEXT};
use crate::session::SessionId;
use crate::sight::Sight;
use crosslane_passing::{Foreign, send};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Reply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Text in one packet, bytes; the rest of the packet is its head.
const PART: usize = MAX_MESSAGE - 64;
/// So many times as long as a text took to make, none is made.
const PAUSE: u32 = 9;
/// How long a program may take to read all of a text.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// A text, and who has asked for it: sessions of one user that may see the same.
#[derive(Debug)]
struct Asked {
    text: Text,
    uid: u32,
    sight: Sight,
    sessions: Vec<SessionId>,
}

/// Texts that were asked for and not made yet; each session waits for one at most.
#[derive(Debug, Default)]
pub struct Texts {
    asked: VecDeque<Asked>,
    /// Whose text was made last: others come first now.
    last: Option<u32>,
    /// When the next one may be made.
    next: Duration,
}

impl Texts {
    /// When the next text is made, if one was asked for.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.asked.is_empty()).then_some(self.next)
    }

    /// When the next text may be made.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// A text was made, which took from `begin` to `end`.
    pub fn made(&mut self, begin: Duration, end: Duration) {
        self.next = end + end.saturating_sub(begin) * PAUSE;
    }

    fn ask(&mut self, text: Text, (uid, sight): (u32, Sight), session: SessionId) {
        let same = |asked: &&mut Asked| (asked.text, asked.uid, asked.sight) == (text, uid, sight);
        match self.asked.iter_mut().find(same) {
            Some(asked) => asked.sessions.push(session),
            None => self.asked.push_back(Asked { text, uid, sight, sessions: vec![session] }),
        }
    }

    fn take(&mut self) -> Option<Asked> {
        let other = self.asked.iter().position(|asked| Some(asked.uid) != self.last);
        let asked = self.asked.remove(other.unwrap_or(0))?;
        self.last = Some(asked.uid);
        Some(asked)
    }
}

impl Host {
    /// A session asks for a text, and is not served until it has it.
    pub fn ask_text(&mut self, id: SessionId, text: Text) {
        let sight = self.sight_of(id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.aside = true;
            let uid = session.uid;
            self.texts.ask(text, (uid, sight), id);
        }
    }

    /// Makes one text, if it is time for one, for all of a user's sessions that have asked for it by now.
    pub fn make_text(&mut self) {
        let begin = self.elapsed();
        if begin < self.texts.next {
            return;
        }
        let Some(asked) = self.texts.take() else { return };
        let text: Arc<str> = self.text_of(asked.text, asked.sight).into();
        let cost = HEAVY + text.len() as u64 / TEXT;
        for id in asked.sessions {
            self.spend(id, cost);
            if let Some(session) = self.sessions.get(&id) {
                self.inbox.send_aside(id, session.socket(), text.clone());
            }
        }
        let end = self.elapsed();
        self.texts.made(begin, end);
    }

    fn text_of(&self, text: Text, sight: Sight) -> String {
        match text {
            Text::Status => self.status(sight),
            Text::Metrics => self.metrics(),
            Text::Explain(pid) => self.explain(pid, sight),
            Text::Hosts => self.hosts(),
        }
    }
}

/// Sends a text in as many packets as it takes; `false` if the program does not read it in time, or is gone. Waits.
pub fn send_text(socket: &Foreign, text: &str) -> bool {
    let until = Instant::now() + PATIENCE;
    let mut rest = text;
    loop {
        let end =
            (0..=PART.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        let reply = Reply::Text { part: part.to_owned(), last: rest.is_empty() };
        if !codec::encode(&reply).is_ok_and(|bytes| send_until(socket, &bytes, until)) {
            return false;
        }
        if rest.is_empty() {
            return true;
        }
    }
}

fn send_until(socket: &Foreign, bytes: &[u8], until: Instant) -> bool {
    loop {
        match send(socket, bytes, &[], SendFlags::DONTWAIT) {
            Ok(()) => return true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
        if left.is_zero() || matches!(ready, Ok(0)) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_same_gets_the_same_and_users_take_turns() {
        let mut texts = Texts::default();
        for session in 0..100 {
            texts.ask(
                Text::Explain(u32::try_from(session % 3).unwrap()),
                (7, Sight::All),
                SessionId(session),
            );
        }
        texts.ask(Text::Status, (8, Sight::Of(8)), SessionId(100));
        let turns: Vec<(u32, usize)> =
            std::iter::from_fn(|| texts.take()).map(|asked| (asked.uid, asked.sessions.len())).collect();
        assert_eq!(turns, [(7, 34), (8, 1), (7, 33), (7, 33)]);
    }

    #[test]
    fn texts_take_a_tenth_of_the_time() {
        let mut texts = Texts::default();
        texts.made(Duration::from_millis(100), Duration::from_millis(110));
        assert_eq!(texts.next(), Duration::from_millis(200));
        assert_eq!(texts.deadline(), None);
    }
}
