//! Waking the far side's sleepers.

use crate::attachment::Attachment;
use crosslane_client::End;
use crosslane_shm::wake::Waker;
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;
use std::sync::{Mutex, PoisonError};

/// The wakers of one stream: those of the far side's reader and writer, or of the next host on the path, which is another
/// one when the stream has moved.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Vec<(Owner, Waker)>>);

/// The owner of a wake event: the generation if the stream is relayed, and the waiter's number there.
type Owner = (Option<u32>, WaiterId);

/// Most wakers that are kept; the far side has one or two at a time.
const KEPT_MAX: usize = 4;

impl Wakers {
    /// Wakes the far side's waiter.
    #[cold]
    pub(crate) fn wake(&self, attachment: &Attachment, end: &End, waiter: WaiterId) {
        end.shared().counters.wakes.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = (end.relayed(), waiter);
        let asks = end.asks_for_wakers();
        if !wakers.iter().any(|(known, _)| *known == owner)
            && asks
            && let Some(waker) = find(attachment, end, waiter)
        {
            wakers.truncate(KEPT_MAX - 1);
            wakers.insert(0, (owner, waker));
        }
        let known = wakers.iter().position(|(known, _)| *known == owner);
        if !known.is_some_and(|at| wakers[at].1.wake()) {
            // The wake failed: the known waker's waiter is gone.
            known.map(|at| wakers.remove(at));
            if asks {
                end.not_found();
            }
            attachment.tell(&Request::Wake { circuit: end.circuit(), token: end.token(), waiter });
        }
    }
}

fn find(attachment: &Attachment, end: &End, waiter: WaiterId) -> Option<Waker> {
    let (circuit, token) = (end.circuit(), end.token());
    attachment.ask(|session| session.waker(circuit, token, waiter)).ok().flatten()
}
