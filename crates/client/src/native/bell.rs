//! Waking the far side's sleepers.

use super::Attachment;
use crate::End;
use crosslane_wire::WaiterId;
use crosslane_wire::local::{Reply, Request};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::sync::{Mutex, PoisonError};

/// The wake events that were found for one stream: those of the far side's reader and writer, or of the host between that
/// comes next, which is another one when the stream has moved.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<Vec<(Owner, OwnedFd)>>);

/// Whose wake event it is: the detour of the stream, and a number there.
type Owner = (Option<u32>, WaiterId);

/// Most that are kept; the far side has one or two at a time.
const MOST: usize = 4;

impl Bells {
    /// Rings the far side's waiter.
    #[cold]
    pub(super) fn ring(&self, attachment: &Attachment, end: &End, waiter: WaiterId) {
        end.shared().counters.bells.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = (end.detour(), waiter);
        if !bells.iter().any(|(known, _)| *known == owner)
            && end.is_patient()
            && let Some(bell) = find(attachment, end, waiter)
        {
            bells.truncate(MOST - 1);
            bells.insert(0, (owner, bell));
        }
        let bell = bells.iter().find(|(known, _)| *known == owner).map(|(_, bell)| bell);
        match bell.filter(|bell| never_blocks(bell)) {
            Some(bell) => {
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
            None => {
                end.not_found();
                attachment.tell(&Request::Ring { circuit: end.circuit(), token: end.token(), waiter });
            }
        }
    }
}

fn find(attachment: &Attachment, end: &End, waiter: WaiterId) -> Option<OwnedFd> {
    let request = Request::WantBell { circuit: end.circuit(), token: end.token(), waiter };
    let (reply, fds) = attachment.ask(|session| session.request(&request, &[])).ok()?;
    match reply {
        Reply::Bell { found: true } => fds.into_iter().next(),
        _ => None,
    }
}

/// Whether the wake event's owner has left it as it was made: it could hold us up else.
fn never_blocks(bell: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(bell).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}
