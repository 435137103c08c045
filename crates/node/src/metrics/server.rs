//! The HTTP server. It runs on the thread that makes texts, which polls one descriptor of the server's for all readers.
//!
//! Any process of this machine can connect and send nothing. So the server counts readers by user, which `sock_diag` gives it: a new
//! reader above its user's limit replaces that user's oldest, and one above the limit of all replaces the oldest reader of the user
//! that has most. A user with one connection keeps it.

use crate::socket_table::{Found, LOOPBACK, SocketTable};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most readers at one time.
const READERS_MAX: usize = 64;
/// Most readers of one user.
const READERS_OF_USER: usize = 8;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Connections that are accepted in one turn.
const ACCEPTS: usize = 64;
/// How long the server accepts nobody after it ran out of descriptors.
const FULL: Duration = Duration::from_millis(500);
/// Longest request, bytes.
const REQUEST_MAX: usize = 8192;
/// How long a reader may take from `accept` to its last byte.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

struct Reader {
    stream: TcpStream,
    /// User at the other end; `None` if the kernel does not say.
    uid: Option<u32>,
    request: Vec<u8>,
    answer: Answer,
    until: Instant,
}

enum Answer {
    /// The request is not complete.
    Unasked,
    /// The request is complete, and waits for the text.
    Due,
    /// The bytes of the answer that are yet to be written.
    Left(Vec<u8>),
}

/// Whether readers wait for the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Some do.
    Some,
    /// None does.
    None,
}

/// The server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    epoll: OwnedFd,
    /// Finds the user of a connection.
    table: SocketTable,
    readers: BTreeMap<u64, Reader>,
    last: u64,
    /// Until then nobody is accepted, since there were no descriptors.
    deaf: Option<Instant>,
}

impl Server {
    /// Listens at a loopback address.
    ///
    /// # Errors
    /// The address is not available, or there are no descriptors.
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let (address, table) = (listener.local_addr()?, SocketTable::open()?);
        Ok(Self { listener, address, epoll, table, readers: BTreeMap::new(), last: 0, deaf: None })
    }

    /// Readable when [`Self::serve`] has something to do.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When the time of the first reader is over, or the server accepts again.
    pub fn deadline(&self) -> Option<Instant> {
        self.readers.values().map(|reader| reader.until).chain(self.deaf).min()
    }

    /// Accepts readers, reads their requests, answers with `text` if it is given, and drops readers that are done or too slow. Returns
    /// whether readers wait for a text.
    pub fn serve(&mut self, now: Instant, text: Option<&Arc<str>>) -> Waits {
        self.accept(now);
        let mut waits = Waits::None;
        self.readers.retain(|_, reader| {
            let is_done = reader.until <= now || reader.advance(text);
            if !is_done && matches!(reader.answer, Answer::Due) {
                waits = Waits::Some;
            }
            !is_done
        });
        waits
    }

    fn accept(&mut self, now: Instant) {
        if self.deaf.take_if(|until| *until <= now).is_some() {
            self.listen(true);
        }
        for _ in 0..ACCEPTS {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.deaf = Some(now + FULL);
                    self.listen(false);
                    break;
                }
            };
            if let Some(uid) = self.user_of(from)
                && stream.set_nonblocking(true).is_ok()
            {
                self.add(stream, uid, now);
            }
        }
        let mut events = Vec::with_capacity(READERS_MAX + 1);
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&zero));
    }

    fn listen(&self, on: bool) {
        let flags = if on { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let _ = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(0), flags);
    }

    fn add(&mut self, stream: TcpStream, uid: Option<u32>, now: Instant) {
        if self.count(uid) >= READERS_OF_USER {
            self.drop_oldest(uid);
        } else if self.readers.len() >= READERS_MAX {
            let uids = self.readers.values().map(|reader| reader.uid);
            if let Some(most) = uids.max_by_key(|uid| self.count(*uid)) {
                self.drop_oldest(most);
            }
        }
        self.last += 1;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        if epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(self.last), interest).is_ok() {
            let (request, answer, until) = (Vec::new(), Answer::Unasked, now + READER_TIMEOUT);
            self.readers.insert(self.last, Reader { stream, uid, request, answer, until });
        }
    }

    /// The user at the other end, `Some(None)` if the kernel does not say; `None` if no process holds the other end any more.
    fn user_of(&self, from: SocketAddr) -> Option<Option<u32>> {
        match self.table.find(from, self.address, LOOPBACK) {
            Some(Found::Connection { held: true, uid, .. }) => Some(Some(uid)),
            Some(_) => None,
            None => Some(None),
        }
    }

    fn count(&self, uid: Option<u32>) -> usize {
        self.readers.values().filter(|reader| reader.uid == uid).count()
    }

    fn drop_oldest(&mut self, uid: Option<u32>) {
        let oldest = self.readers.iter().find(|(_, reader)| reader.uid == uid).map(|(number, _)| *number);
        oldest.map(|number| self.readers.remove(&number));
    }
}

impl Reader {
    /// Reads and writes as far as possible without blocking; `true` if the reader is to be dropped.
    fn advance(&mut self, text: Option<&Arc<str>>) -> bool {
        let mut chunk = [0; 1024];
        while matches!(self.answer, Answer::Unasked) {
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(count) => self.request.extend(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
            if self.request.windows(4).any(|end| end == b"\r\n\r\n") {
                self.answer = asked_for(&self.request);
            } else if self.request.len() > REQUEST_MAX {
                return true;
            }
        }
        if let (Answer::Due, Some(text)) = (&self.answer, text) {
            self.answer = Answer::Left(response("200 OK", text));
        }
        let Answer::Left(left) = &mut self.answer else { return false };
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return true,
                Ok(count) => drop(left.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
        true
    }
}

fn asked_for(request: &[u8]) -> Answer {
    let known = [b"GET /metrics ".as_slice(), b"GET / ".as_slice()];
    if known.iter().any(|path| request.starts_with(path)) {
        Answer::Due
    } else {
        Answer::Left(response("404 Not Found", "see /metrics\n"))
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
