//! Any bytes where a peer or a program sends messages and packets: what is read is what was written, and what passes
//! the checks is what the checks promise.

use crosslane_wire::access::{ANSWER, Answer, COMMAND, Command};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::control::Control;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::packet::{HEAD, Head, NEEDS_CHECKSUM, UDP, WHOLE, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

#[test]
fn any_bytes_as_an_ip_packet() {
    bolero::check!().for_each(|message: &[u8]| {
        let Ok(head) = Head::read(message) else { return };
        let mut copy = message.to_vec();
        head.write(&mut copy);
        assert_eq!(copy, message, "what is passed on is what came");
        let (work, packet) = (Work::read(message).unwrap(), &message[HEAD..]);
        if work.check(packet).is_ok() {
            check_promises(&work, packet);
        }
    });
}

/// What a kernel may be asked to do with a packet that was checked.
fn check_promises(work: &Work, packet: &[u8]) {
    let from = usize::from(work.checksum_from);
    if work.flags & NEEDS_CHECKSUM != 0 {
        assert!(from + usize::from(work.checksum_at) + 2 <= packet.len());
    }
    if work.kind != WHOLE {
        assert!(work.flags & NEEDS_CHECKSUM != 0, "cut, but without checksums");
        assert!(usize::from(work.headers) <= packet.len() && work.piece >= 8);
        let pieces = packet.len().saturating_sub(from).div_ceil(usize::from(work.piece));
        assert!(work.kind != UDP || pieces <= 130, "{pieces} datagrams");
    }
}

#[test]
fn any_bytes_as_a_message() {
    bolero::check!().for_each(|bytes: &[u8]| {
        check_message::<Control>(bytes);
        check_message::<Request>(bytes);
        check_message::<Reply>(bytes);
        if let Some(command) = bytes.first_chunk::<COMMAND>()
            && let Ok(command) = Command::decode(command)
        {
            assert_eq!(Command::decode(&command.encode()).unwrap(), command);
        }
        if let Some(answer) = bytes.first_chunk::<ANSWER>()
            && let Ok(answer) = Answer::decode(answer)
        {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
    });
}

/// What decodes is encoded to something that decodes to the same, and is no longer than messages may be.
fn check_message<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(message) = codec::decode::<T>(bytes) else { return };
    let again = codec::encode(&message).unwrap();
    assert!(again.len() <= MAX_MESSAGE);
    assert_eq!(codec::decode::<T>(&again).unwrap(), message);
}
