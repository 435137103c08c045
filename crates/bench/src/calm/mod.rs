//! A machine that stays the same while something is measured: its processors awake, as far from each other as in the
//! other turns, and all ours. A turn in which that did not hold is taken again.
//!
//! Where processors are always equally far from each other, as outside of virtual machines, only sleep and steal tell.

mod awake;
mod distance;

use crate::affinity::Cores;
use crate::figure::{Report, Sample};
use anyhow::Result;
use awake::Awake;
use clap::Args;
use crosslane_results::steal::{MOST, Steal};
use distance::Known;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a disturbed turn is taken again.
const AGAIN: u32 = 2;
/// How long processors sleep so that the hypervisor may place them anew.
const NUDGE: Duration = Duration::from_millis(2);
/// How long that is tried before a turn.
const WAIT: Duration = Duration::from_millis(500);
/// Processors move every few seconds: a turn as long as this would have to be taken again and again.
const LONG: Duration = Duration::from_secs(3);
/// Which part of the turns' own time may be spent on top of it, waiting and taking turns again: one of so many.
const PART: u32 = 8;
/// What may be spent before there were turns.
const CREDIT: Duration = Duration::from_secs(5);
/// How long distances are looked at before the first turn, a nudge apart, if there seems to be one: on a machine whose
/// processors stay where they are, and on one whose hypervisor may have kept them far apart for a while.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_VIRTUAL: Duration = Duration::from_secs(5);

static STATE: Mutex<State> = Mutex::new(State::Unknown);

#[derive(Debug)]
enum State {
    /// Nothing was measured yet.
    Unknown,
    /// The machine is left as it is.
    AsIs,
    Kept(Calm),
}

/// A machine that is kept the same.
#[derive(Debug)]
struct Calm {
    cores: Cores,
    known: Known,
    /// `None` while processors may sleep, or where nobody may ask for that.
    awake: Option<Awake>,
    /// Turns that count, and those of them after which processors were not as far from each other as before.
    turns: u32,
    moved: u32,
    /// Distances behind turns that count, ns.
    behind: Vec<f64>,
    /// Time of the turns that count, and what was spent on top of it.
    counted: Duration,
    extra: Duration,
}

impl Calm {
    fn begin() -> Result<Self> {
        let (cores, known, zero) = (Cores::pick_close()?, Known::default(), Duration::ZERO);
        let mut calm = Self {
            cores,
            known,
            awake: None,
            turns: 0,
            moved: 0,
            behind: Vec::new(),
            counted: zero,
            extra: zero,
        };
        let look = fs::read_to_string("/proc/cpuinfo").map_or(LOOK, |cpuinfo| look_on(&cpuinfo));
        let begin = Instant::now();
        while !calm.cores.is_shared() && !calm.known.has_several() && begin.elapsed() < look {
            if let Some(distance) = distance::between(calm.cores) {
                calm.known.add(distance);
            }
            thread::sleep(NUDGE);
        }
        calm.awake = Awake::keep();
        Ok(calm)
    }

    /// How far processors are from each other now, ns, if that can be told, and whether it is as far as in the other turns.
    fn look(&mut self) -> (Option<f64>, bool) {
        let distance = distance::between(self.cores);
        (distance, distance.is_none_or(|distance| self.known.is_usual(distance)))
    }

    /// Lets processors sleep, so that the hypervisor may place them anew, until they are; for some time.
    fn settle(&mut self) {
        let begin = Instant::now();
        while !self.look().1 && begin.elapsed() < WAIT && self.spend(NUDGE) {
            self.awake = None;
            thread::sleep(NUDGE);
            self.awake = Awake::keep();
        }
    }

    /// Whether so much time is left to be spent on top of the turns' own, which it is then.
    fn spend(&mut self, time: Duration) -> bool {
        let extra = self.extra + time;
        let may = extra <= CREDIT + self.counted / PART;
        if may {
            self.extra = extra;
        }
        may
    }
}

/// How long distances are looked at on a machine with such processors, `/proc/cpuinfo`.
fn look_on(cpuinfo: &str) -> Duration {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    let is_virtual = flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    if is_virtual { LOOK_VIRTUAL } else { LOOK }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `f` says of the machine; `None` if it is left as it is.
fn with<T>(f: impl FnOnce(&mut Calm) -> T) -> Option<T> {
    let mut state = state();
    if let State::Unknown = *state {
        *state = Calm::begin().map_or(State::AsIs, State::Kept);
    }
    if let State::Kept(calm) = &mut *state { Some(f(calm)) } else { None }
}

/// The option of all measuring commands.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Leave the machine as it is: let idle processors sleep, and take turns however far from each other the hypervisor
    /// has placed processors
    #[arg(long)]
    pub as_is: bool,
}

impl Machine {
    /// Looks at the machine, unless it is to be left as it is: to be called before the thread is kept on one processor.
    pub fn begin(self) {
        if self.as_is {
            *state() = State::AsIs;
        }
        with(|_| ());
    }
}

