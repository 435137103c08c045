//! Completion scripts and manual pages.

use crate::args::Crosslane;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io::{Write, stdout};
use std::path::Path;

/// Prints the completion script for `shell`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Crosslane::command(), "crosslane", &mut script);
    stdout().lock().write_all(&script)?;
    Ok(())
}

/// Prints the page of `crosslane`, or writes the pages of it and of all subcommands into `folder`.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn man(folder: Option<&Path>) -> Result<()> {
    let mut command = Crosslane::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = folder else {
        stdout().lock().write_all(&page(command, "1")?)?;
        return Ok(());
    };
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    write_pages(command, folder)?;
    let path = folder.join("crosslaned.8");
    let daemon = crosslane_node::Arguments::command().name("crosslaned");
    fs::write(&path, page(daemon, "8")?).with_context(|| format!("write {}", path.display()))
}

fn write_pages(command: Command, folder: &Path) -> Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{}-{}", command.get_name(), sub.get_name());
        // The library wants names that live as long as the program; a handful of pages is printed once.
        let name: &'static str = name.leak();
        let usage = sub.clone().bin_name(name.replace('-', " "));
        write_pages(usage.name(name), folder)?;
    }
    let path = folder.join(format!("{}.1", command.get_name()));
    fs::write(&path, page(command, "1")?).with_context(|| format!("write {}", path.display()))
}

fn page(command: Command, section: &str) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).section(section).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_page_exists_for_every_subcommand() {
        let folder = tempfile::tempdir().expect("folder");
        man(Some(folder.path())).expect("written");
        for name in [
            "crosslane.1",
            "crosslane-lab.1",
            "crosslane-lab-up.1",
            "crosslane-ping.1",
            "crosslane-metrics.1",
            "crosslaned.8",
        ] {
            let text = fs::read_to_string(folder.path().join(name)).expect(name);
            assert!(text.contains(".TH"), "{name}");
        }
    }
}
