//! Arguments of `crosslane bench kernel`, and what they do.

use super::{Plan, measure, table, window};
use crate::cli::Output;
use anyhow::Result;
use clap::Args;
use crosslane_shm::copy::Strategy;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Two virtual machines, each with a kernel of its own, are joined by one NTB bridge of software. The
kernel's own clients and Crosslane have the bridge by turns, in one run:
  copy      stock ntb_perf, and stores of a Crosslane program into the same window, by memcpy
            (as streams do) and by rep movs (as ntb_perf does), MB/s (10^6)
  iperf3    one TCP stream, writes of 128 KB, MB/s: by sockets (unmodified iperf3 under the
            library) and by the kernel's TCP over Crosslane's IP (xl0), beside ntb_netdev
  sockperf  64 bytes, ping-pong over TCP, one way, median, us; likewise
  ping      there and back, mean, us: over xl0, beside ntb_netdev
Ratios are above 1 where Crosslane is better: medians of those of single turns, with the least and
the most. Bars: iperf3 by sockets has 3 times ntb_netdev's rate, sockperf a third of its time. The
exit code says nothing of them.
Without KVM machines are emulated: figures are those of an emulator, and only ratios mean anything.
Needs QEMU, iperf3, sockperf and ping, and the image that `make vm-image` builds. Three turns take
about six minutes without KVM.";

/// `crosslane bench kernel`: the kernel's own clients of an NTB bridge, and Crosslane on the same one.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct KernelArgs {
    /// Turns: how often each has the bridge; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub turns: u16,
    /// How long each run of a program lasts, in whole seconds
    #[arg(long, default_value_t = 3, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=600))]
    pub seconds: u16,
    /// Folder with the machines' image (default: where `make vm-image` or an installation puts it)
    #[arg(long, value_name = "FOLDER")]
    pub image: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
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

/// Runs `crosslane bench kernel`.
///
/// # Errors
/// Something that it needs is missing, the lab does not come up, or a file cannot be written.
pub fn run_kernel(args: &KernelArgs) -> Result<()> {
    if let Some(device) = &args.hold {
        return window::hold(device);
    }
    let seconds = u32::from(args.seconds);
    if let Some(device) = &args.pour {
        let strategy = if args.rep_movs { Strategy::RepMovs } else { Strategy::Cached };
        return window::pour(device, Duration::from_secs(seconds.into()), strategy);
    }
    let report = measure(&Plan { turns: args.turns.into(), seconds, image: args.image.clone() })?;
    args.output.conclude(false, &report, table::table, table::markdown)
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
        assert_eq!((usual.turns, usual.seconds, usual.image), (3, 3, None));
        let given = parse(&["--turns", "5", "--seconds", "2", "--image", "/there", "--json"]).unwrap();
        assert_eq!((given.turns, given.seconds), (5, 2));
        assert_eq!(given.image, Some(PathBuf::from("/there")));
        assert!(given.output.json);
        assert!(parse(&["--turns", "0"]).is_err() && parse(&["--seconds", "0"]).is_err());
    }
}
