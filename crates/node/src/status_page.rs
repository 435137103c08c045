//! The status page of a session: one word for each of its circuit ends, written by the daemon, read by the programs.

use crosslane_fabric::circuit::{Death, End};
use crosslane_shm::{MapError, Outbound, Store};
use crosslane_wire::local::{
    STATUS_ALIVE, STATUS_ANNOUNCED, STATUS_CABLE, STATUS_MOVING, STATUS_PEER_ABORT, STATUS_SHUTDOWN,
    STATUS_VIOLATION, STATUS_WORDS, status_word,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::OwnedFd;

/// Bytes of a status page.
const LEN: u64 = STATUS_WORDS as u64 * 4;

/// A page of which only the daemon can write: it was sealed against writing after the daemon mapped it.
#[derive(Debug)]
pub struct StatusPage {
    words: Outbound,
    next: u32,
    free: Vec<u32>,
}

impl StatusPage {
    /// Makes a page; the descriptor is for the session's programs.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let fd = memfd_create("crosslane-life", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, LEN)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let words = Outbound::sealed(&fd, LEN)?;
        fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok((Self { words, next: STATUS_ANNOUNCED + 1, free: Vec::new() }, fd))
    }

    /// Gives out a word, alive; `None` if the session has too many ends.
    pub fn allot(&mut self) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.next < STATUS_WORDS => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.set(index, STATUS_ALIVE);
        Some(index)
    }

    /// Tells how many announced connections wait to be accepted.
    pub fn set_announced(&self, count: usize) {
        self.set(STATUS_ANNOUNCED, u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Sets a word that was given out to one of the `LIFE_` numbers.
    pub fn set(&self, index: u32, reason: u32) {
        self.words.store_u32(index as usize * 4, reason);
    }

    /// Takes a word back.
    pub fn release(&mut self, index: u32) {
        self.free.push(index);
    }
}

/// What the status page says of an end, whose programs know of this generation.
pub(crate) fn status_of(end: &End, published: u32) -> u32 {
    let reason = match (end.death, end.moving) {
        (Some(death), _) => life_reason_of(death),
        (None, Some(_)) => STATUS_MOVING,
        (None, None) if end.generation != published => STATUS_MOVING,
        (None, None) => STATUS_ALIVE,
    };
    status_word(published, reason)
}

/// The reason that programs see in the status page.
fn life_reason_of(death: Death) -> u32 {
    match death {
        Death::Cable => STATUS_CABLE,
        Death::Abort => STATUS_PEER_ABORT,
        Death::Shutdown => STATUS_SHUTDOWN,
        Death::Violation => STATUS_VIOLATION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_wire::local::STATUS_CABLE;
    use std::os::unix::fs::FileExt;

    #[test]
    fn status_page_is_written_by_the_daemon_and_nobody_else() {
        let (mut page, fd) = StatusPage::create().unwrap();
        let (a, b) = (page.allot().unwrap(), page.allot().unwrap());
        page.set(b, STATUS_CABLE);
        let file = std::fs::File::from(fd);
        let mut words = [0; 8];
        file.read_exact_at(&mut words, 4).unwrap();
        assert_eq!((a, b, words), (1, 2, [0, 0, 0, 0, 1, 0, 0, 0]));
        assert!(file.write_at(&[1], 0).is_err());
        assert!(file.set_len(1).is_err());
        page.release(b);
        assert_eq!(page.allot(), Some(b));
        file.read_exact_at(&mut words, 4).unwrap();
        assert_eq!(words, [0; 8]);
        page.set_announced(7);
        file.read_exact_at(&mut words, 0).unwrap();
        assert_eq!(words[0], 7);
    }

    #[test]
    fn words_run_out() {
        let (mut page, _fd) = StatusPage::create().unwrap();
        assert_eq!((0..STATUS_WORDS).filter_map(|_| page.allot()).count(), STATUS_WORDS as usize - 1);
        assert_eq!(page.allot(), None);
    }
}
