//! The Crosslane daemon.

use clap::Parser;
use crosslane_node::{Arguments, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&Arguments::parse())
}
