//! What other threads of the daemon have for its own: requests that were taken aside, and what became of texts.

use crate::eventfd;
use crate::given::{self, Arrived};
use crate::session_id::SessionId;
use crosslane_passing::Foreign;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What arrives.
#[derive(Debug)]
pub enum Letter {
    /// A request of a session.
    Arrived(SessionId, Arrived),
    /// A session's text was sent, or not taken.
    Told {
        /// Whose.
        session: SessionId,
        /// Its user, who pays for it.
        uid: u32,
        /// Its length.
        bytes: usize,
        /// Whether the program has all of it.
        heard: bool,
    },
    /// Readers of the metrics wait for a snapshot.
    Scrape,
}

/// Where they arrive.
#[derive(Debug)]
pub struct Inbox {
    arrived: Receiver<Letter>,
    letterbox: Letterbox,
}

/// By what they come; every thread may have one.
#[derive(Clone, Debug)]
pub struct Letterbox {
    sender: Sender<Letter>,
    wakeup: Arc<OwnedFd>,
}

impl Letterbox {
    /// Has the daemon's thread hear of something.
    pub fn post(&self, letter: Letter) {
        // Fails only when the daemon ends.
        if self.sender.send(letter).is_ok() {
            eventfd::wake(self.wakeup.as_fd());
        }
    }
}

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// The eventfd cannot be made.
    pub fn new() -> Result<Self, Errno> {
        let (sender, arrived) = channel();
        Ok(Self { arrived, letterbox: Letterbox { sender, wakeup: Arc::new(eventfd::new()?) } })
    }

    /// By what others write.
    pub fn letterbox(&self) -> Letterbox {
        self.letterbox.clone()
    }

    /// Readable when something has arrived.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.letterbox.wakeup.as_fd()
    }

    /// Has the next request of a session taken aside, with its descriptors.
    pub fn take_aside(&self, session: SessionId, socket: &Arc<Foreign>) {
        let letterbox = self.letterbox();
        given::take_aside(socket.clone(), move |arrived| letterbox.post(Letter::Arrived(session, arrived)));
    }

    /// What has arrived so far will be polled.
    pub fn hush(&self) {
        eventfd::drain(self.event_fd());
    }

    /// What arrived first.
    pub fn poll(&self) -> Option<Letter> {
        self.arrived.try_recv().ok()
    }
}
