//! Keys of hosts: what this host signs its link states with, and what it checks those of others by.
//!
//! ```text
//!   key  = "/etc/crosslane/key"       private, this host's own (or one for the whole fabric); mode 0600
//!   keys = "/etc/crosslane/keys"      public, the same on all hosts:  2 4f..e1     host 2 signs with this key
//!                                                                     2 90..77     or with this one
//!                                                                     3 unsigned   host 3 has none, and is believed
//!                                                                     * 77..0b     any host may sign with this one
//! ```
//! Without `keys` everybody is believed. With it a host that is not listed is not.

mod file;

pub use file::{KeyError, generate, public_text, read_private};

use crate::config::Config;
use crosslane_fabric::links::{Distrust, Keys};
use crosslane_wire::HostId;
use crosslane_wire::control::{LinkState, Seal};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use std::collections::BTreeMap;

/// What is known of a host.
#[derive(Debug, Default)]
struct Known {
    keys: Vec<VerifyingKey>,
    unsigned: bool,
}

/// The public keys of all hosts.
#[derive(Debug, Default)]
pub struct PublicKeys {
    hosts: BTreeMap<HostId, Known>,
    anyone: Vec<VerifyingKey>,
}

/// What this host signs with and checks by.
#[derive(Debug, Default)]
pub struct KeyRing {
    own: Option<SigningKey>,
    public: Option<PublicKeys>,
}

impl KeyRing {
    /// Reads the files that a configuration names.
    ///
    /// # Errors
    /// One cannot be read, others may read or change it, it makes no sense, or the two do not fit.
    pub fn load(config: &Config) -> Result<Self, KeyError> {
        let own = config.key.as_deref().map(read_private).transpose()?;
        let public = config.keys.as_deref().map(PublicKeys::read).transpose()?;
        if let (Some(public), Some(path)) = (&public, &config.keys) {
            public.check_own(config.addresses.me, own.as_ref(), path)?;
        }
        Ok(Self { own, public })
    }

    /// Whether this host signs.
    pub fn signs(&self) -> bool {
        self.own.is_some()
    }

    /// Whether this host checks what others say.
    pub fn checks(&self) -> bool {
        self.public.is_some()
    }
}

impl PublicKeys {
    /// Others must believe us by the same file, and so must we.
    fn check_own(
        &self,
        me: HostId,
        own: Option<&SigningKey>,
        path: &std::path::Path,
    ) -> Result<(), KeyError> {
        let public = own.map(SigningKey::verifying_key);
        let listed = public.is_some_and(|key| self.of(me).any(|known| *known == key));
        if listed || self.hosts.get(&me).is_some_and(|known| known.unsigned) {
            return Ok(());
        }
        let word = public.map_or_else(|| "unsigned".to_owned(), |key| public_text(&key));
        let line = format!("{me} {word}");
        Err(KeyError::NotListed { path: path.to_owned(), host: me, line })
    }

    fn of(&self, host: HostId) -> impl Iterator<Item = &VerifyingKey> {
        let own = self.hosts.get(&host).map_or(&[][..], |known| &known.keys);
        own.iter().chain(&self.anyone)
    }

    fn check(&self, record: &LinkState) -> Result<(), Distrust> {
        let known = self.hosts.get(&record.origin);
        if known.is_some_and(|known| known.unsigned) {
            return Ok(());
        }
        if self.of(record.origin).next().is_none() {
            return Err(Distrust::Stranger);
        }
        let seal = record.seal.ok_or(Distrust::Unsigned)?;
        let (signature, bytes) = (Signature::from_components(seal.0, seal.1), record.sealed_bytes());
        let is_good = |key: &VerifyingKey| key.verify_strict(&bytes, &signature).is_ok();
        if self.of(record.origin).any(is_good) { Ok(()) } else { Err(Distrust::Forged) }
    }
}

impl Keys for KeyRing {
    fn sign(&self, bytes: &[u8]) -> Option<Seal> {
        let signature = self.own.as_ref()?.sign(bytes);
        Some(Seal(*signature.r_bytes(), *signature.s_bytes()))
    }

    fn check(&self, record: &LinkState) -> Result<(), Distrust> {
        self.public.as_ref().map_or(Ok(()), |public| public.check(record))
    }
}

#[cfg(test)]
mod tests;
