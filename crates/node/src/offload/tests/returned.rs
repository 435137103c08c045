//! Tests of what must not be copied: a buffer that was returned to its program, and a ring that the stream has left; and
//! of a copy that hangs.

use super::rig::{ENDLESS, HANGS, Rig, handle};
use crate::offload::copy::PIECE;
use crosslane_shm::remote::Span;
use crosslane_shm::submission::{Cancelled, Descriptor, Outcome, SubmissionQueue, Way};
use crosslane_wire::local::{STATUS_MOVING, status_word};

/// A program with one stream, with something to move in each direction.
fn rig(way: Way) -> Rig {
    let rig = Rig::new(way, &[1]);
    if way == Way::In {
        rig.programs[0].streams[0].come(&[7; 100_000]);
    }
    rig
}

fn queue(rig: &Rig) -> &SubmissionQueue {
    &rig.programs[0].queue
}

/// The call returns once its cancel succeeded. The thread then copies nothing more of that transfer, whatever it knew of
/// it; the next call in the same slot is another transfer.
#[test]
fn buffer_that_was_given_back_is_not_touched_again() {
    for way in [Way::Out, Way::In] {
        for taken in [false, true] {
            let mut rig = rig(way);
            let request = rig.submit(0, 0, ENDLESS);
            if taken {
                rig.worker.collect();
            }
            assert_eq!(queue(&rig).cancel(request), Cancelled::Yes);
            (0..5).for_each(|_| rig.round(|_, _| true));
            assert_eq!(rig.moved(), [], "{way:?}, taken: {taken}");
            assert!(!queue(&rig).has_ended(request));
            rig.submit(0, 0, 1000);
            rig.round(|_, _| true);
            assert_eq!(rig.moved(), [(0, 0, 1000)]);
        }
    }
}

/// Between two pieces a program can cancel too: the ring contains only the pieces before that.
#[test]
fn between_two_pieces_a_buffer_can_be_had_back() {
    let mut rig = rig(Way::Out);
    let request = rig.submit(0, 0, ENDLESS);
    rig.round(|_, _| true);
    assert_eq!((rig.moved().len(), queue(&rig).cancel(request)), (1, Cancelled::Yes));
    (0..5).for_each(|_| rig.round(|_, _| true));
    assert_eq!(rig.moved().len(), 1);
    assert_eq!(queue(&rig).result(request).0, PIECE as u64);
}

/// The daemon says that the stream moves before it counts what has arrived: from then on nothing is stored into the ring,
/// or taken out of it.
#[test]
fn ring_that_is_left_is_not_touched_again() {
    for way in [Way::Out, Way::In] {
        let mut rig = rig(way);
        let request = rig.submit(0, 0, ENDLESS);
        rig.worker.collect();
        rig.programs[0].streams[0].work.set(status_word(0, STATUS_MOVING));
        rig.round(|_, _| true);
        assert_eq!(rig.moved(), [], "{way:?}");
        assert_eq!(queue(&rig).result(request), (0, Some(Outcome::Stale)));
    }
}

/// A copy begins and does not end: its program cannot get the buffer back before it ends, even by cancel, and all others go on.
#[test]
fn copy_that_hangs_holds_up_nobody_else() {
    const ROUNDS: usize = 50;
    let mut rig = Rig::new(Way::Out, &[3, 1]);
    let mut descriptor = Descriptor { handle: handle(0), ..Descriptor::default() };
    descriptor.spans[0] = Span { address: (HANGS * ENDLESS) as u64, len: PIECE };
    let (hanging, _) = rig.programs[0].queue.submit(Way::Out, 0, &descriptor);
    for (program, stream) in [(0, 1), (0, 2), (1, 0)] {
        rig.submit(program, stream, ENDLESS);
    }
    (0..ROUNDS).for_each(|_| rig.round(|_, _| false));
    for program in [0, 1] {
        assert_eq!(rig.bytes_of(program), ROUNDS * PIECE, "program {program}");
    }
    let queue = &rig.programs[0].queue;
    assert!(!queue.has_ended(hanging));
    assert_eq!(queue.cancel(hanging), Cancelled::Busy { copying: true });
}
