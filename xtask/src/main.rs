//! What cargo does not have: checks of the repository (`cargo xtask deps|circles|lines|unsafe|targets|names|all`), fuzzing, the differential tester, the soak, and the bill of materials.

mod circles;
mod deps;
mod differ;
mod fuzz;
mod names;
mod sbom;
mod soak;
mod sources;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK
  deps     no crate uses one that lies above or beside it (ARCHITECTURE.md)
  circles  no modules of a crate use each other in a circle, but for those that are known
  lines    warns about source files of more than 600 lines
  unsafe   `unsafe` only where it is allowed
  targets  the list of fuzz targets names each one that there is
  names    each test that a document names exists
  all      all of these checks
  fuzz     runs the fuzz targets: `cargo xtask fuzz --help`
  differ   random socket calls on the kernel's TCP and on streams, all results compared:
           differ [--minutes N | --seconds N] [--seed N]
  soak     transfers round a ring of hosts, all compared, while cables are cut and programs and
           daemons killed: soak [--minutes N] [--seed S] [--json]
  sbom     what the programs are made of (CycloneDX), and its licences: sbom FOLDER";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let (task, more) = words.split_first().map_or(("", words), |(task, more)| (task.as_str(), more));
    match task {
        "circles" => circles::check(root),
        "deps" => deps::check(root),
        "lines" => sources::lines(root),
        "unsafe" => sources::unsafe_code(root),
        "targets" => fuzz::targets::check(root),
        "names" => names::check(root),
        "all" => deps::check(root)
            .and(circles::check(root))
            .and(sources::lines(root))
            .and(sources::unsafe_code(root))
            .and(fuzz::targets::check(root))
            .and(names::check(root)),
        "fuzz" => fuzz::run(root, more.iter().cloned()),
        "differ" => differ::run(root, more),
        "soak" => soak::run(root, more),
        "sbom" => sbom::run(root, more),
        _ => bail!("no task `{task}`\n{USAGE}"),
    }
}
