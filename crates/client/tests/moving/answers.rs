//! Answers that were written into offered memory when the stream moves, in one thread: each comes once, whoever looks first.

use crate::offers::{content, offer};
use crate::rig::{Rig, bytes, receive, send, tid};
use crate::zcopy::{check, drain};
use crosslane_client::buffers::{Landing, OpenBuffer};
use crosslane_client::{End, Failure};
use crosslane_wire::segment::WR_DONE;
use crosslane_wire::zcopy::word;

const RING_MAX: u64 = 1 << 20;
/// Bytes of an answer, and of what is sent behind it.
const ANSWER: usize = 300;
const BEHIND: usize = 5000;

/// A stream whose server has read a request and has written [`ANSWER`] bytes into the offered memory.
fn answered(answer: &OpenBuffer) -> (Rig, Landing<'_>) {
    let rig = Rig::new(RING_MAX, false);
    let line = offer(&rig.ends[0], b"request", answer);
    assert_eq!(receive(&rig.ends[1], 100).unwrap(), b"request");
    assert_eq!(send(&rig.ends[1], &bytes(0, ANSWER)), Ok(ANSWER));
    assert_eq!(rig.ends[1].statistics().sent.write_zcopy, ANSWER as u64);
    (rig, line)
}

/// What is in the offered memory, by either way to find out, and all that can be received behind it.
fn take_all(client: &End, (answer, line): (&OpenBuffer, &Landing<'_>), back: bool) -> Vec<u8> {
    assert!(client.maybe_readable() || client.has_landed(line), "nobody would wake");
    let count = if back { client.take_back(tid(), line) } else { client.take_landed(tid(), line) };
    let mut got = content(answer, count.unwrap().unwrap_or(0));
    got.extend(drain(client, 1000));
    got
}

#[test]
fn answer_written_before_the_move_comes_once() {
    for case in 0..32 {
        let [taken, behind, twice, client_first, back] = [1, 2, 4, 8, 16].map(|bit| case & bit != 0);
        let answer = OpenBuffer::new(4096).unwrap();
        let (rig, line) = answered(&answer);
        let [client, server] = &rig.ends;
        let (mut got, mut sent) = (Vec::new(), ANSWER);
        if taken {
            assert_eq!(client.take_landed(tid(), &line), Ok(Some(ANSWER)));
            got = content(&answer, ANSWER);
        }
        if behind {
            assert_eq!(send(server, &bytes(sent as u64, BEHIND)), Ok(BEHIND));
            sent += BEHIND;
        }
        let mut mover = rig.mover();
        mover.jump(RING_MAX, false, None);
        if twice {
            server.attend(tid());
            assert_eq!(send(server, &bytes(sent as u64, BEHIND)), Ok(BEHIND), "case {case}");
            sent += BEHIND;
            mover.jump(RING_MAX, false, None);
        }
        if client_first {
            client.attend(tid());
            if !taken {
                got.extend(take_all(client, (&answer, &line), back));
            }
        }
        assert_eq!(send(server, &bytes(sent as u64, 100)), Ok(100), "case {case}");
        sent += 100;
        match got.len() {
            0 => got.extend(take_all(client, (&answer, &line), back)),
            _ => got.extend(drain(client, 1000)),
        }
        assert_eq!(got.len(), sent, "case {case}");
        check(&got, 0);
        assert_eq!(client.take_back(tid(), &line), Ok(None));
    }
}

#[test]
fn answer_that_lies_untaken_is_not_overtaken_by_a_receive() {
    let answer = OpenBuffer::new(4096).unwrap();
    let (rig, line) = answered(&answer);
    let client = &rig.ends[0];
    rig.mover().jump(RING_MAX, false, None);
    rig.ends[1].attend(tid());
    assert_eq!(receive(client, 100), Err(Failure::WouldBlock));
    assert_eq!(take_all(client, (&answer, &line), true), bytes(0, ANSWER));
}

#[test]
fn after_a_move_the_first_request_goes_by_the_ring_and_the_next_is_written_again() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let (answer, mut mover) = (OpenBuffer::new(4096).unwrap(), rig.mover());
    for round in 0..3 {
        mover.jump(RING_MAX, false, None);
        let place = answer.locate(0, answer.len()).unwrap();
        client.export_buffer(&place).unwrap();
        let line = answer.landing().unwrap();
        let offered = client.offer(tid(), b"by the ring", (&place, &line), answer.len());
        assert_eq!(offered, Ok(None), "round {round}");
        drop(line);
        assert_eq!(drain(server, 100), b"", "a request that was not offered was sent");
        assert_eq!(send(client, b"by the ring"), Ok(11));
        assert_eq!(receive(server, 100).unwrap(), b"by the ring");
        assert_eq!(send(server, b"answer"), Ok(6));
        assert_eq!(receive(client, 100).unwrap(), b"answer");
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        assert_eq!(send(server, &bytes(round, 77)), Ok(77));
        assert_eq!(client.take_landed(tid(), &line), Ok(Some(77)));
        check(&content(&answer, 77), round);
        assert_eq!(server.statistics().sent.write_zcopy, 77 * (round + 1));
    }
}

/// The daemons counted before it was written: its sender learns that, and sends it again.
#[test]
fn answer_that_the_daemons_did_not_count_is_not_taken() {
    for back in [false, true] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        let counted = rig.hosts.map(|host| host.count(None));
        assert_eq!(send(server, &bytes(0, ANSWER)), Ok(ANSWER));
        let mut mover = rig.mover();
        mover.lose();
        mover.find_with(RING_MAX, false, counted, counted);
        let taken = if back { client.take_back(tid(), &line) } else { client.take_landed(tid(), &line) };
        assert_eq!(taken, Ok(None));
        assert!(
            client.offer(tid(), b"", (&answer.locate(0, 4096).unwrap(), &line), 4096).is_ok(),
            "it is not over"
        );
    }
}

#[test]
fn answer_that_is_written_while_the_stream_moves_is_sent_again() {
    for client_first in [false, true] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        // The server asks for the buffer when it is about to write.
        *rig.hosts[1].meanwhile.lock().unwrap() = Some(rig.mover());
        assert_eq!(send(server, &bytes(0, ANSWER)), Ok(ANSWER));
        assert_eq!(content(&answer, ANSWER), bytes(0, ANSWER), "it was not written before");
        if client_first {
            client.attend(tid());
        }
        assert_eq!(client.take_back(tid(), &line), Ok(None));
        assert_eq!(drain(client, 1000), bytes(0, ANSWER));
    }
}

/// What the far side says of an offer that it was not made, or of more than was offered, is nobody's count: the stream goes
/// on, or ends, and no byte is made up.
#[test]
fn lies_about_what_was_written_are_not_counted_by_a_move() {
    let lies = [word(1, 4097), word(1, u32::MAX), word(2, 10), word(0, 10), u64::MAX];
    for lie in lies {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        rig.mover().forge(0, WR_DONE, lie);
        rig.mover().jump(RING_MAX, false, None);
        assert_eq!(send(server, b"true"), Ok(4), "the far side was told of bytes that it never sent");
        match client.take_back(tid(), &line) {
            Ok(None) => assert_eq!(drain(client, 100), b"true"),
            outcome => assert!(outcome.is_err(), "{lie:x}: {outcome:?}"),
        }
    }
}
