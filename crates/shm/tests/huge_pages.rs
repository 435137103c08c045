//! Memory of huge pages is refused wherever a descriptor is mapped.

use crosslane_shm::far::check_buffer;
use crosslane_shm::mem::check_memory;
use crosslane_shm::state::{State, StateView};
use crosslane_shm::status_page::StatusPage;
use crosslane_shm::submission::SubmissionQueue;
use crosslane_shm::{FarBuffer, Inbound, MapError, Outbound};
use crosslane_wire::Reach;
use crosslane_wire::buffer::memory_len;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fmt::Debug;
use std::os::fd::OwnedFd;

/// Bytes of one huge page; the kernel takes whole ones only.
const HUGE: u64 = 2 << 20;

/// Sealed memory of huge pages. None of them is reserved or touched, so this machine needs none. `None`: a kernel
/// without them.
fn huge(len: u64, more: SealFlags) -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = memfd_create("huge", flags).ok()?;
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | more).unwrap();
    Some(fd)
}

fn refused<T: Debug>(outcome: Result<T, MapError>) {
    assert!(matches!(outcome, Err(MapError::HugePages)), "{outcome:?}");
}

#[test]
fn huge_pages_are_refused_for_segments_queues_states_and_status_pages() {
    let Some(fd) = huge(HUGE, SealFlags::empty()) else { return };
    refused(check_memory(&fd, HUGE));
    refused(Inbound::sealed(&fd, HUGE));
    refused(Outbound::sealed(&fd, HUGE));
    // Before the length is looked at, so that no length makes a difference.
    refused(SubmissionQueue::open(&fd));
    refused(State::open(&fd));
    refused(StateView::new(fd.try_clone().unwrap()));
    assert!(StatusPage::map(&fd).is_none());
}

#[test]
fn huge_pages_are_refused_for_buffers() {
    for (reach, seal) in [(Reach::Load, SealFlags::FUTURE_WRITE), (Reach::Store, SealFlags::empty())] {
        let Some(fd) = huge(HUGE, seal) else { return };
        let len = HUGE - memory_len(0);
        refused(check_buffer(&fd, len, reach));
        refused(FarBuffer::map(&fd, len, reach));
    }
}
