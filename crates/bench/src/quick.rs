//! The options of `crosslane bench quick`.

use crate::program::{self, Effort, Program};

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Runs of each case.
    pub runs: usize,
    /// Length of one run of a program.
    pub effort: Effort,
    /// Whether all is run again on two processors.
    pub pinned: bool,
    /// Run these programs only (by name); all if empty.
    pub only: Vec<String>,
}

impl Quick {
    /// Those of the programs that are wanted.
    pub(crate) fn programs(&self) -> Vec<Program> {
        program::all().into_iter().filter(|program| self.wants(program.name)).collect()
    }

    /// Those that nothing accelerates.
    pub(crate) fn plain_programs(&self) -> Vec<Program> {
        let programs = program::over_ip().into_iter();
        programs.filter(|program| self.wants("ip") || self.wants(program.name)).collect()
    }

    /// Whether the part of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
