//! The descriptors and memory that a daemon holds at rest. They must not grow.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;

/// Additional descriptors that are no leak: the status query has one.
const DESCRIPTORS: u64 = 4;
/// Additional memory that is no leak: an allocator's reserve, kB, and percent of the first look.
const MEMORY_KB: u64 = 16 * 1024;
const MEMORY_PERCENT: u64 = 10;

/// The holdings of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Open descriptors.
    pub descriptors: u64,
    /// Resident memory without what it shares, kB.
    pub resident_kb: u64,
    /// Resident shared memory, kB.
    pub shared_kb: u64,
}

impl Holding {
    /// The present holdings of the process.
    ///
    /// # Errors
    /// It is not there.
    pub fn of(pid: i32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("a daemon is gone")?;
        let kb = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Ok(Self {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).context("descriptors")?.count() as u64,
            resident_kb: kb("RssAnon:") + kb("RssFile:"),
            shared_kb: kb("RssShmem:"),
        })
    }

    /// Checks that this is not more than it was at `first`.
    ///
    /// # Errors
    /// It is, and by how much.
    pub fn has_not_grown(&self, first: &Self) -> Result<()> {
        let memory = |kb: u64| kb + kb * MEMORY_PERCENT / 100 + MEMORY_KB;
        ensure!(self.descriptors <= first.descriptors + DESCRIPTORS, "descriptors: {first:?}, now {self:?}");
        ensure!(self.resident_kb <= memory(first.resident_kb), "resident memory: {first:?}, now {self:?}");
        ensure!(self.shared_kb <= memory(first.shared_kb), "shared memory: {first:?}, now {self:?}");
        Ok(())
    }
}

/// The open descriptors of a process by kind, without numbers in their names; to look for a leak.
pub fn descriptors_by_kind(pid: i32) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let name = fs::read_link(entry.path()).map_or_else(|_| "?".into(), |path| path.display().to_string());
        let kind: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
        *kinds.entry(kind).or_insert(0) += 1;
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_sees_a_leak_and_forgives_an_allocator() {
        let first = Holding { descriptors: 20, resident_kb: 10_000, shared_kb: 0 };
        assert!(Holding { descriptors: 24, resident_kb: 20_000, ..first }.has_not_grown(&first).is_ok());
        assert!(Holding { descriptors: 25, ..first }.has_not_grown(&first).is_err());
        assert!(Holding { resident_kb: 30_000, ..first }.has_not_grown(&first).is_err());
        assert!(Holding { shared_kb: 17_000, ..first }.has_not_grown(&first).is_err());
    }

    #[test]
    fn growth_reads_this_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let holding = Holding::of(pid).unwrap();
        assert!(holding.descriptors >= 3 && holding.resident_kb > 100);
    }
}
