//! Bytes to send, and whether they arrived.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

/// Bytes of a part of a large file; parts repeat.
const PART: usize = 64 << 20;

/// `len` bytes that look random; the same for the same `seed`.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut out);
    out
}

/// Writes a file of `len` bytes that look random; 64 MB of them repeat, and each repetition starts with its number.
///
/// # Errors
/// It cannot be written.
pub fn file(path: &Path, seed: u64, len: u64) -> Result<()> {
    let mut part = bytes(seed, usize::try_from(len).unwrap_or(PART).min(PART));
    let mut out = BufWriter::new(File::create(path).with_context(|| format!("create {}", path.display()))?);
    let (mut left, mut number) = (len, 0_u64);
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(PART).min(part.len());
        if let Some(head) = part.get_mut(..8) {
            head.copy_from_slice(&(number ^ seed).to_le_bytes());
        }
        out.write_all(&part[..count])?;
        left -= count as u64;
        number += 1;
    }
    out.flush()?;
    Ok(())
}

/// Checks that two files have the same bytes, and returns how many.
///
/// # Errors
/// They differ, and where; or one cannot be read.
pub fn same(one: &Path, other: &Path) -> Result<u64> {
    let open = |path: &Path| File::open(path).with_context(|| format!("open {}", path.display()));
    let (mut a, mut b) = (open(one)?, open(other)?);
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0_u64;
    loop {
        let (m, n) = (fill(&mut a, &mut left)?, fill(&mut b, &mut right)?);
        if left[..m] != right[..n] {
            let shift = left[..m].iter().zip(&right[..n]).position(|(x, y)| x != y).unwrap_or(m.min(n));
            anyhow::bail!(
                "{} and {} differ from byte {} on (lengths {} and {})",
                one.display(),
                other.display(),
                at + shift as u64,
                a.metadata()?.len(),
                b.metadata()?.len()
            );
        }
        if m == 0 {
            return Ok(at);
        }
        at += m as u64;
    }
}

/// Checks that `got` equals the bytes sent.
///
/// # Errors
/// It is not, and from where on.
pub fn equal(sent: &[u8], got: &[u8]) -> Result<()> {
    let first = sent.iter().zip(got).position(|(x, y)| x != y).unwrap_or(sent.len().min(got.len()));
    ensure!(
        sent == got,
        "bytes differ from {first} on: {} were sent, {} came ({})",
        sent.len(),
        got.len(),
        String::from_utf8_lossy(&got[first..got.len().min(first + 80)])
    );
    Ok(())
}

fn fill(file: &mut File, buffer: &mut [u8]) -> Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read(&mut buffer[have..])? {
            0 => break,
            count => have += count,
        }
    }
    Ok(have)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_files_are_compared_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("1"), folder.path().join("2"));
        file(&one, 7, 3_000_001).unwrap();
        file(&other, 7, 3_000_001).unwrap();
        assert_eq!(same(&one, &other).unwrap(), 3_000_001);
        file(&other, 7, 3_000_002).unwrap();
        assert!(same(&one, &other).unwrap_err().to_string().contains("3000001"));
    }

    #[test]
    fn payload_bytes_are_repeatable_and_compared() {
        assert_eq!(bytes(1, 100), bytes(1, 100));
        assert_ne!(bytes(1, 100), bytes(2, 100));
        assert!(equal(&[1, 2, 3], &[1, 2]).is_err());
    }
}
