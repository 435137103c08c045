//! The kernel's `sock_diag(7)`: requests about TCP sockets, and their answers.
//!
//! The layouts are `inet_diag_req_v2` and `inet_diag_msg` of `linux/inet_diag.h`, each behind a netlink header, in the
//! machine's byte order except ports and addresses. The requester has a netlink socket of its own; the kernel answers a
//! request about one socket by one packet with the request's number, a listing by several packets.

use core::net::{IpAddr, SocketAddr};

/// Bytes of a request: netlink header and `inet_diag_req_v2`.
pub const QUESTION: usize = 72;
/// Bytes in which any answer about one socket fits.
pub const ANSWER: usize = 1024;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const ENOENT: i32 = 2;
const HEADER: usize = 16;
const STATE_AT: usize = HEADER + 1;
const DESTINATION_PORT_AT: usize = HEADER + 6;
/// Source address and, behind the destination address, the interface.
const PLACE_AT: core::ops::Range<usize> = HEADER + 8..HEADER + 44;
const COOKIE_AT: usize = HEADER + 44;
const USER_AT: usize = HEADER + 64;
const INODE_AT: usize = HEADER + 68;

/// State of a TCP socket, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u8);

impl State {
    /// Connecting: the SYN was sent.
    pub const SYN_SENT: Self = Self(2);
    /// Accepting: a SYN was received.
    pub const SYN_RECV: Self = Self(3);
    /// Closed; kept for a minute for packets that arrive late.
    pub const TIME_WAIT: Self = Self(6);
    /// Not connected.
    pub const CLOSE: Self = Self(7);
    /// Listening.
    pub const LISTEN: Self = Self(10);
    /// A SYN was received, and the kernel has not made a socket yet.
    pub const NEW_SYN_RECV: Self = Self(12);
}

/// A request: for the socket between two addresses, or for all sockets of a family at a port.
#[derive(Clone, Debug)]
pub struct Question {
    /// The local address; its family selects the table.
    pub local: SocketAddr,
    /// The remote address.
    pub remote: SocketAddr,
    /// The interface on which a packet would arrive; 0 for any.
    pub interface: u32,
    /// Whether to list all sockets that match.
    pub all: bool,
    /// The states to list, one bit for each.
    pub states: u32,
}

/// Where a socket is bound: address and interface in the kernel's form (a listener has no remote address: zeros).
pub type Place = [u8; 36];

/// A socket in the kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The kernel's cookie of the socket, never reused.
    pub cookie: u64,
    /// Its state.
    pub state: State,
    /// Whether a process holds it.
    pub held: bool,
    /// Uid of the socket's owner; root if no process holds it.
    pub uid: u32,
    /// The remote port.
    pub remote_port: u16,
    /// Address and interface to which it is bound.
    pub place: Place,
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A socket.
    Socket(Told),
    /// There is no such socket.
    Nothing,
    /// End of the listing.
    Done,
}

impl Question {
    /// A request for the socket between these addresses, in any state, or the listener that would get the connection.
    pub fn one(local: SocketAddr, remote: SocketAddr, interface: u32) -> Self {
        Self { local, remote, interface, all: false, states: u32::MAX }
    }

    /// A request for all listeners of a family at a port.
    pub fn listeners(v6: bool, port: u16) -> Self {
        let unspecified: IpAddr = if v6 { [0; 16].into() } else { [0; 4].into() };
        let [local, remote] = [port, 0].map(|port| SocketAddr::new(unspecified, port));
        Self { local, remote, interface: 0, all: true, states: 1 << State::LISTEN.0 }
    }

    /// The bytes of the request with this number.
    pub fn encode(&self, number: u32) -> [u8; QUESTION] {
        let mut bytes = [0; QUESTION];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&u32::try_from(QUESTION).unwrap_or(0).to_ne_bytes());
        put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        put(&(NLM_F_REQUEST | if self.all { NLM_F_DUMP } else { 0 }).to_ne_bytes());
        put(&number.to_ne_bytes());
        put(&[0; 4]);
        put(&[if self.local.is_ipv4() { AF_INET } else { AF_INET6 }, IPPROTO_TCP, 0, 0]);
        put(&self.states.to_ne_bytes());
        put(&self.local.port().to_be_bytes());
        put(&self.remote.port().to_be_bytes());
        put(&address_bytes(self.local.ip()));
        put(&address_bytes(self.remote.ip()));
        put(&self.interface.to_ne_bytes());
        put(&[0xff; 8]);
        bytes
    }
}

/// The number of the request that a packet answers.
pub fn number(packet: &[u8]) -> Option<u32> {
    word(packet, 8)
}

/// The first message of a packet, and the bytes behind it; `None` if the packet is malformed, or an error other than "no such socket".
pub fn read(packet: &[u8]) -> Option<(Message, &[u8])> {
    let len = usize::try_from(word(packet, 0)?).ok().filter(|len| (HEADER..=packet.len()).contains(len))?;
    let (message, rest) = (&packet[..len], packet.get(len.next_multiple_of(4)..).unwrap_or_default());
    let kind = u16::from_ne_bytes(packet.get(4..6)?.try_into().ok()?);
    let read = match kind {
        SOCK_DIAG_BY_FAMILY => Message::Socket(told(message)?),
        NLMSG_DONE => Message::Done,
        NLMSG_ERROR => {
            let error = i32::from_ne_bytes(message.get(HEADER..HEADER + 4)?.try_into().ok()?);
            (error == -ENOENT).then_some(Message::Nothing)?
        }
        _ => return None,
    };
    Some((read, rest))
}

fn told(message: &[u8]) -> Option<Told> {
    let port = message.get(DESTINATION_PORT_AT..DESTINATION_PORT_AT + 2)?.try_into().ok()?;
    Some(Told {
        cookie: u64::from(word(message, COOKIE_AT)?) | u64::from(word(message, COOKIE_AT + 4)?) << 32,
        state: State(*message.get(STATE_AT)?),
        held: word(message, INODE_AT)? != 0,
        uid: word(message, USER_AT)?,
        remote_port: u16::from_be_bytes(port),
        place: message.get(PLACE_AT)?.try_into().ok()?,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diag_question_has_the_kernels_layout() {
        let [local, remote] = ["10.1.2.3:258", "10.4.5.6:772"].map(|address| address.parse().unwrap());
        let bytes = Question::one(local, remote, 7).encode(9);
        assert_eq!(bytes[..4], 72u32.to_ne_bytes());
        assert_eq!(number(&bytes), Some(9));
        assert_eq!(bytes[16..18], [AF_INET, IPPROTO_TCP]);
        assert_eq!(bytes[24..28], [1, 2, 3, 4], "ports");
        assert_eq!((&bytes[28..32], &bytes[44..48]), (&[10, 1, 2, 3][..], &[10, 4, 5, 6][..]));
        assert_eq!(bytes[60..64], 7u32.to_ne_bytes());
    }

    #[test]
    fn diag_answer_too_short_is_no_message() {
        let mut bytes = Question::listeners(true, 80).encode(1);
        assert_eq!(read(&bytes), None, "no answer: as long as a question");
        bytes[0] = 73;
        assert_eq!(read(&bytes), None, "longer than the packet");
    }
}
