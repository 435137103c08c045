//! Bytes on their way that found no room yet: answers to a requester, and the rest of a command whose sender ran out of
//! time.

use crate::error::Error;
use crate::stream::Stream;
use std::io::IoSlice;

/// Bytes that had no room in the far end's ring.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// What of them was sent.
    sent: usize,
}

impl Outbox {
    /// Whether all is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends a head and its data, or keeps what of them has no room now.
    pub(crate) fn send(&mut self, stream: &Stream, head: &[u8], data: &[u8]) -> Result<(), Error> {
        let sent =
            if self.is_empty() { stream.try_send(&[IoSlice::new(head), IoSlice::new(data)], 0)? } else { 0 };
        self.keep(head, data, sent);
        Ok(())
    }

    /// Keeps what was not sent of a head and its data.
    pub(crate) fn keep(&mut self, head: &[u8], data: &[u8], sent: usize) {
        let of_head = sent.min(head.len());
        self.bytes.extend_from_slice(&head[of_head..]);
        self.bytes.extend_from_slice(&data[sent - of_head..]);
    }

    /// Sends what was kept, and returns how many bytes went.
    pub(crate) fn flush(&mut self, stream: &Stream) -> Result<usize, Error> {
        if self.is_empty() {
            return Ok(0);
        }
        let count = stream.try_send(&[IoSlice::new(&self.bytes)], self.sent)?;
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(count)
    }
}

/// How many bytes were received, 0 if none are there. The end of the stream is an error: the far end is gone.
pub(crate) fn arrived(received: Option<usize>) -> Result<usize, Error> {
    match received {
        Some(0) => Err(Error::Closed),
        count => Ok(count.unwrap_or(0)),
    }
}
