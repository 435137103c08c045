//! Signatures of records, if the operator gives keys.

use core::fmt::Debug;
use crosslane_wire::HostId;
use crosslane_wire::control::{LinkState, Seal};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a record is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Distrust {
    /// No key of that host is known.
    #[error("no key of this host is known")]
    Stranger,
    /// It has no signature.
    #[error("not signed")]
    Unsigned,
    /// The signature was not made with a key of that host.
    #[error("not signed with its key")]
    Forged,
}

/// Signs this host's records and checks those of others. Signatures are over [`LinkState::sealed_bytes`].
pub trait Keys: Debug + Send {
    /// This host's signature; `None` if it has no key.
    fn sign(&self, bytes: &[u8]) -> Option<Seal>;

    /// Checks that a record was made by its origin.
    ///
    /// # Errors
    /// It was not, or that cannot be determined.
    fn check(&self, record: &LinkState) -> Result<(), Distrust>;
}

/// No signatures; every record is accepted.
#[derive(Clone, Copy, Debug)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn sign(&self, _: &[u8]) -> Option<Seal> {
        None
    }

    fn check(&self, _: &LinkState) -> Result<(), Distrust> {
        Ok(())
    }
}

/// Refused records of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of them.
    pub count: u64,
    /// Why the last one was refused.
    pub why: Distrust,
}

/// Refused records, by origin.
pub type AllRefused = BTreeMap<HostId, Refused>;
