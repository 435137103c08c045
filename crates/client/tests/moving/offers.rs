//! Offered memory at chosen moments, in one thread: it is written before it is given back, or never.

use crate::rig::{Rig, bytes, receive, send, tid};
use crate::zcopy::{announce_buffer, buffer, check, drain, over};
use crosslane_client::End;
use crosslane_client::buffers::{Landing, OpenBuffer};

const RING_MAX: u64 = 1 << 20;

/// An offer of `answer` with `request`, which must be possible; where it is said what was written.
pub(crate) fn offer<'a>(end: &End, request: &[u8], answer: &'a OpenBuffer) -> Landing<'a> {
    let (place, line) = (answer.locate(0, answer.len()).unwrap(), answer.landing().unwrap());
    end.refresh(tid());
    end.export_buffer(&place).unwrap();
    assert!(end.offer(tid(), request, (&place, &line), answer.len()).unwrap().is_some());
    line
}

pub(crate) fn content(buffer: &OpenBuffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn answers_shorter_equal_and_longer_than_the_place() {
    for len in [1, 100, 4095, 4096, 4097, 60_000] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        assert!(!client.has_landed(&line));
        assert_eq!(send(server, &bytes(0, len)), Ok(len));
        assert!(client.has_landed(&line));
        let count = client.take_landed(tid(), &line).unwrap().expect("it was written");
        assert_eq!(count, len.min(4096));
        check(&content(&answer, count), 0);
        assert_eq!(client.take_back(tid(), &line), Ok(None));
        let rest = drain(client, 10_000);
        assert_eq!(rest.len(), len - count);
        check(&rest, count as u64);
        let sent = server.statistics().sent;
        assert_eq!(
            (sent.write_zcopy, sent.control),
            (count as u64, 0),
            "its completion is no message of its own"
        );
    }
}

#[test]
fn offer_is_void_if_bytes_were_sent_before_it_was_seen() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let answer = OpenBuffer::new(4096).unwrap();
    let line = offer(client, b"request", &answer);
    send(server, b"early").unwrap();
    assert_eq!(receive(server, 100).unwrap(), b"request");
    send(server, b"late").unwrap();
    assert!(client.ready(tid()).readable);
    assert_eq!(client.take_back(tid(), &line), Ok(None));
    assert_eq!(drain(client, 100), b"earlylate");
    assert_eq!(content(&answer, 9), [0; 9]);
}

#[test]
fn offer_that_was_withdrawn_is_never_written_and_the_stream_goes_on() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let answer = OpenBuffer::new(4096).unwrap();
    for round in 0..3 {
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        assert_eq!(client.take_back(tid(), &line), Ok(None));
        send(server, b"answer").unwrap();
        assert_eq!(content(&answer, 6), [0; 6], "round {round}");
        assert_eq!(drain(client, 100), b"answer");
    }
}

#[test]
fn answer_in_two_ways_is_taken_in_order() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let answer = OpenBuffer::new(4096).unwrap();
    let line = offer(client, b"request", &answer);
    receive(server, 100).unwrap();
    send(server, &bytes(0, 500)).unwrap();
    let rest = buffer(500, 20_000);
    let mut open = announce_buffer(server, &rest, None);
    // Whoever looks whether there is something consumes the record of the announcement.
    client.refresh(tid());
    assert_eq!(client.take_landed(tid(), &line), Ok(Some(500)));
    check(&content(&answer, 500), 0);
    let got = drain(client, 1 << 16);
    assert_eq!(got.len(), rest.len());
    check(&got, 500);
    assert_eq!(over(server, &mut open), rest.len());
}

#[test]
fn offer_of_the_old_circuit_is_void_on_the_next_one() {
    for server_first in [false, true] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let answer = OpenBuffer::new(4096).unwrap();
        let line = offer(client, b"request", &answer);
        assert_eq!(receive(server, 100).unwrap(), b"request");
        rig.mover().jump(RING_MAX, false, None);
        if server_first {
            server.attend(tid());
            send(server, b"answer").unwrap();
            assert_eq!(client.take_back(tid(), &line), Ok(None));
        } else {
            client.attend(tid());
            assert_eq!(client.take_back(tid(), &line), Ok(None));
            send(server, b"answer").unwrap();
        }
        assert_eq!(content(&answer, 6), [0; 6], "written after it was given back");
        assert_eq!(drain(client, 100), b"answer");
    }
}
