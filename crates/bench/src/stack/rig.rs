//! One run of a case: a sender and a receiver at a place, and their cost.

use super::attribute::Profile;
use super::flow::{Listening, Ready, Side};
use super::part::{Cycles, Part};
use super::sampler::Sampler;
use super::{Outcome, Plan, Variant};
use crate::place::{self, InLab, LOOPBACK, Place, VETH};
use crate::program::process::processor_time;
use crate::speaker::{Speaker, own_program};
use anyhow::{Context, Result, ensure};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::{Lab, Options};
use crosslane_shm::account::{self, Counts, Function, Overhead, VARIABLE, Way};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A sender and a receiver that are connected.
pub(super) struct Pair {
    receiver: Speaker,
    sender: Speaker,
    /// Their processes.
    pub(super) pids: [u32; 2],
    /// TCP's congestion control.
    pub(super) congestion: String,
}

impl Pair {
    /// Starts both at `place`; each counts into the file in `accounts`, if given.
    pub(super) fn start(
        place: &dyn Place,
        size: usize,
        time: Duration,
        accounts: Option<&[PathBuf; 2]>,
    ) -> Result<Self> {
        let [mut far, mut near] = own_sides(place)?;
        if let Some([sent, received]) = accounts {
            near.env(VARIABLE, sent);
            far.env(VARIABLE, received);
        }
        far.args(["bench", "stack", "--receive", &size.to_string()]);
        let mut receiver = Speaker::start(far)?;
        let listening: Listening = receiver.receive().context("the receiver")?;
        let to = std::net::SocketAddr::new(place.address(), listening.port).to_string();
        near.args(["bench", "stack", "--send", &to, &size.to_string(), &time.as_millis().to_string()]);
        let mut sender = Speaker::start(near)?;
        let ready: Ready = sender.receive().context("the sender")?;
        let pids = [ready.pid, listening.pid];
        Ok(Self { receiver, sender, pids, congestion: ready.congestion })
    }

    /// Lets the sender send, and returns what it and the receiver did.
    pub(super) fn run(&mut self, size: usize) -> Result<Done> {
        self.sender.say(&())?;
        let sender: Side = self.sender.receive().context("the sender")?;
        let receiver: Side = self.receiver.receive().context("the receiver")?;
        ensure!(sender.bytes == receiver.bytes, "{} of {} bytes arrived", receiver.bytes, sender.bytes);
        Ok(Done { messages: sender.bytes / size as u64, sender, receiver })
    }
}

/// The work of both sides.
pub(super) struct Done {
    pub(super) messages: u64,
    sender: Side,
    receiver: Side,
}

#[expect(clippy::cast_precision_loss, reason = "figures")]
impl Done {
    /// `nanos`, which are those of all messages, in cycles a message.
    fn each(&self, nanos: u64, clock: f64) -> f64 {
        nanos as f64 * clock / 1e9 / self.messages.max(1) as f64
    }

    pub(super) fn programs(&self, clock: f64) -> f64 {
        self.each(self.sender.busy + self.receiver.busy, clock)
    }

    pub(super) fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.sender.nanos.max(1) as f64
    }
}

/// One variant of ours, in a lab that counts and one that does not.
pub(super) struct Ours {
    counting: Lab,
    /// The lab in which nothing is counted.
    pub(super) plain: Lab,
    /// Ticks of the constant clock in a second.
    pub(super) clock: f64,
    overhead: Overhead,
}

impl Ours {
    pub(super) fn new(variant: &Variant) -> Result<Self> {
        let up = |counted| {
            let mut options = Options { counted, ..place::pair("stack") };
            (variant.prepare)(&mut options);
            place::up(&options)
        };
        let (clock, overhead) = (account::ticks_per_second(), account::overhead());
        Ok(Self { counting: up(true)?, plain: up(false)?, clock, overhead })
    }

    /// Once without counting, for rate and processor time, and once with.
    pub(super) fn run(&self, size: usize, time: Duration) -> Result<Outcome> {
        let [place, _, _] = InLab::all(&self.plain)?;
        let mut pair = Pair::start(&place, size, time, None)?;
        let before = (daemons(&self.plain), place.carried());
        let done = pair.run(size)?;
        ensure!(place.carried() > before.1, "the connection was not accelerated");
        let (counts, counted) = self.count(size, time)?;
        let calls: u64 = every().map(|(way, function)| counts.of(way, function).calls).sum();
        #[expect(clippy::cast_precision_loss, reason = "a figure")]
        let spans = calls as f64 / counted.messages.max(1) as f64;
        Ok(Outcome {
            cycles: Cycles::counted(&counts, counted.messages),
            rate: done.rate(),
            programs: done.programs(self.clock),
            daemons: Some(done.each(daemons(&self.plain) - before.0, self.clock)),
            counting: Some(spans * self.overhead.whole),
            counted_rate: Some(counted.rate()),
        })
    }

