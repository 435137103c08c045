//! Arguments of `crosslane bench all`, and what they do.

use super::{All, PARTS, Part};
use crate::export;
use crate::frame::args::Common;
use anyhow::{Result, bail};
use clap::Args;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Each experiment runs as by its own command, one after the other, into one report, whose groups begin
with the experiment's name; `crosslane report` makes a page of it. What fails, for want of a program
or otherwise, is a figure that says why, and the others go on. With --out FILE a run that was
interrupted goes on where it was, from FILE.partial, and one in which steps failed tries those again.
All of it takes several hours; with --quick some 15 minutes, and `kernel`, which boots virtual
machines, only runs if --only names it.";

/// `crosslane bench all`: one experiment after the other.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct AllArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Run only these, as in ring,sdp; `list` names all
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
}

impl AllArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// `--only` names something that is not there.
    pub fn check(&self) -> Result<()> {
        let is_known = |name: &String| name == "list" || PARTS.iter().any(|part| part.name == name);
        match self.only.iter().find(|name| !is_known(name)) {
            Some(unknown) => bail!("`{unknown}` is no experiment of this; there are: {}", names().join(", ")),
            None => Ok(()),
        }
    }

    fn parts(&self) -> Vec<Part> {
        let wanted = |part: &Part| match self.only.is_empty() {
            true => !(self.common.quick && part.is_slow),
            false => self.only.iter().any(|name| name == part.name),
        };
        PARTS.into_iter().filter(wanted).collect()
    }
}

fn names() -> Vec<&'static str> {
    PARTS.iter().map(|part| part.name).collect()
}

/// Runs `crosslane bench all`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_all(args: &AllArgs) -> Result<()> {
    if args.only.iter().any(|name| name == "list") {
        names().iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let mut all = All::new(args.parts(), args.common.clone());
    args.common.run(&mut all, export::table, export::markdown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AllArgs,
    }

    fn parts(words: &[&str]) -> Result<Vec<&'static str>> {
        let args = Line::try_parse_from([&["all"], words].concat())?.args;
        args.check()?;
        Ok(args.parts().iter().map(|part| part.name).collect())
    }

    #[test]
    fn args_choose_parts() {
        assert_eq!(parts(&[]).unwrap().len(), PARTS.len());
        assert!(!parts(&["--quick"]).unwrap().contains(&"kernel"));
        assert_eq!(parts(&["--quick", "--only", "kernel,ring"]).unwrap(), ["ring", "kernel"]);
        let error = parts(&["--only", "rings"]).unwrap_err().to_string();
        assert!(error.contains("`rings`") && error.contains("direct-vs-tcp"), "{error}");
    }
}
