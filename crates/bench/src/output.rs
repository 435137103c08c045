//! Where results go: the terminal, and files.

use crate::calm;
use crate::export;
use crate::figure::Report;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::PathBuf;

/// Where results go.
#[derive(Args, Clone, Debug, Default)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write the JSON to a file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write Markdown tables to a file too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

impl Output {
    /// Prints and writes `report`, as people get it on a terminal (`form`) and in Markdown; then, if the bars are to be
    /// checked, looks at them.
    ///
    /// # Errors
    /// A file cannot be written, or a bar is missed.
    pub fn conclude(
        &self,
        check: bool,
        report: &Report,
        form: fn(&Report) -> String,
        markdown: fn(&Report) -> String,
    ) -> Result<()> {
        let mut report = report.clone().ended();
        calm::record(&mut report);
        let report = &report;
        let json = export::json(report)?;
        for (path, text) in [(&self.out, &json), (&self.markdown, &markdown(report))] {
            let Some(path) = path else { continue };
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            println!("{json}")
        } else {
            print!("{}", form(report))
        }
        let missed = report.failed().count();
        ensure!(!check || missed == 0, "{missed} bars are missed");
        Ok(())
    }
}
