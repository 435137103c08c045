//! Arguments of `crosslane bench quick`, and what they do.

use super::{Quick, Suite};
use crate::export;
use crate::frame::args::Common;
use crate::program::Effort;
use anyhow::Result;
use clap::Args;

/// `crosslane bench quick`: everything that has a bar, in one run.
#[derive(Args, Clone, Debug)]
pub struct QuickArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Let each run of a program last three seconds instead of one
    #[arg(long)]
    pub long: bool,
    /// Leave out the second half, all programs on two processors; --quick does, too, and has ways over two cables at most
    #[arg(long)]
    pub no_pinned: bool,
    /// Run only these: perf, idle, ip, transit, safety, loss, or names of programs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
}

impl QuickArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// `--only` names something that is not there.
    pub fn check(&self) -> Result<()> {
        self.plan().check()
    }

    fn plan(&self) -> Quick {
        let usual = Quick::usual(&self.common);
        let effort = if self.long { Effort::Long } else { usual.effort };
        Quick { effort, pinned: usual.pinned && !self.no_pinned, only: self.only.clone(), ..usual }
    }
}

impl Quick {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        let (runs, brief) = (common.usual_runs(3), common.quick);
        Self { runs, effort: Effort::Short, pinned: !brief, only: Vec::new(), brief }
    }
}

/// Runs `crosslane bench quick`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_quick(args: &QuickArgs) -> Result<()> {
    args.common.run(&mut Suite::new(args.plan()), export::table, export::markdown)
}
