//! The crosslane command: `args` parses the command line, `intent` turns it into an action, the other modules run it.

mod args;
mod compare;
mod config;
mod connection;
mod doctor;
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
mod plan;
mod report;
mod run;
mod screen;
mod status;
mod table;
mod text;
mod top;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let typed = args::Crosslane::parse();
    exit::code(intent::Action::of(typed).and_then(intent::Action::run))
}