    /// The counts of programs and daemons while messages are sent.
    fn count(&self, size: usize, time: Duration) -> Result<(Counts, Done)> {
        let [place, _, _] = InLab::all(&self.counting)?;
        let file = |name: &str| place.folder().join(format!("{name}.account"));
        let programs = ["sender", "receiver"].map(file);
        for path in &programs {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let files: Vec<PathBuf> = programs.iter().cloned().chain(["h1", "h2"].map(file)).collect();
        let mut pair = Pair::start(&place, size, time, Some(&programs))?;
        let read = || files.iter().map(|path| Counts::read(path)).collect::<std::io::Result<Vec<_>>>();
        let before = read().context("nothing is counted")?;
        let done = pair.run(size)?;
        let after = read()?.into_iter().zip(&before).map(|(after, before)| after.since(before));
        Ok((after.fold(Counts::default(), |all, one| all.plus(&one)), done))
    }
}

/// The kernel's TCP, and its samples.
pub(super) struct Kernel {
    /// Where its programs run.
    pub(super) lab: Lab,
    clock: f64,
    /// All samples so far, of both places.
    pub(super) profile: Profile,
    /// Why there are none: the kernel shows nothing.
    pub(super) refused: Option<String>,
    /// Its TCP's congestion control, after a run.
    pub(super) congestion: String,
}

impl Kernel {
    /// Loopback, and the veth pair of two hosts.
    pub(super) const PLACES: [&'static str; 2] = [LOOPBACK, VETH];

    pub(super) fn new() -> Result<Self> {
        let (lab, clock) = (place::up(&place::pair("stack"))?, account::ticks_per_second());
        Ok(Self { lab, clock, profile: Profile::default(), refused: None, congestion: String::new() })
    }

    /// Once with nothing sampled, for rate and processor time, and once sampled, at the place of this number.
    pub(super) fn run(&mut self, place: usize, size: usize, plan: &Plan) -> Result<Outcome> {
        let [_, veth, loopback] = InLab::all(&self.lab)?;
        let place = if place == 0 { loopback } else { veth };
        let mut pair = Pair::start(&place, size, plan.time, None)?;
        let done = pair.run(size)?;
        self.congestion = pair.congestion;
        let mut outcome =
            Outcome { rate: done.rate(), programs: done.programs(self.clock), ..Outcome::default() };
        if self.refused.is_none() {
            match sample(&place, size, plan.sampled) {
                Ok((profile, done)) => {
                    outcome.cycles = profile.share(done.programs(self.clock));
                    outcome.cycles.add(Part::WaitSpace, done.each(done.sender.asleep, self.clock));
                    outcome.cycles.add(Part::WaitData, done.each(done.receiver.asleep, self.clock));
                    self.profile.merge(&profile);
                }
                Err(error) => self.refused = Some(format!("{error:#}")),
            }
        }
        Ok(outcome)
    }
}

/// The kernel's work while messages are sent at `place`.
fn sample(place: &dyn Place, size: usize, time: Duration) -> Result<(Profile, Done)> {
    let mut pair = Pair::start(place, size, time, None)?;
    let sampler = Sampler::start(place.folder())?;
    let done = pair.run(size)?;
    Ok((sampler.stop(&pair.pids)?, done))
}

/// All functions of ours that count.
pub(super) fn every() -> impl Iterator<Item = (Way, Function)> {
    [Way::Send, Way::Receive].into_iter().flat_map(|way| Function::ALL.map(|function| (way, function)))
}

/// A copy of this program where servers run and one where clients do.
pub(super) fn own_sides(place: &dyn Place) -> Result<[Command; 2]> {
    let program = own_program()?;
    let program = program.to_str().context("my own path is no text")?;
    let mut sides = [place.server(program)?, place.client(program)?];
    for side in &mut sides {
        side.env(OWN_CALLS_VARIABLE, FILES);
    }
    Ok(sides)
}

/// Processor time of a lab's daemons, ns.
fn daemons(lab: &Lab) -> u64 {
    place::daemons(lab).into_iter().filter_map(processor_time).sum()
}
