//! Plain programs with many connections: one answers 64 bytes with the same 64 bytes, the other asks on one connection after the other, so many
//! at a time. They wait by epoll, and have nothing of ours, so that the preloaded library is measured.

use crate::speaker::{end_with_parent, write_line};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Connections that may wait for the answering program.
const BACKLOG: i32 = 16_384;
/// Bytes of a question.
const LEN: usize = 64;
/// Questions that are under way at a time, at most.
const AT_A_TIME: usize = 32;
/// Longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time of an answer that is told from longer ones, ns.
const LONGEST_NS: u64 = 60_000_000_000;
/// Events that are taken at a time.
const EVENTS: usize = 1024;
/// Descriptors beside those of connections.
const OTHERS: u64 = 100;

/// The asking program has all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Seconds that it took.
    pub seconds: f64,
}

/// What the asking program saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// First answers a second, one on each connection.
    pub first: f64,
    /// Answers a second, behind the first of each.
    pub rate: f64,
    /// Time of an answer, us: of half of them at most, and of 99 of 100.
    pub median_us: f64,
    /// See [`Self::median_us`].
    pub p99_us: f64,
}

/// Lets this process have so many connections.
fn allow(connections: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections + OTHERS;
    if limit.current.is_some_and(|now| now < wanted) {
        let most = limit.maximum.unwrap_or(wanted);
        ensure!(most >= wanted, "this user may have {most} descriptors (ulimit -Hn), {wanted} are needed");
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit })?;
    }
    Ok(())
}

/// Answers everybody who connects to `port`, until it is killed.
///
/// # Errors
/// The port is taken, or there are not enough descriptors.
pub fn answer(port: u16) -> Result<()> {
    // As many as it gets: who asks says how many are needed.
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(OTHERS);
    allow(most.saturating_sub(OTHERS))?;
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port).into()).context("cannot listen")?;
    // With a short queue the kernel drops those that come while this program does not run, and they wait a second for the next try.
    rustix::net::listen(&listener, BACKLOG)?;
    let mut peers: Vec<Option<TcpStream>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let listens = Token(usize::MAX);
    poll.registry().register(&mut listener, listens, Interest::READABLE)?;
    let mut events = Events::with_capacity(EVENTS);
    loop {
        poll.poll(&mut events, None).or_else(unless_interrupted)?;
        for event in &events {
            if event.token() != listens {
                let at = event.token().0;
                if peers[at].as_mut().is_none_or(|peer| echo(peer).is_err()) {
                    peers[at] = None;
                    free.push(at);
                }
                continue;
            }
            while let Ok((mut peer, _)) = listener.accept() {
                let at = free.pop().unwrap_or(peers.len());
                poll.registry().register(&mut peer, Token(at), Interest::READABLE)?;
                if at == peers.len() { peers.push(Some(peer)) } else { peers[at] = Some(peer) }
            }
        }
    }
}

