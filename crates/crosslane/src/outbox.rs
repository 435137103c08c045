//! Bytes that found no room in the ring yet: answers to a requester, and the rest of a command whose sender ran out of time.

use crate::error::Error;
use crate::stream::Stream;
use std::io::IoSlice;

/// Bytes for which the far end's ring had no room.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
}

impl Outbox {
    /// Whether all bytes are sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes left.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends a head and its data, and keeps the bytes for which there is no room now.
    pub(crate) fn send(&mut self, stream: &Stream, head: &[u8], data: &[u8]) -> Result<(), Error> {
        let sent =
            if self.is_empty() { stream.try_send(&[IoSlice::new(head), IoSlice::new(data)], 0)? } else { 0 };
        self.keep(head, data, sent);
        Ok(())
    }

    /// Keeps the bytes of a head and its data that were not sent; `sent` were.
    pub(crate) fn keep(&mut self, head: &[u8], data: &[u8], sent: usize) {
        let of_head = sent.min(head.len());
        self.bytes.extend_from_slice(&head[of_head..]);
        self.bytes.extend_from_slice(&data[sent - of_head..]);
    }

    /// Sends kept bytes, and returns how many were sent.
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

/// Number of bytes received, 0 if none have arrived. The end of the stream is an error: the far end is gone.
pub(crate) fn arrived(received: Option<usize>) -> Result<usize, Error> {
    match received {
        Some(0) => Err(Error::Closed),
        count => Ok(count.unwrap_or(0)),
    }
}
