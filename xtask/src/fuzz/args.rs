//! The command line of `cargo xtask fuzz`.

use super::targets::{TARGETS, Target};
use anyhow::{Context, Result, bail};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const USAGE: &str = "\
usage: cargo xtask fuzz [OPTION..]
  --seconds N    each target for so long (20)
  --minutes N    the same in minutes
  --target NAME  only this one; may be given more than once
  --seed S       what all choices follow from; printed, and taken from the clock if it is not given
  --jobs N       targets side by side (2, or 1 on one processor)
  --keep         do not search: put the smallest inputs that reach what all known ones reach into the repository
  --list         names the targets
A finding is stored in `__fuzz__/TARGET/crashes` beside the target, where `cargo test` tries it first from then on.";

/// How long each target runs by default.
const USUAL: Duration = Duration::from_secs(20);

/// The parsed arguments.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    /// Each target runs so long.
    pub(crate) time: Duration,
    /// Which.
    pub(crate) targets: Vec<Target>,
    /// What random choices follow from.
    pub(crate) seed: u32,
    /// Targets at one time.
    pub(crate) jobs: usize,
    /// Whether to keep inputs in the repository instead.
    pub(crate) keep: bool,
}

/// Parses the arguments; `None` if only help or a list was wanted, which is printed.
pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Arguments>> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.subsec_nanos());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wanted =
        Arguments { time: USUAL, targets: Vec::new(), seed: clock, jobs: processors.min(2), keep: false };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--seconds" => wanted.time = Duration::from_secs(number(&value()?)?),
            "--minutes" => wanted.time = Duration::from_secs(number(&value()?)? * 60),
            "--target" => wanted.targets.push(named(&value()?)?),
            "--seed" => wanted.seed = number(&value()?)?.try_into().context("a seed has 32 bits")?,
            "--jobs" => wanted.jobs = usize::try_from(number(&value()?)?)?,
            "--keep" => wanted.keep = true,
            "--list" => {
                TARGETS.iter().for_each(|target| println!("{:20} {}", target.name, target.source));
                return Ok(None);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(None);
            }
            other => bail!("no option `{other}`\n{USAGE}"),
        }
    }
    if wanted.targets.is_empty() {
        wanted.targets = TARGETS.to_vec();
    }
    Ok(Some(wanted))
}

fn number(text: &str) -> Result<u64> {
    let number: u64 = text.parse().with_context(|| format!("`{text}` is no number"))?;
    if number == 0 { bail!("0 is too little") } else { Ok(number) }
}

fn named(name: &str) -> Result<Target> {
    let found = TARGETS.iter().find(|target| target.name == name).copied();
    found.with_context(|| format!("there is no target `{name}`: see --list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Option<Arguments>> {
        super::read(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn args_are_parsed() {
        let wanted = read(&["--minutes", "60", "--seed", "7", "--target", "ring_credit"]).unwrap().unwrap();
        assert_eq!((wanted.time.as_secs(), wanted.seed, wanted.targets.len()), (3600, 7, 1));
        let usual = read(&[]).unwrap().unwrap();
        assert_eq!((usual.time, usual.targets.len()), (USUAL, TARGETS.len()));
    }

    #[test]
    fn args_matching_no_target_are_refused() {
        for wrong in [&["--target", "x"][..], &["--seconds", "0"], &["--jobs", "x"], &["--seed"], &["x"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
