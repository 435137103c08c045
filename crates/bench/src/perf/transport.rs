//! What carries bytes between the two sides of a measurement.

use anyhow::Result;
use std::time::Duration;

/// What a side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Bytes to receive.
    Data,
    /// Room to send.
    Room,
    /// Either.
    Both,
}

/// One end of a byte stream in both directions.
pub trait Transport {
    /// Sends as much of `bytes` as there is room for, and returns how much that was.
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize>;

    /// Receives what is there into `target`, and returns how much that was.
    fn try_receive(&mut self, target: &mut [u8]) -> Result<usize>;

    /// Waits until it may be worth trying again. Fails if the other side seems to be gone.
    fn wait(&mut self, wait: Wait) -> Result<()>;

    /// Sends all of `bytes`.
    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        loop {
            let count = self.try_send(bytes)?;
            bytes = &bytes[count..];
            if bytes.is_empty() {
                return Ok(());
            }
            if count == 0 {
                self.wait(Wait::Room)?;
            }
        }
    }

    /// Fills `target`.
    fn receive(&mut self, mut target: &mut [u8]) -> Result<()> {
        loop {
            let count = self.try_receive(target)?;
            target = &mut target[count..];
            if target.is_empty() {
                return Ok(());
            }
            if count == 0 {
                self.wait(Wait::Data)?;
            }
        }
    }
}

/// How long a side waits for the other before it gives up.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(10);
