//! One end of a stream by hand: a circuit that is set up in order, into which a test then writes anything.

use anyhow::{Result, anyhow, bail, ensure};
use crosslane_client::session::{Session, socket_path};
use crosslane_client::{Grant, SessionError};
use crosslane_shm::{Load, Store};
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::record::{Header, Kind, mark};
use crosslane_wire::segment::{LINE, PAGE, STATE, STATE_ATTACHED, WANT_DATA, WANT_ROOM};
use crosslane_wire::{PROTOCOL_VERSION, WaiterId};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// The first record of a client.
pub const HELLO: Header = Header { len: 0, kind: Kind::Hello, flags: 0, cpu: 0 };
/// Bytes of a record before its payload, if that is short.
const HEADER: usize = 16;

/// A program's session with its daemon.
#[derive(Debug)]
pub struct Program {
    session: Session,
}

/// The client's end of one circuit of a [`Program`].
#[derive(Debug)]
pub struct End<'a> {
    program: &'a Program,
    /// Its segments and keys.
    pub grant: Grant,
    remote: SocketAddr,
    socket: OwnedFd,
    position: u64,
}

impl Program {
    /// Greets the daemon that the environment names.
    ///
    /// # Errors
    /// There is none, or it does not welcome us.
    pub fn greet(name: &str) -> Result<Self> {
        let session = Session::connect(&socket_path())?;
        let hello = Request::Hello { version: PROTOCOL_VERSION, program: name.to_owned(), ticket: 0 };
        match session.request(&hello, &[])?.0 {
            Reply::Welcome { .. } => Ok(Self { session }),
            other => bail!("instead of a welcome: {other:?}"),
        }
    }

    /// Asks for a circuit and greets the far end. The handshake must be there before the SYN: the accepting side takes
    /// an end that is not attached for one that went back to TCP.
    ///
    /// # Errors
    /// There is no circuit.
    pub fn announce(&self, remote: SocketAddr) -> Result<End<'_>> {
        self.try_announce(remote)?.map_err(|why| anyhow!("no circuit: {why:?}"))
    }

    /// The same; returns why there is no circuit.
    ///
    /// # Errors
    /// There is no socket, or the daemon does not answer as it should.
    pub fn try_announce(&self, remote: SocketAddr) -> Result<Result<End<'_>, Plain>> {
        ensure!(remote.is_ipv4(), "IPv4 only");
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        self.announce_by(socket, remote)
    }

    /// The same with a bound socket; returns why there is no circuit.
    ///
    /// # Errors
    /// The daemon does not answer as it should.
    pub fn announce_by(&self, socket: OwnedFd, remote: SocketAddr) -> Result<Result<End<'_>, Plain>> {
        let granted: Result<_, SessionError> =
            self.session.circuit(&Request::Connect { remote }, socket.as_fd());
        let grant = match granted? {
            Ok(grant) => grant,
            Err(why) => return Ok(Err(why)),
        };
        let end = End { program: self, grant, remote, socket, position: LINE };
        end.grant.segments.outbound.store_u32(STATE, STATE_ATTACHED);
        end.put(0, HELLO.to_word());
        end.grant.segments.outbound.fence();
        Ok(Ok(end))
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl End<'_> {
    /// Closes the end in order, and leaves its socket.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn close(self) -> Result<OwnedFd> {
        let (circuit, token) = (self.grant.circuit, self.grant.token);
        self.program.session.tell(&Request::Close { circuit, token, abort: false })?;
        Ok(self.socket)
    }

    /// Connects the announced connection.
    ///
    /// # Errors
    /// Those of `connect`.
    pub fn connect(&self) -> Result<()> {
        Ok(connect(&self.socket, &self.remote)?)
    }

    /// The next record, with its proper header and mark, whatever its payload says.
    ///
    /// # Errors
    /// It is too long.
    pub fn push(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        ensure!(payload.len() < 1024, "only short records");
        let header = Header { len: u32::try_from(payload.len())?, kind, flags: 0, cpu: 0 };
        self.grant.segments.outbound.write(ring(self.position)? + HEADER, payload);
        self.put(self.position, header.to_word());
        self.grant.segments.outbound.fence();
        self.position += (HEADER + payload.len()).next_multiple_of(64) as u64;
        self.wake()
    }

    /// A record of this word at `position` of the ring, with its proper mark.
    pub fn put(&self, position: u64, word: u64) {
        let Ok(at) = ring(position) else { return };
        let segment = &self.grant.segments.outbound;
        segment.store_u64(at + 8, word);
        segment.store_fence();
        segment.store_u64(at, mark(self.grant.segments.tx_key, position));
    }

    /// Rings the far side if it sleeps already, as it does on a busy machine: a sleeper that is not rung does not look.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn wake(&self) -> Result<()> {
        for word in [WANT_DATA, WANT_ROOM] {
            // The waiter is the lower half; the upper one counts requests.
            let wanted = self.grant.segments.inbound.load_u64(word) & u64::from(u32::MAX);
            let waiter = WaiterId(u32::try_from(wanted)?);
            if waiter.0 != 0 {
                let (circuit, token) = (self.grant.circuit, self.grant.token);
                self.program.session.tell(&Request::Wake { circuit, token, waiter })?;
            }
        }
        Ok(())
    }

    /// The first bytes of what the far side writes for this end, words and ring; `most` at most.
    pub fn inbound(&self, most: usize) -> Vec<u8> {
        let segment = &self.grant.segments.inbound;
        let mut bytes = vec![0; segment.len().min(most)];
        segment.read(0, &mut bytes);
        bytes
    }
}

/// Where byte `position` of the ring lies in a segment.
///
/// # Errors
/// Nowhere.
pub fn ring(position: u64) -> Result<usize> {
    Ok(usize::try_from(PAGE + position)?)
}
