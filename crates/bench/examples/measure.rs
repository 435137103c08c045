//! The measuring commands as a program of their own, to work on them without the rest.

use clap::Parser;
use crosslane_bench::cli;

#[derive(Parser)]
enum Command {
    /// Direct access from user space
    Perf(cli::PerfArgs),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Perf(args) => cli::run_perf(&args),
    }
}
