//! Ordered byte streams with the semantics of the Sockets Direct Protocol: in which state of a direction its receiver accepts
//! which record, and what that record does. Pure: no clock, no memory, no thread.
//!
//! ```text
//!            one direction, as its receiver sees it
//!
//!   Handshake --Hello / HelloAck--> Open --Data--> Open
//!                                   |
//!                                   +--DisConn----> Ended      no more bytes, end of file
//!                                   +--Downgrade--> Tcp        all later bytes travel by the kernel's TCP
//!   any of them --AbortConn--> Aborted                          connection reset
//! ```
//! In the state Open the receiver also accepts SrcAvail and SinkAvail, which carry bytes as Data does and also announce
//! memory: see [`zcopy`].
//! The sending direction has the same states without `Handshake`: an end sends its handshake record when it is made.
#![forbid(unsafe_code)]

pub mod chooser;
mod transfer;
pub mod zcopy;

pub use transfer::{NoTransfer, Transfer};

use crosslane_wire::record::Kind;
use thiserror::Error;

/// State of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// The far side's first record has not arrived.
    Handshake = 0,
    /// Bytes travel through the ring.
    Open = 1,
    /// The sender has sent DisConn: end of file.
    Ended = 2,
    /// The sender has sent Downgrade: later bytes travel by the kernel's TCP.
    Tcp = 3,
    /// The stream is reset.
    Aborted = 4,
}

impl Direction {
    /// The state with this number; any number that no state has is `Aborted`.
    pub fn from_u8(number: u8) -> Self {
        match number {
            0 => Self::Handshake,
            1 => Self::Open,
            2 => Self::Ended,
            3 => Self::Tcp,
            _ => Self::Aborted,
        }
    }
}

/// Which side of the connection this end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that called `connect`: sends Hello, expects HelloAck.
    Client,
    /// The end that accepted: sends HelloAck, expects Hello.
    Server,
}

impl Side {
    /// The first record that this side sends.
    pub fn handshake(self) -> Kind {
        match self {
            Self::Client => Kind::Hello,
            Self::Server => Kind::HelloAck,
        }
    }

    /// The first record that this side expects.
    pub fn expected(self) -> Kind {
        match self {
            Self::Client => Kind::HelloAck,
            Self::Server => Kind::Hello,
        }
    }
}

/// What the receiver does with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Consume the record without the program.
    Skip,
    /// Give the payload to the program.
    Deliver,
    /// Consume the record: the direction has ended or goes on by TCP, as the new state says.
    Turn,
}

/// The peer sent a record that this state does not allow: it is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind:?} record in state {state:?}")]
pub struct OutOfOrder {
    /// State of the direction.
    pub state: Direction,
    /// Kind of the record that came.
    pub kind: Kind,
}

/// The receiver of a direction in `state` reads a record of `kind`: the next state, and what to do with the record.
pub fn handle_record(side: Side, state: Direction, kind: Kind) -> Result<(Direction, Effect), OutOfOrder> {
    use Direction::{Aborted, Ended, Handshake, Open, Tcp};
    match (state, kind) {
        (Handshake, kind) if kind == side.expected() => Ok((Open, Effect::Skip)),
        (Open, kind) if kind.has_bytes() => Ok((Open, Effect::Deliver)),
        (Open, Kind::DisConn) => Ok((Ended, Effect::Turn)),
        (Open, Kind::Downgrade) => Ok((Tcp, Effect::Turn)),
        (Handshake | Open, Kind::AbortConn) => Ok((Aborted, Effect::Turn)),
        (Handshake | Open, Kind::Filler) => Ok((state, Effect::Skip)),
        (Ended | Tcp | Aborted | Handshake | Open, _) => Err(OutOfOrder { state, kind }),
    }
}

/// The sender of a direction in `state` wants to send a record of `kind`: the next state, or `None` if it must not send it.
pub fn handle_send(state: Direction, kind: Kind) -> Option<Direction> {
    match (state, kind) {
        (Direction::Open, kind) if kind.has_bytes() => Some(Direction::Open),
        (Direction::Open, Kind::DisConn) => Some(Direction::Ended),
        (Direction::Open, Kind::Downgrade) => Some(Direction::Tcp),
        (Direction::Open, Kind::AbortConn) => Some(Direction::Aborted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [Direction; 5] =
        [Direction::Handshake, Direction::Open, Direction::Ended, Direction::Tcp, Direction::Aborted];
    const KINDS: [Kind; 10] = [
        Kind::Data,
        Kind::SrcAvail,
        Kind::SinkAvail,
        Kind::Hello,
        Kind::HelloAck,
        Kind::DisConn,
        Kind::AbortConn,
        Kind::Downgrade,
        Kind::Message,
        Kind::Filler,
    ];

    #[test]
    fn stream_state_that_is_final_stays() {
        for state in [Direction::Ended, Direction::Tcp, Direction::Aborted] {
            for kind in KINDS {
                assert!(handle_record(Side::Client, state, kind).is_err());
                assert_eq!(handle_send(state, kind), None);
            }
        }
    }

    #[test]
    fn stream_delivers_bytes_only_while_open() {
        for state in STATES {
            for kind in KINDS {
                let outcome = handle_record(Side::Server, state, kind);
                let delivered = matches!(outcome, Ok((_, Effect::Deliver)));
                let carries = matches!(kind, Kind::Data | Kind::SrcAvail | Kind::SinkAvail);
                assert_eq!(delivered, state == Direction::Open && carries);
            }
        }
    }

    #[test]
    fn handshake_is_sent_once_and_as_expected() {
        for (side, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
            let greeted = handle_record(side, Direction::Handshake, other.handshake());
            assert_eq!(greeted, Ok((Direction::Open, Effect::Skip)));
            assert!(handle_record(side, Direction::Handshake, side.handshake()).is_err());
            assert!(handle_record(side, Direction::Open, other.handshake()).is_err());
        }
    }

    #[test]
    fn stream_accepts_what_may_be_sent() {
        for kind in KINDS {
            let sent = handle_send(Direction::Open, kind);
            let received = handle_record(Side::Client, Direction::Open, kind);
            if let Some(state) = sent {
                assert_eq!(received.map(|(state, _)| state), Ok(state));
            }
        }
    }

    #[test]
    fn stream_state_survives_its_number() {
        for state in STATES {
            assert_eq!(Direction::from_u8(state as u8), state);
        }
    }
}
