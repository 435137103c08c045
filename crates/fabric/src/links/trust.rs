//! Whose records are believed, where the operator gave keys.

use core::fmt::Debug;
use crosslane_wire::HostId;
use crosslane_wire::control::{LinkState, Seal};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a record is not believed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Distrust {
    /// No key of that host is known.
    #[error("no key of this host is known")]
    Stranger,
    /// It must be signed, and is not.
    #[error("not signed")]
    Unsigned,
    /// The signature is not made with a key of that host.
    #[error("not signed with its key")]
    Forged,
}

/// Signs our own records and checks those of others. Signatures are over [`LinkState::sealed_bytes`].
pub trait Keys: Debug + Send {
    /// Our signature; `None` if we have no key.
    fn sign(&self, bytes: &[u8]) -> Option<Seal>;

    /// Whether a record is its origin's.
    ///
    /// # Errors
    /// It is not, or nobody can tell.
    fn check(&self, record: &LinkState) -> Result<(), Distrust>;
}

/// Nobody signs, everybody is believed.
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

/// Records of one origin that were not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// Why the last one was not.
    pub why: Distrust,
}

/// Records that were not believed, by origin.
pub type AllRefused = BTreeMap<HostId, Refused>;
