//! The measuring commands as a program of their own, to work on them without the rest.

use clap::Parser;
use crosslane_bench::cli;

#[derive(Parser)]
enum Command {
    /// Direct access from user space
    Perf(cli::PerfArgs),
    /// All bars
    Quick(cli::QuickArgs),
    /// Programs between hosts
    Demo(cli::DemoArgs),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Perf(args) => cli::run_perf(&args),
        Command::Quick(args) => cli::run_quick(&args),
        Command::Demo(args) => cli::run_demo(&args),
    }
}
