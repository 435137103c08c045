//! The texts that sessions ask for, on the daemon's thread.

use super::Host;
use crate::quota::{HEAVY, TEXT};
use crate::session::SessionId;
use crate::texts::{Piece, Text};

impl Host {
    /// A session asks for a text, and is not served until it has it.
    pub fn ask_text(&mut self, id: SessionId, text: Text) {
        if let Some(session) = self.sessions.get_mut(id)
            && let Some(socket) = session.socket().cloned()
        {
            session.aside = true;
            self.texts.ask(text, (id, session.uid), socket);
        }
    }

    /// Copies a piece of a snapshot, if it is time for one.
    pub fn tend_texts(&mut self) {
        if !self.texts.is_due(self.now) {
            return;
        }
        let begin = self.elapsed();
        let mut collector = match self.texts.take(begin) {
            Piece::None => return,
            Piece::First => self.begin_snapshot(),
            Piece::Next(collector) => collector,
        };
        self.copy_piece(&mut collector);
        self.texts.put(collector);
        let end = self.elapsed();
        self.texts.rest(begin, end);
    }

    /// A session's text was sent, if `heard`, or was not taken.
    pub(crate) fn told(&mut self, (id, uid): (SessionId, u32), bytes: usize, heard: bool) {
        // Also if the session is gone by now: who asks and leaves has had the work done.
        self.spend_of(uid, HEAVY + bytes as u64 / TEXT);
        if let Some(session) = self.sessions.get_mut(id) {
            session.aside = false;
            if !heard && !session.is_lost() {
                session.kill();
            }
        }
    }
}
