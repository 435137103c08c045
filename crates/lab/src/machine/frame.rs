//! Frames on a port between a client and its machine.
//!
//! Neither end sees for certain that the other end of a port was exchanged: what a client before left may come first. So a client begins
//! with a mark and a number that it draws; the machine passes over all until a mark, and answers with the mark and that number before
//! its first frame; the client passes over all before that.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Where a request begins.
pub(crate) const MARK: [u8; 8] = *b"\0XLBEGIN";
/// Longest content of a frame, bytes.
pub(crate) const LONGEST: usize = 64 << 10;
/// Longest request, bytes: a command line and an environment as the kernel takes them.
const LONGEST_REQUEST: usize = 4 << 20;
/// Head of a frame: magic, kind, length (4 bytes, little endian).
const HEAD: usize = 6;
const MAGIC: u8 = 0x9c;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Client: the request, JSON of [`super::Ask`].
    Request = 1,
    /// Client: bytes for the program's standard input; none: its end.
    Input = 2,
    /// Client: a signal's number, one byte.
    Signal = 3,
    /// Machine: the program wants more input. The client sends one [`Kind::Input`] for each, so that signals are never behind input that
    /// nobody reads.
    Wanted = 4,
    /// Machine: what the program wrote to its standard output.
    Output = 5,
    /// Machine: what it wrote to its standard error.
    Error = 6,
    /// Machine: it has ended, with this code (one byte).
    Ended = 7,
    /// Machine: the request was refused; code (one byte) and reason.
    Refused = 8,
    /// Client: its terminal has another size, [`super::Size`].
    Resized = 9,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{Ended, Error, Input, Output, Refused, Request, Resized, Signal, Wanted};
        [Request, Input, Signal, Wanted, Output, Error, Ended, Refused, Resized]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn longest(self) -> usize {
        if self == Self::Request { LONGEST_REQUEST } else { LONGEST }
    }
}

/// A frame with `content`, at most [`LONGEST`] bytes (a request: more).
pub(crate) fn frame(kind: Kind, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut frame = vec![MAGIC, kind as u8];
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

/// The frames that come by a port, which may be non-blocking.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    port: R,
    /// What has come and was not taken.
    bytes: Vec<u8>,
    /// When the wait for more ends, with an error of kind `TimedOut`.
    pub(crate) deadline: Option<Instant>,
}

impl<R: Read + AsFd> Frames<R> {
    pub(crate) fn new(port: R) -> Self {
        Self { port, bytes: Vec::new(), deadline: None }
    }

    /// The port, to write to.
    pub(crate) fn port(&self) -> io::Result<OwnedFd> {
        self.port.as_fd().try_clone_to_owned()
    }

    /// The next frame; `None` if the other end is gone. What is no frame is an error of kind `InvalidData`, and stays, for
    /// [`Frames::pass_to`].
    pub(crate) fn next(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        if !self.have(HEAD)? {
            return Ok(None);
        }
        let kind =
            Kind::of(self.bytes[1]).filter(|_| self.bytes[0] == MAGIC).ok_or(ErrorKind::InvalidData)?;
        let len = self.bytes[2..HEAD].iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
        if len > kind.longest() {
            return Err(ErrorKind::InvalidData.into());
        }
        if !self.have(HEAD + len)? {
            return Ok(None);
        }
        let content = self.bytes.drain(..HEAD + len).skip(HEAD).collect();
        Ok(Some((kind, content)))
    }

    /// Passes over all up to and with `mark`; `false` if the other end is gone before it came.
    pub(crate) fn pass_to(&mut self, mark: &[u8]) -> io::Result<bool> {
        loop {
            if let Some(at) = self.bytes.windows(mark.len()).position(|part| part == mark) {
                self.bytes.drain(..at + mark.len());
                return Ok(true);
            }
            let kept = self.bytes.len().min(mark.len() - 1);
            self.bytes.drain(..self.bytes.len() - kept);
            if !self.have(kept + 1)? {
                return Ok(false);
            }
        }
    }

    /// The next `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if !self.have(N)? {
            return Ok(None);
        }
        let mut taken = [0; N];
        taken.copy_from_slice(&self.bytes[..N]);
        self.bytes.drain(..N);
        Ok(Some(taken))
    }

    /// Reads until `len` bytes are there; `false` at the end.
    fn have(&mut self, len: usize) -> io::Result<bool> {
        let mut part = [0; 16 << 10];
        while self.bytes.len() < len {
            self.wait()?;
            match self.port.read(&mut part) {
                Ok(0) => return Ok(false),
                Ok(read) => self.bytes.extend_from_slice(&part[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sleeps until there is something to read, or the other end is gone.
    fn wait(&self) -> io::Result<()> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.port, PollFlags::IN)], left.as_ref()) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn frames_of(bytes: &[u8]) -> Frames<UnixStream> {
        let (here, mut there) = UnixStream::pair().expect("pair");
        there.write_all(bytes).expect("write");
        Frames::new(here)
    }

    #[test]
    fn frame_arrives_as_it_was_sent() {
        let long = vec![7; LONGEST];
        let mut frames =
            frames_of(&[frame(Kind::Signal, &[15]), frame(Kind::Input, &long[..90_000 % LONGEST])].concat());
        assert_eq!(frames.next().expect("frame"), Some((Kind::Signal, vec![15])));
        assert_eq!(
            frames.next().expect("frame").map(|(kind, content)| (kind, content.len())),
            Some((Kind::Input, 90_000 % LONGEST))
        );
        assert_eq!(frames.next().expect("end"), None);
    }

    #[test]
    fn frame_begins_behind_the_last_mark_whatever_came_before() {
        let rest = frame(Kind::Output, b"of a client before");
        let begin = [&MARK[..], &[9; 16], &frame(Kind::Request, b"{}")].concat();
        let mut frames = frames_of(&[&rest[..9], &begin].concat());
        assert!(frames.pass_to(&MARK).expect("mark"));
        assert_eq!(frames.take::<16>().expect("number"), Some([9; 16]));
        assert_eq!(frames.next().expect("frame"), Some((Kind::Request, b"{}".to_vec())));
        assert!(!frames.pass_to(&MARK).expect("none"));
    }

    #[test]
    fn frame_that_is_none_stays_for_who_looks_for_a_mark() {
        for wrong in [vec![MAGIC, 99, 0, 0, 0, 0], vec![MAGIC, 2, 255, 255, 255, 255], vec![0; 6]] {
            let mut frames = frames_of(&[&wrong[..], &MARK].concat());
            assert_eq!(frames.next().expect_err("no frame").kind(), ErrorKind::InvalidData);
            assert!(frames.pass_to(&MARK).expect("mark"));
        }
    }
}
