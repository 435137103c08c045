//! Files with keys.

use super::{Known, PublicKeys};
use crosslane_wire::HostId;
use ed25519_dalek::{SigningKey, VerifyingKey};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The word before a private key.
const PRIVATE: &str = "crosslane-private-key";
/// Longest file that is read, bytes.
const LONGEST: u64 = 1 << 20;

/// Why keys are not used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others than its owner can read it.
    #[error(
        "{path}: a private key that others can read (mode {mode:03o}, owner {uid}) is not used: \
         chmod 600 it, or make another one; it must belong to root or to the daemon's user"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its access mode.
        mode: u32,
        /// Its owner.
        uid: u32,
    },
    /// Others than its owner can change it.
    #[error(
        "{path}: public keys that others can change (mode {mode:03o}, owner {uid}) are not used: chmod 644 it"
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its access mode.
        mode: u32,
        /// Its owner.
        uid: u32,
    },
    /// It is no key.
    #[error("{path}: no private key; `crosslane key generate FILE` makes one")]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A line of it is none of those that may be.
    #[error(
        "{path}:{line}: must be `HOST KEY`, `HOST unsigned` or `* KEY`, where `crosslane key show FILE` prints KEY"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
    },
    /// This host is not in it as it signs, so nobody who has the file would believe it.
    #[error("{path}: this host is not listed as it signs; a line for it, on all hosts: {line}")]
    NotListed {
        /// The file.
        path: PathBuf,
        /// This host.
        host: HostId,
        /// What is missing.
        line: String,
    },
}

/// Makes a private key and writes it to a new file that only its owner can read.
///
/// # Errors
/// There is such a file, or it cannot be made.
pub fn generate(path: &Path) -> Result<SigningKey, KeyError> {
    let fail = |error: std::io::Error| KeyError::File { path: path.to_owned(), error };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| fail(std::io::Error::other(error.to_string())))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(|errno| fail(errno.into()))?;
    let mut file = File::from(fd);
    writeln!(file, "{PRIVATE} {}", to_hex(&seed)).and_then(|()| file.sync_all()).map_err(fail)?;
    Ok(SigningKey::from_bytes(&seed))
}

/// Reads a private key.
///
/// # Errors
/// It cannot be read, others can read it, or it is none.
pub fn read_private(path: &Path) -> Result<SigningKey, KeyError> {
    let (text, mode, uid) = read(path)?;
    if mode & 0o077 != 0 || !is_trusted(uid) {
        return Err(KeyError::Open { path: path.to_owned(), mode, uid });
    }
    let key = text.trim().strip_prefix(PRIVATE).and_then(|rest| from_hex(rest.trim()));
    key.map(|seed| SigningKey::from_bytes(&seed)).ok_or_else(|| KeyError::NoKey { path: path.to_owned() })
}

/// A public key as the file of public keys has it.
pub fn public_text(key: &VerifyingKey) -> String {
    to_hex(key.as_bytes())
}

impl PublicKeys {
    pub(super) fn read(path: &Path) -> Result<Self, KeyError> {
        let (text, mode, uid) = read(path)?;
        if mode & 0o022 != 0 || !is_trusted(uid) {
            return Err(KeyError::Writable { path: path.to_owned(), mode, uid });
        }
        Self::parse(&text).map_err(|line| KeyError::Line { path: path.to_owned(), line })
    }

    /// On an error the number of the line.
    pub(super) fn parse(text: &str) -> Result<Self, usize> {
        let mut keys = Self::default();
        for (number, line) in (1_usize..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if !words.is_empty() {
                keys.add(&words).ok_or(number)?;
            }
        }
        Ok(keys)
    }

    fn add(&mut self, words: &[&str]) -> Option<()> {
        let [host, key] = words else { return None };
        let key =
            if *key == "unsigned" { None } else { Some(VerifyingKey::from_bytes(&from_hex(key)?).ok()?) };
        if *host == "*" {
            self.anyone.push(key?);
            return Some(());
        }
        let host = host.parse().ok().map(HostId).filter(|host| crosslane_fabric::host_ok(*host))?;
        let known: &mut Known = self.hosts.entry(host).or_default();
        known.unsigned |= key.is_none();
        known.keys.extend(key);
        Some(())
    }
}

/// The text of a file, its access mode, and its owner.
fn read(path: &Path) -> Result<(String, u32, u32), KeyError> {
    let fail = |error| KeyError::File { path: path.to_owned(), error };
    let file = File::open(path).map_err(fail)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| fail(errno.into()))?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(fail)?;
    Ok((text, stat.st_mode & 0o777, stat.st_uid))
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}
