//! `crosslane top`: what goes on at this host, live. As a display where there is a terminal ([`display`]), else as text or JSON ([`plain`]).
//!
//! A [`daemon`] is asked by threads of their own ([`worker`]); [`state`] makes [`rates`], [`history`], [`latency`] and [`events`] of its
//! looks; [`rows`] are tables of that, [`ui`] is what keys ([`key`]) have changed, and [`view`] draws both on a [`terminal`].

mod columns;
mod daemon;
mod display;
mod events;
mod help;
mod history;
mod key;
mod latency;
mod layout;
mod plain;
mod rates;
mod rows;
mod signals;
mod state;
mod terminal;
mod theme;
mod ui;
mod units;
mod view;
mod worker;

use crate::args::TopArgs;
use anyhow::Result;
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::time::Duration;

/// Shows what goes on until a key or a signal ends it.
///
/// # Errors
/// No daemon answers, or it went away.
pub(crate) fn top(socket: &Path, delay: Duration, args: &TopArgs) -> Result<()> {
    let is_display =
        !args.json && !args.plain && stdout().is_terminal() && stdin().is_terminal() && can_draw();
    if is_display { display::run(socket, delay, args) } else { plain::run(socket, delay, args) }
}

/// Whether the terminal is of a kind that can be drawn on.
fn can_draw() -> bool {
    std::env::var_os("TERM").is_some_and(|kind| !kind.is_empty() && kind != "dumb")
}
