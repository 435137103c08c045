//! Programs that are written for streams (the crate `crosslane`): they use calls that sockets do not have, memory that
//! lies in segments already, and replies that are written to their destination.

use super::flow::{BUFFER, Progress, obey};
use anyhow::{Context, Result};
use crosslane::fabric::Fabric;
use crosslane::stream::{Buffer, OpenBuffer};
use crosslane::stream::{Error, Stream};
use std::net::SocketAddr;

/// Buffers that a poster has.
const BUFFERS: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// How bytes are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manner {
    /// Sent and received, copied by both.
    Stream,
    /// Sent from buffers that the far end copies out of (Read Zcopy).
    Posted,
    /// Received into memory that the far end copies into (Write Zcopy).
    Offered,
    /// Asked and answered by one message, the answer copied to where it is wanted (Transaction).
    Transaction,
}

impl Manner {
    /// Those that send one way.
    pub const POURING: [Self; 3] = [Self::Stream, Self::Posted, Self::Offered];
    /// Those that ask and answer.
    pub const ASKING: [Self; 2] = [Self::Stream, Self::Transaction];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "native bcopy",
            Self::Posted => "posted buffers",
            Self::Offered => "offered memory",
            Self::Transaction => "transaction",
        }
    }

    /// The mode that is to carry it, as counters name it.
    pub fn mode(self) -> &'static str {
        match self {
            Self::Stream => "bcopy",
            Self::Posted => "read-zcopy",
            Self::Offered => "write-zcopy",
            Self::Transaction => "transaction",
        }
    }
}

/// Receives as [`super::flow::receive`], in blocks of `size` or of what there is.
///
/// # Errors
/// There is no daemon, or the address is taken.
pub fn receive(manner: Manner, at: SocketAddr, size: usize) -> Result<()> {
    let listener = Fabric::open()?.listen(at).context("cannot listen")?;
    obey(&listener.address(), move |progress| {
        let stream = listener.accept()?;
        if manner == Manner::Offered {
            let target = OpenBuffer::new(size)?;
            return until_closed(progress, || stream.receive_offered(&target));
        }
        let mut buffer = vec![0; size.max(BUFFER)];
        until_closed(progress, || stream.receive(&mut buffer))
    })
}

fn until_closed(progress: &Progress, mut receive: impl FnMut() -> Result<usize, Error>) -> Result<()> {
    loop {
        match receive() {
            Ok(0) | Err(Error::Closed) => return Ok(()),
            count => progress.add(count? as u64),
        }
    }
}

/// Sends as [`super::flow::send`].
///
/// # Errors
/// There is no daemon, or nobody listens.
pub fn send(manner: Manner, to: SocketAddr, size: usize) -> Result<()> {
    let stream = Fabric::open()?.connect(to).context("cannot connect")?;
    obey(&stream.local(), move |progress| {
        if manner == Manner::Posted {
            post(&stream, size, progress)?;
        } else {
            let block = vec![0x5a; size];
            while !progress.is_over() {
                stream.send(&block)?;
                progress.add(size as u64);
            }
        }
        Ok(stream.finish()?)
    })
}

/// Some buffers in turn, each again when the far end is done with it.
fn post(stream: &Stream, size: usize, progress: &Progress) -> Result<()> {
    let made = (0..BUFFERS).map(|_| {
        let mut buffer = Buffer::new(size)?;
        buffer.fill(0x5a);
        Ok(buffer)
    });
    let mut free = made.collect::<Result<Vec<Buffer>>>()?;
    while !progress.is_over() {
        let buffer = match free.pop() {
            Some(buffer) => buffer,
            None => stream.reclaim()?.context("all buffers are posted")?,
        };
        stream.post(buffer, size)?;
        progress.add(size as u64);
    }
    Ok(stream.flush()?)
}

/// Answers as [`super::flow::reply`].
///
/// # Errors
/// There is no daemon, or the address is taken.
pub fn reply(at: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let listener = Fabric::open()?.listen(at).context("cannot listen")?;
    obey(&listener.address(), move |progress| {
        let stream = listener.accept()?;
        let (mut asked, answer) = (vec![0; question], vec![0xa5; answer]);
        loop {
            match stream.receive_all(&mut asked) {
                Err(Error::Closed) => return Ok(()),
                outcome => outcome?,
            }
            stream.send(&answer)?;
            progress.add(1);
        }
    })
}

/// Asks as [`super::flow::ask`], and looks at a byte in each line of an answer that was written by the far program: one that
/// came by the ring is in the asker's cache, since it was copied.
///
/// # Errors
/// There is no daemon, or nobody listens.
pub fn ask(manner: Manner, to: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let stream = Fabric::open()?.connect(to).context("cannot connect")?;
    obey(&stream.local(), move |progress| {
        let (question, mut answered) = (vec![0x5a; question], vec![0; answer]);
        let target = OpenBuffer::new(answer)?;
        while !progress.is_over() {
            let landed = if manner == Manner::Transaction {
                stream.transact(&question, &target)?
            } else {
                stream.send(&question)?;
                0
            };
            // A reply that was not written comes by the ring.
            stream.receive_all(answered.get_mut(landed..).unwrap_or_default())?;
            for at in (0..landed).step_by(LINE) {
                target.read(at, &mut answered[at..=at])?;
            }
            std::hint::black_box(&answered);
            progress.add(1);
        }
        Ok(stream.finish()?)
    })
}
