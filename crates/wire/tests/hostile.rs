//! Any bytes where a peer or a program sends messages and packets: what is read is what was written, and what passes
//! the checks is what the checks promise.

use bolero::TypeGenerator;
use crosslane_wire::access::{ANSWER, Answer, COMMAND, Command};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::control::Control;
use crosslane_wire::diag;
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::packet::{HEAD, Head, NEEDS_CHECKSUM, TCP4, TCP6, UDP, WHOLE, WORK, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// What a neighbour sends as an IP packet.
#[derive(Clone, Debug, TypeGenerator)]
enum Message {
    Raw(Vec<u8>),
    Built(Packet),
}

/// The parts of a packet, each of which may be wrong.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Packet {
    head: [u8; WORK - 1],
    flags: u8,
    kind: Kind,
    headers: Word,
    piece: Word,
    checksum_from: Word,
    checksum_at: Word,
    four: bool,
    words: u8,
    protocol: Protocol,
    len: u16,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Kind {
    Whole,
    Tcp4,
    Tcp6,
    Udp,
    Any(u8),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Protocol {
    Tcp,
    Udp,
    Any(u8),
}

/// Where something is in a head, or anything.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Word {
    Tcp,
    Udp,
    Header,
    Near(u8),
    Any(u16),
}

impl Word {
    fn value(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
            Self::Header => 20,
            Self::Near(value) => value.into(),
            Self::Any(value) => value,
        }
    }
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Raw(bytes) => bytes.clone(),
            Self::Built(packet) => packet.bytes(),
        }
    }
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Whole => WHOLE,
            Kind::Tcp4 => TCP4,
            Kind::Tcp6 => TCP6,
            Kind::Udp => UDP,
            Kind::Any(kind) => kind,
        };
        let protocol = match self.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Any(protocol) => protocol,
        };
        let [h0, h1, h2, h3, h4] = self.head;
        let mut message = vec![h0, 0, h1, h2, h3, h4, self.flags % 4, kind];
        for word in [self.headers, self.piece, self.checksum_from, self.checksum_at] {
            message.extend(word.value().to_le_bytes());
        }
        message.resize(HEAD + 40 + usize::from(self.len % 2000), 0);
        let (version, at) = if self.four { (0x40, 9) } else { (0x60, 6) };
        message[HEAD] = version | (self.words % 16);
        message[HEAD + at] = protocol;
        message
    }
}

#[test]
fn hostile_bytes_as_an_ip_packet() {
    bolero::check!().with_type::<Message>().for_each(|message| {
        let message = &message.bytes()[..];
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
fn hostile_bytes_as_a_message() {
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
        let mut rest = bytes;
        while let Some((_, next)) = diag::read(rest) {
            assert!(next.len() < rest.len());
            rest = next;
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
