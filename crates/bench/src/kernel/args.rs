//! Arguments of `crosslane bench kernel`, and what they do.

use super::{KernelClients, Plan, table, window};
use crate::frame::args::Common;
use anyhow::Result;
use clap::Args;
use crosslane_shm::copy::Strategy;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Two virtual machines, each with a kernel of its own, are joined by one NTB bridge of software. The
kernel's own clients and Crosslane have the bridge by turns (--runs), in one run:
  copy      stock ntb_perf, and stores of a Crosslane program into the same window, by memcpy
            (as streams do) and by rep movs (as ntb_perf does), MB/s (10^6)
  iperf3    one TCP stream, writes of 128 KB, MB/s: by sockets (unmodified iperf3 under the
            library) and by the kernel's TCP over Crosslane's IP (xl0), beside ntb_netdev
  sockperf  64 bytes, ping-pong over TCP, one way, median, us; likewise
  ping      there and back, mean, us: over xl0, beside ntb_netdev
Ratios are above 1 where Crosslane is better: medians of those of single turns, with the least and
the most. Bars: iperf3 by sockets has 3 times ntb_netdev's rate, sockperf a third of its time.
Without KVM machines are emulated: figures are those of an emulator, and only ratios mean anything.
Needs QEMU, iperf3, sockperf and ping, and the image that `make vm-image` builds. Three turns take
about six minutes without KVM.";

/// `crosslane bench kernel`: the kernel's own clients of an NTB bridge, and Crosslane on the same one.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct KernelArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// How long each run of a program lasts, in whole seconds [default: 3, with --quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub seconds: Option<u16>,
    /// Folder with the machines' image (default: where `make vm-image` or an installation puts it)
    #[arg(long, value_name = "FOLDER")]
    pub image: Option<PathBuf>,
    /// (internal) Have memory behind the window of this device until it is ended
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub hold: Option<PathBuf>,
    /// (internal) Store into the window of this device, and print the rate
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub pour: Option<PathBuf>,
    /// (internal) .. by `rep movs`, as the kernel does
    #[arg(long, hide = true, requires = "pour")]
    pub rep_movs: bool,
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        Self { turns: common.runs(3, 1), seconds: if common.quick { 1 } else { 3 }, image: None }
    }
}

/// Runs `crosslane bench kernel`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_kernel(args: &KernelArgs) -> Result<()> {
    if let Some(device) = &args.hold {
        return window::hold(device);
    }
    let usual = Plan::usual(&args.common);
    let seconds = args.seconds.map_or(usual.seconds, u32::from);
    if let Some(device) = &args.pour {
        let strategy = if args.rep_movs { Strategy::RepMovs } else { Strategy::Cached };
        return window::pour(device, Duration::from_secs(seconds.into()), strategy);
    }
    let plan = Plan { seconds, image: args.image.clone(), ..usual };
    args.common.run(&mut KernelClients::new(plan), table::table, table::markdown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KernelArgs,
    }

    fn parse(words: &[&str]) -> Result<KernelArgs, clap::Error> {
        Ok(Line::try_parse_from([&["kernel"], words].concat())?.args)
    }

    #[test]
    fn args_have_usual_values_and_bounds() {
        let usual = parse(&[]).unwrap();
        assert_eq!((usual.common.runs(3, 1), usual.seconds, usual.image), (3, None, None));
        let given = parse(&["--runs", "5", "--seconds", "2", "--image", "/there", "--json"]).unwrap();
        assert_eq!((given.common.runs(3, 1), given.seconds), (5, Some(2)));
        assert_eq!(given.image, Some(PathBuf::from("/there")));
        assert!(given.common.output.json);
        assert!(parse(&["--runs", "0"]).is_err() && parse(&["--seconds", "0"]).is_err());
    }
}
