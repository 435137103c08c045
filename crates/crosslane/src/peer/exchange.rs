//! The exchange of a requester with an owner: commands are sent whole; answers go to the places that wait for them.

use super::Error;
use super::ledger::{Coming, Ledger, Op, Target};
use crate::memory::SharedBytes;
use crate::outbox::{Outbox, arrived};
use crate::stream::{self, Stream};
use crate::wait::Patience;
use crosslane_client::link::WaitFor;
use crosslane_wire::access::{ANSWER, Answer, Command};
use std::io::IoSlice;
use std::net::SocketAddr;

/// Bytes of a get that was abandoned are received and discarded in pieces of this size.
const NOWHERE: usize = 4096;

/// The stream to an owner, and the operations under way on it.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: Stream,
    pub(super) ledger: Ledger,
    /// The rest of a command that counts as posted: the call's time ran out in the middle of it.
    outbox: Outbox,
    /// The bytes of the next answer that have arrived.
    head: [u8; ANSWER],
    have: usize,
    /// The get whose bytes arrive now.
    coming: Option<Coming>,
}

impl Exchange {
    pub(super) fn new(stream: Stream) -> Self {
        let (ledger, outbox) = (Ledger::default(), Outbox::default());
        Self { stream, ledger, outbox, head: [0; ANSWER], have: 0, coming: None }
    }

    /// The owner's address.
    pub(super) fn owner(&self) -> SocketAddr {
        self.stream.peer()
    }

    /// Sends a command and its data. While there is no room, takes answers, since the owner reads no more commands until
    /// then. If time runs out in the middle of the command, the rest is kept and sent later, and it counts as posted.
    /// `false`: time ran out before the command was begun.
    pub(super) fn send(
        &mut self,
        command: &Command,
        data: &[u8],
        patience: &mut Patience,
    ) -> Result<bool, Error> {
        while !self.outbox.is_empty() || self.ledger.is_crowded() {
            if !self.advance(&mut [], patience)? {
                return Ok(false);
            }
        }
        let head = command.encode();
        let (buffers, total) = ([IoSlice::new(&head), IoSlice::new(data)], head.len() + data.len());
        let mut done = 0;
        while done < total {
            match self.stream.try_send(&buffers, done)? {
                0 if self.take_answers(&mut [])? => patience.moved(),
                0 if self.stream.wait(WaitFor::Either, patience.end())? => {}
                0 if done == 0 => return Ok(false),
                0 => {
                    self.outbox.keep(&head, data, done);
                    return Ok(true);
                }
                count => {
                    done += count;
                    patience.moved();
                }
            }
        }
        Ok(true)
    }

    /// Takes answers and sends kept bytes, or waits until that is possible; `false` if time ran out. The bytes of
    /// [`Target::Caller`] go to `caller`.
    pub(super) fn advance(&mut self, caller: &mut [u8], patience: &mut Patience) -> Result<bool, Error> {
        if self.move_on(caller)? {
            patience.moved();
            return Ok(true);
        }
        let what = if self.outbox.is_empty() { WaitFor::Data } else { WaitFor::Either };
        Ok(self.stream.wait(what, patience.end())?)
    }

    /// Takes answers and sends kept bytes; returns whether there were any. Answers that have arrived are taken even if
    /// the stream is over by now: the next call reports that.
    pub(super) fn move_on(&mut self, caller: &mut [u8]) -> Result<bool, Error> {
        let sent = self.outbox.flush(&self.stream);
        if self.take_answers(caller)? {
            return Ok(true);
        }
        Ok(sent? > 0)
    }

    /// The caller does not wait for an operation any more.
    pub(super) fn abandon(&mut self, op: &Op) {
        self.ledger.abandon(op);
        if let Some(Coming { target: target @ Target::Caller, .. }) = &mut self.coming {
            *target = Target::Nowhere;
        }
    }

    /// Takes the answers that have arrived; returns whether there were any. An error after an answer occurs again in the next call.
    fn take_answers(&mut self, caller: &mut [u8]) -> Result<bool, Error> {
        let mut any = false;
        loop {
            let outcome = match self.coming.take() {
                Some(coming) => self.take_data(coming, caller),
                None => self.take_head(),
            };
            match outcome {
                Ok(0) => return Ok(any),
                Ok(_) => any = true,
                Err(_) if any => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn take_head(&mut self) -> Result<usize, Error> {
        let count = arrived(self.stream.try_receive(&mut self.head[self.have..])?)?;
        self.have += count;
        if self.have == ANSWER {
            self.have = 0;
            let answer = Answer::decode(&self.head).map_err(|error| self.violated(&error.to_string()))?;
            let coming = self.ledger.answer(answer).map_err(|error| self.violated(error.0))?;
            self.expect(coming);
        }
        Ok(count)
    }

    fn take_data(&mut self, mut coming: Coming, caller: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(coming.left).unwrap_or(usize::MAX);
        let at = usize::try_from(coming.at).unwrap_or(usize::MAX);
        let received = match &coming.target {
            Target::Caller => match caller.get_mut(at..at.saturating_add(left)) {
                Some(target) => self.receive(target),
                None => Err(self.violated("bytes for nobody")),
            },
            Target::Nowhere => self.receive(&mut [0; NOWHERE][..left.min(NOWHERE)]),
            Target::Buffer(buffer, _) => self.receive_into(buffer, &coming),
        };
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                self.coming = Some(coming);
                return Err(error);
            }
        };
        coming.at += count as u64;
        coming.left -= count as u64;
        self.expect(Some(coming));
        Ok(count)
    }

    fn receive(&self, target: &mut [u8]) -> Result<usize, Error> {
        Ok(arrived(self.stream.try_receive(target)?)?)
    }

    fn receive_into(&self, bytes: &SharedBytes, coming: &Coming) -> Result<usize, Error> {
        Ok(arrived(self.stream.try_receive_into(bytes.part(coming.at, coming.left)?)?)?)
    }

    /// Begins to receive the bytes of a get, or ends that.
    fn expect(&mut self, coming: Option<Coming>) {
        match coming {
            Some(coming) if coming.left == 0 => self.ledger.came(coming.number),
            coming => self.coming = coming,
        }
    }

    fn violated(&self, text: &str) -> Error {
        self.stream.violated(text);
        stream::Error::Violated(text.to_owned()).into()
    }
}
