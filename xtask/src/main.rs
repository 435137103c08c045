//! Checks of the repository that cargo does not have: `cargo xtask deps|lines|unsafe|all`.

mod deps;
mod sources;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask CHECK
  deps    no crate uses one that lies above or beside it (ARCHITECTURE.md)
  lines   warns about source files of more than 600 lines
  unsafe  `unsafe` only where it is allowed
  all     all of these";

fn main() -> ExitCode {
    let check = std::env::args().nth(1).unwrap_or_default();
    match run(&check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(check: &str) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match check {
        "deps" => deps::check(root),
        "lines" => sources::lines(root),
        "unsafe" => sources::unsafe_code(root),
        "all" => deps::check(root).and(sources::lines(root)).and(sources::unsafe_code(root)),
        _ => bail!("no check `{check}`\n{USAGE}"),
    }
}
