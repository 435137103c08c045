//! The asking and the answering program once more, written for streams (`crosslane_client::native`): what modes that have
//! a call of their own are compared with, and where they stand beside.

use super::flow::obey;
use anyhow::{Context, Result};
use crosslane_client::native::{Error, Fabric, Stream};
use std::net::SocketAddr;

/// How a question is put and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manner {
    /// Sent and received.
    Stream,
}

impl Manner {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "native bcopy",
        }
    }

    fn ask(self, stream: &Stream, question: &[u8], answer: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Stream => {
                stream.send(question)?;
                stream.receive_all(answer)
            }
        }
    }

    /// [`Error::Closed`] when the asker has ended.
    fn reply(self, stream: &Stream, question: &mut [u8], answer: &[u8]) -> Result<(), Error> {
        match self {
            Self::Stream => {
                stream.receive_all(question)?;
                stream.send(answer)
            }
        }
    }
}

/// Answers as [`super::flow::reply`].
///
/// # Errors
/// There is no daemon, or the address is taken.
pub fn reply(manner: Manner, at: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let listener = Fabric::open()?.listen(at).context("cannot listen")?;
    obey(&listener.address(), move |progress| {
        let stream = listener.accept()?;
        let (mut asked, answer) = (vec![0; question], vec![0xa5; answer]);
        loop {
            match manner.reply(&stream, &mut asked, &answer) {
                Err(Error::Closed) => return Ok(()),
                outcome => outcome?,
            }
            progress.add(1);
        }
    })
}

/// Asks as [`super::flow::ask`].
///
/// # Errors
/// There is no daemon, or nobody listens.
pub fn ask(manner: Manner, to: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let stream = Fabric::open()?.connect(to).context("cannot connect")?;
    obey(&stream.local(), move |progress| {
        let (question, mut answered) = (vec![0x5a; question], vec![0; answer]);
        while !progress.is_over() {
            manner.ask(&stream, &question, &mut answered)?;
            progress.add(1);
        }
        Ok(stream.finish()?)
    })
}
