//! Messages to bytes and back, with a limit on the length of both.

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Longest encoded message on a control channel or the control socket, bytes.
pub const MAX_MESSAGE: usize = 8192;

/// Why bytes are not a message.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are no message of this version.
    #[error("malformed message")]
    Malformed,
    /// Bytes are left over behind the message.
    #[error("{0} bytes behind the message")]
    Trailing(usize),
    /// Longer than [`MAX_MESSAGE`].
    #[error("message of {0} bytes is over the limit of {MAX_MESSAGE}")]
    TooLong(usize),
    /// A field holds a value outside its range.
    #[error("field {0} out of range")]
    Range(&'static str),
}

impl DecodeError {
    /// [`Self::Range`], in a function of its own, so that callers keep no registers for it.
    #[cold]
    #[inline(never)]
    pub fn range(what: &'static str) -> Self {
        Self::Range(what)
    }
}

/// Encodes `message`; fails only if it would exceed [`MAX_MESSAGE`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, DecodeError> {
    let bytes = postcard::to_stdvec(message).map_err(|_| DecodeError::Malformed)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(DecodeError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// Decodes exactly one message that fills `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(DecodeError::TooLong(bytes.len()));
    }
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|_| DecodeError::Malformed)?;
    if rest.is_empty() { Ok(message) } else { Err(DecodeError::Trailing(rest.len())) }
}
