//! Arguments of `crosslane bench sdp`, and what they do.

use super::native::{self, Manner};
use super::size::Length;
use super::{Plan, Sdp, flow, table};
use crate::export;
use crate::frame::args::Common;
use anyhow::Result;
use clap::Args;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Plain programs with sockets send messages of a size between two hosts of a lab, over a soft cable:
by the mode that a stream chooses by itself (auto), by each mode forced by rules, and by the
kernel's TCP over loopback and over a veth pair. For each size: MB/s (10^6), MB in a second of
processor time (both programs' and both daemons' added up), copies of each byte, and which mode
carried the bytes, by the streams' own counters: a forced mode that another one stood in for has no
figure. A message is a record, or a word that tells the far end something. The same for programs that are written for streams, from 16 KB on: copied, from posted
buffers, into offered memory. Then questions of 64 bytes with answers of 64 bytes to 8 KB. Cases
take turns; medians are shown. Auto and the best forced mode, and posted and copied buffers of 1 MB,
take three times as many turns; their ratio is the median of those of single turns, with the least
and the most of them. All of it takes about twenty minutes, with --quick one. Sizes are from 1 byte to 64M;
1K is 1024.
Bars: auto reaches 0.9 of the best forced mode, is above loopback TCP at every size, and moves
more bytes per processor time than loopback TCP, 2.5 times as many from 64 KB on; posted buffers of
1 MB move 1.5 times as many as copied ones; transactions are faster than questions and answers that
are copied, and take fewer messages.";

/// `crosslane bench sdp`: the modes of a stream by size of message.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct SdpArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// Measure messages of these sizes instead of 1 B to 8 MB, as in 64,1.4K,8M
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Length>,
    /// Measure answers of these sizes instead of 64 B to 8 KB
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub replies: Vec<Length>,
    /// How long each run is measured [default: 300, with --quick 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(10..))]
    pub millis: Option<u16>,
    /// (internal) Be a program that is written for streams, with one of the following
    #[arg(long, hide = true, value_enum)]
    pub native: Option<Manner>,
    /// (internal) Be a receiver: address, size of messages
    #[arg(long, hide = true, num_args = 2)]
    pub receive: Vec<String>,
    /// (internal) Be a sender: address, size of messages
    #[arg(long, hide = true, num_args = 2)]
    pub send: Vec<String>,
    /// (internal) Answer: address, sizes of question and answer
    #[arg(long, hide = true, num_args = 3)]
    pub reply: Vec<String>,
    /// (internal) Ask: address, sizes of question and answer
    #[arg(long, hide = true, num_args = 3)]
    pub ask: Vec<String>,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        Self::new(common.usual_runs(7), common.quick)
    }
}

/// Runs `crosslane bench sdp`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_sdp(args: &SdpArgs) -> Result<()> {
    if be_a_program(args)? {
        return Ok(());
    }
    let common = &args.common;
    let mut plan = Plan::usual(common);
    plan.millis = args.millis.map_or(plan.millis, u64::from);
    for (usual, asked) in [(&mut plan.sizes, &args.sizes), (&mut plan.replies, &args.replies)] {
        if !asked.is_empty() {
            usual.clone_from(asked);
        }
    }
    common.run(&mut Sdp::new(plan), table::table, export::markdown)
}

/// Runs the role that the measuring process started this one for; returns whether there was one.
fn be_a_program(args: &SdpArgs) -> Result<bool> {
    let size = |text: &String| text.parse::<usize>();
    match (&args.receive[..], &args.send[..], &args.reply[..], &args.ask[..], args.native) {
        ([at, len], .., None) => flow::receive(at.parse()?, size(len)?)?,
        ([at, len], .., Some(manner)) => native::receive(manner, at.parse()?, size(len)?)?,
        (_, [to, len], .., None) => flow::send(to.parse()?, size(len)?)?,
        (_, [to, len], .., Some(manner)) => native::send(manner, to.parse()?, size(len)?)?,
        (_, _, [at, asked, answer], _, None) => flow::reply(at.parse()?, size(asked)?, size(answer)?)?,
        (_, _, [at, asked, answer], _, Some(_)) => native::reply(at.parse()?, size(asked)?, size(answer)?)?,
        (.., [to, asked, answer], None) => flow::ask(to.parse()?, size(asked)?, size(answer)?)?,
        (.., [to, asked, answer], Some(manner)) => {
            native::ask(manner, to.parse()?, size(asked)?, size(answer)?)?
        }
        _ => return Ok(false),
    }
    Ok(true)
}
