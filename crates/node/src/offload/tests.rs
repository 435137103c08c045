//! Tests of the engine: [`fairness`] between programs, buffers that are [`returned`] and not touched, and how long a program waits.

mod fairness;
mod returned;
mod rig;

use super::*;
use crosslane_shm::peer::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use std::time::Instant;

fn has_hung_up(lease: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(lease, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn lease_of_a_program_is_held_for_as_long_as_a_thread_may_work_for_it() {
    let settings = Settings { processors: None, copy: Choice::default(), least: 0 };
    let mut engines = Engines::start(&settings, Duration::ZERO).unwrap();
    let (lease, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (_queue, memory) = SubmissionQueue::create().unwrap();
    let remote = Remote { peer: Arc::new(Peer::own().unwrap()), guard: 0, nonce: 1 };
    let completions = Arc::new(Receiver::new().unwrap());
    let (session, queue) = (SessionId(1), SubmissionQueue::open(&memory).unwrap());
    let _wakers = engines.add(session, &remote, queue, &completions, &Arc::new(ours)).unwrap();
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        assert!(!has_hung_up(&lease), "the threads know the program, and it is told that none does");
        std::thread::sleep(Duration::from_millis(5));
    }
    engines.remove(session);
    let end = Instant::now() + Duration::from_secs(20);
    while !has_hung_up(&lease) {
        assert!(Instant::now() < end, "no thread knows the program, and it is not told");
        std::thread::sleep(Duration::from_millis(1));
    }
}
