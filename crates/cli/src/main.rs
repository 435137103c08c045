//! The crosslane command: `args` is what was typed, `intent` what it means, the rest does it.

mod args;
mod config;
mod connection;
mod exit;
mod explain;
mod fault;
mod intent;
mod key;
mod lab;
mod modes;
mod pages;
mod picture;
mod ping;
mod run;
mod screen;
mod status;
mod table;
mod top;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let typed = args::Crosslane::parse();
    exit::code(intent::Action::of(typed).and_then(intent::Action::run))
}
