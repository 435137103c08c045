//! Arguments of `crosslane bench apps`, and what they do.

use super::{Apps, Plan, catalogue, table};
use crate::frame::args::Common;
use anyhow::{Result, bail};
use clap::Args;

/// What is measured, in words that need no other page.
const HELP: &str = "\
Each program runs between two hosts of a lab, by turns (--runs): on streams, under the preloaded library, and on the
kernel's TCP over a veth pair between the same two network namespaces. For each: how much
it did in a second, and processor time for one unit of that, of everything in both hosts (servers,
clients with their start, daemons; not what the kernel's own threads do for TCP). MPI's processes
count their own, and daemons are added to that. Ratios are above 1
where streams are better, medians of those of neighbouring turns, with the least and the most.
A turn in which the hypervisor stole more than 5 % of the processors' time is measured again, twice
at most; the most that is left is shown.
With --quick those that take long to start (Java's, RabbitMQ) only run if --only names them.
All runs on two processors. Programs that are not installed are named with their Debian package
(scripts/install-packages.sh test installs all of them; Kafka comes by scripts/fetch-kafka.sh).
Bar: no rate is below 0.95 of the kernel's TCP.";

/// `crosslane bench apps`: programs of others, on streams and on the kernel's TCP.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct AppsArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// How long each run lasts, roughly [default: 2, with --quick 0.25]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Run only these, as in grpc-unary,redis; `list` names all
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
    /// Use all processors instead of two
    #[arg(long)]
    pub all_processors: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "not a time of 0.1 to 600 seconds".to_owned())
}

impl AppsArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// `--only` names something that is not there.
    pub fn check(&self) -> Result<()> {
        let known = |name: &String| name == "list" || catalogue::APPS.iter().any(|app| app.name == name);
        match self.only.iter().find(|name| !known(name)) {
            Some(unknown) => bail!("`{unknown}` is no program; there are: {}", names().join(", ")),
            None => Ok(()),
        }
    }
}

fn names() -> Vec<&'static str> {
    catalogue::APPS.iter().map(|app| app.name).collect()
}

impl Plan {
    /// That of these options.
    pub fn usual(common: &Common) -> Self {
        let seconds = if common.quick { 0.25 } else { 2.0 };
        Self {
            turns: common.usual_runs(4),
            seconds,
            only: Vec::new(),
            brief: common.quick,
            two_processors: true,
        }
    }
}

/// Runs `crosslane bench apps`.
///
/// # Errors
/// A file cannot be read or written, or `--check` found a missed bar.
pub fn run_apps(args: &AppsArgs) -> Result<()> {
    if args.only.iter().any(|name| name == "list") {
        catalogue::APPS.iter().for_each(|app| println!("{:12}  {}", app.name, app.title));
        return Ok(());
    }
    let usual = Plan::usual(&args.common);
    let plan = Plan {
        seconds: args.seconds.unwrap_or(usual.seconds),
        only: args.only.clone(),
        two_processors: !args.all_processors,
        ..usual
    };
    args.common.run(&mut Apps::new(plan), table::table, table::markdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_times_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(seconds("0").is_err() && seconds("x").is_err() && seconds("NaN").is_err());
    }
}
