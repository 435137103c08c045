//! Requests that were taken aside, on their way to the daemon's thread.

use crate::eventfd;
use crate::given::{self, Arrived};
use crate::session::SessionId;
use crate::texts::send_text;
use crosslane_passing::{Foreign, aside};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Where they arrive.
#[derive(Debug)]
pub struct Inbox {
    arrived: Receiver<(SessionId, Arrived)>,
    sender: Sender<(SessionId, Arrived)>,
    bell: Arc<OwnedFd>,
}

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// The eventfd cannot be made.
    pub fn new() -> Result<Self, Errno> {
        let (sender, arrived) = channel();
        Ok(Self { arrived, sender, bell: Arc::new(eventfd::new()?) })
    }

    /// Readable when requests have arrived.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has the next request of a session taken aside, with its descriptors.
    pub fn take_aside(&self, session: SessionId, socket: &Arc<Foreign>) {
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        given::take_aside(socket.clone(), move |arrived| {
            // Fails only when the daemon ends.
            if sender.send((session, arrived)).is_ok() {
                eventfd::ring(bell.as_fd());
            }
        });
    }

    /// Has a text sent to a session.
    pub fn send_aside(&self, session: SessionId, socket: &Arc<Foreign>, text: Arc<str>) {
        let (sender, bell, socket) = (self.sender.clone(), self.bell.clone(), socket.clone());
        aside::run(socket.owner(), move || {
            let arrived = if send_text(&socket, &text) { Arrived::Nothing } else { Arrived::Closed };
            drop(socket);
            if sender.send((session, arrived)).is_ok() {
                eventfd::ring(bell.as_fd());
            }
        });
    }

    /// What has arrived so far will be polled.
    pub fn hush(&self) {
        eventfd::drain(self.bell.as_fd());
    }

    /// The next request.
    pub fn poll(&self) -> Option<(SessionId, Arrived)> {
        self.arrived.try_recv().ok()
    }
}