/// Sends back what has come; an error at the end of the connection.
fn echo(peer: &mut TcpStream) -> Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => anyhow::bail!("the end"),
            Ok(count) => peer.write_all(&bytes[..count])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn unless_interrupted(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// One connection of the asking program.
struct Line {
    peer: TcpStream,
    /// Bytes of the answer that have come, and when it was asked for; `None`: nothing is asked.
    awaited: Option<(usize, Instant)>,
}

impl Line {
    fn ask(&mut self) -> Result<()> {
        self.awaited = Some((0, Instant::now()));
        Ok(self.peer.write_all(&[0x5a; LEN])?)
    }

    /// How long the answer took, if it is there now.
    fn hear(&mut self) -> Result<Option<Duration>> {
        let (mut bytes, mut count) = ([0; 2 * LEN], 0);
        loop {
            match self.peer.read(&mut bytes) {
                Ok(0) => anyhow::bail!("the answering program has ended"),
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some((got, asked)) = &mut self.awaited else {
            ensure!(count == 0, "{count} bytes came that nobody asked for");
            return Ok(None);
        };
        *got += count;
        ensure!(*got <= LEN, "{got} bytes came as an answer to {LEN}");
        let time = (*got == LEN).then(|| asked.elapsed());
        if time.is_some() {
            self.awaited = None;
        }
        Ok(time)
    }
}

/// The asking program's connections.
pub struct Crowd {
    poll: Poll,
    lines: Vec<Line>,
}

impl Crowd {
    /// Opens so many connections, one after the other.
    ///
    /// # Errors
    /// Nobody answers, or there are not enough descriptors.
    pub fn open(to: SocketAddr, connections: u32) -> Result<Self> {
        allow(connections.into())?;
        let poll = Poll::new()?;
        let mut lines = Vec::new();
        for number in 0..connections {
            let peer = std::net::TcpStream::connect(to).with_context(|| format!("connection {number}"))?;
            peer.set_nonblocking(true)?;
            lines.push(Line { peer: TcpStream::from_std(peer), awaited: None });
        }
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(&mut line.peer, Token(number), Interest::READABLE)?;
        }
        Ok(Self { poll, lines })
    }

    /// Asks on one connection after the other while there are `more` questions, of which so many were asked already, and waits for all
    /// answers: their times, ns, and the seconds of it all.
    ///
    /// # Errors
    /// An answer does not come, or is none.
    fn echoes(&mut self, mut more: impl FnMut(usize) -> bool) -> Result<(Histogram<u64>, f64)> {
        let mut times = Histogram::new_with_bounds(1, LONGEST_NS, 3)?;
        let mut idle: VecDeque<usize> = (0..self.lines.len()).collect();
        let (mut asked, mut open, begin) = (0, 0, Instant::now());
        let mut events = Events::with_capacity(EVENTS);
        loop {
            while open < AT_A_TIME && more(asked) {
                let Some(number) = idle.pop_front() else { break };
                self.lines[number].ask()?;
                (asked, open) = (asked + 1, open + 1);
            }
            if open == 0 {
                return Ok((times, begin.elapsed().as_secs_f64()));
            }
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            ensure!(!events.is_empty(), "{open} answers do not come");
            for event in &events {
                let number = event.token().0;
                if let Some(time) = self.lines[number].hear()? {
                    times.saturating_record(u64::try_from(time.as_nanos())?);
                    idle.push_back(number);
                    open -= 1;
                }
            }
        }
    }

    /// Asks once on each connection, since the first use of a stream takes more, and then for `time`.
    ///
    /// # Errors
    /// An answer does not come, or is none.
    pub fn ask(&mut self, time: Duration) -> Result<Asked> {
        let each = self.lines.len();
        let (first, seconds) = self.echoes(|asked| asked < each)?;
        #[expect(clippy::cast_precision_loss, reason = "a figure")]
        let rate = |times: &Histogram<u64>, seconds: f64| times.len() as f64 / seconds;
        let first = rate(&first, seconds);
        let begin = Instant::now();
        let (times, seconds) = self.echoes(|_| begin.elapsed() < time)?;
        #[expect(clippy::cast_precision_loss, reason = "a figure")]
        let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Asked { first, rate: rate(&times, seconds), median_us: at(0.5), p99_us: at(0.99) })
    }
}

/// The asking program: says when it has its connections, and then its result.
///
/// # Errors
/// As those of [`Crowd`].
pub fn asker(to: SocketAddr, connections: u32, time: Duration) -> Result<()> {
    end_with_parent()?;
    let (mut out, begin) = (std::io::stdout(), Instant::now());
    let mut crowd = Crowd::open(to, connections)?;
    write_line(&mut out, &Opened { seconds: begin.elapsed().as_secs_f64() })?;
    write_line(&mut out, &crowd.ask(time)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_asks_on_every_connection() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::thread::spawn(move || answer(free.port()));
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(free).is_err() {
            assert!(Instant::now() < end, "it does not listen");
            std::thread::sleep(Duration::from_millis(1));
        }
        for count in [1, 5, 40] {
            let mut crowd = Crowd::open(free, count).unwrap();
            let asked = crowd.ask(Duration::from_millis(30)).unwrap();
            assert!(asked.first > 0.0 && asked.rate > 0.0, "{asked:?}");
            assert!(asked.median_us > 0.1 && asked.p99_us >= asked.median_us, "{asked:?}");
            let (times, _) = crowd.echoes(|asked| asked < 100).unwrap();
            assert_eq!(times.len(), 100, "each question has one answer");
        }
    }
}