/// Waits until the machine is as in the other turns, for half a second at most; from then on its processors stay awake.
pub fn settle() {
    with(Calm::settle);
}

/// Takes a turn, and takes it again if processors moved or more than [`MOST`] was stolen meanwhile. Returns the result of
/// the calmest one, and the steal in it, percent.
///
/// # Errors
/// A turn fails.
pub fn steady<T>(mut run: impl FnMut() -> Result<T>) -> Result<(T, f64)> {
    let take = || {
        settle();
        let (begin, start) = (Steal::now(), Instant::now());
        let outcome = run()?;
        let (steal, time) = (begin.since(), start.elapsed());
        let (behind, usual) = with(Calm::look).unwrap_or((None, true));
        Ok(Turn { outcome, moved: !usual, behind, steal, time })
    };
    let turn = calmest(take, |time| with(|calm| calm.spend(time)).unwrap_or(true))?;
    with(|calm| {
        calm.turns += 1;
        calm.moved += u32::from(turn.moved);
        calm.behind.extend(turn.behind);
        calm.counted += turn.time;
    });
    Ok((turn.outcome, turn.steal))
}

/// [`steady`] without the steal.
///
/// # Errors
/// A turn fails.
pub fn turn<T>(run: impl FnMut() -> Result<T>) -> Result<T> {
    Ok(steady(run)?.0)
}

struct Turn<T> {
    outcome: T,
    moved: bool,
    /// How far processors were from each other behind it, ns, if that was seen.
    behind: Option<f64>,
    /// Percent.
    steal: f64,
    time: Duration,
}

fn calmest<T>(
    mut take: impl FnMut() -> Result<Turn<T>>,
    mut may_take: impl FnMut(Duration) -> bool,
) -> Result<Turn<T>> {
    let mut best = take()?;
    for _ in 0..AGAIN {
        let is_calm = best.steal <= MOST && (!best.moved || best.time >= LONG);
        if is_calm || !may_take(best.time) {
            break;
        }
        let next = take()?;
        if (next.moved, next.steal) < (best.moved, best.steal) {
            best = next;
        }
    }
    Ok(best)
}

/// Adds what was seen of the machine to a report.
pub fn record(report: &mut Report) {
    let State::Kept(calm) = &*state() else { return };
    report.machine.awake = calm.awake.is_some();
    // As it was, not as it was meant to be.
    let behind = Sample::new(calm.behind.clone()).map(|sample| sample.median);
    report.machine.distance_ns = behind.or_else(|| calm.known.usual());
    if calm.moved > 0 {
        report.warnings.push(format!(
            "the hypervisor moved processors nearer to each other or farther apart in {} of {} turns",
            calm.moved, calm.turns
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calmest_of(turns: &[(bool, f64)]) -> (usize, bool, f64) {
        let mut turns = turns.iter().enumerate();
        let take = || {
            let (outcome, &(moved, steal)) = turns.next().unwrap();
            Ok(Turn { outcome, moved, behind: None, steal, time: LONG / 2 })
        };
        let Turn { outcome, moved, steal, .. } = calmest(take, |_| true).unwrap();
        (outcome, moved, steal)
    }

    #[test]
    fn distances_are_looked_at_longer_where_a_hypervisor_places_processors() {
        let machine = "model name\t: hypervisor\nflags\t\t: fpu vme sse2\nbugs\t\t: hypervisor";
        assert_eq!(look_on(machine), LOOK);
        assert_eq!(look_on("processor\t: 0\nflags\t\t: fpu sse2 hypervisor avx\nbugs\t\t: "), LOOK_VIRTUAL);
    }

    #[test]
    fn calm_takes_a_disturbed_turn_again_and_the_calmest_counts() {
        assert_eq!(calmest_of(&[(false, 1.0)]), (0, false, 1.0));
        assert_eq!(calmest_of(&[(false, 9.0), (false, 6.0), (false, 8.0)]), (1, false, 6.0));
        assert_eq!(calmest_of(&[(false, 9.0), (false, 2.0)]), (1, false, 2.0));
        assert_eq!(calmest_of(&[(true, 0.0), (false, 4.0)]), (1, false, 4.0));
        assert_eq!(calmest_of(&[(true, 0.0), (false, 9.0), (true, 0.0)]), (1, false, 9.0));
        assert_eq!(calmest_of(&[(true, 3.0), (true, 2.0), (true, 4.0)]), (1, true, 2.0));
        let disturbed = || Ok(Turn { outcome: (), moved: true, behind: None, steal: 0.0, time: LONG / 2 });
        assert!(calmest(disturbed, |_| false).unwrap().moved, "there is no time for more");
        let mut taken = 0;
        let long = || {
            taken += 1;
            Ok(Turn { outcome: (), moved: true, behind: None, steal: 0.0, time: LONG })
        };
        calmest(long, |_| true).unwrap();
        assert_eq!(taken, 1);
    }
}
