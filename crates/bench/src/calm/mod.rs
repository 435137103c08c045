//! A machine that stays the same while something is measured: its processors awake, as far from each other as in the
//! other turns, with all their speed, and all ours. A turn in which that did not hold is taken again.
//!
//! Where processors are always equally far from each other, as outside of virtual machines, only sleep and steal tell.

mod awake;
mod distance;
mod speed;

use crate::affinity::Cores;
use crate::figure::{Report, Sample};
use anyhow::Result;
use awake::Awake;
use clap::Args;
use crosslane_results::steal::{MOST, Steal};
use distance::{Known, Look};
use speed::Speed;
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
/// How long it is tried if they only lack speed: other machines may take that for many seconds.
const WAIT_SPEED: Duration = Duration::from_millis(200);
/// Processors move every few seconds: a turn as long as this would have to be taken again and again.
const LONG: Duration = Duration::from_secs(3);
/// Which part of the turns' own time may be spent on top of it, waiting and taking turns again: one of so many.
const PART: u32 = 8;
/// The part of that for processors that moved, and for those that only lack speed, which may be so for long: one of so many.
const WHOLE: u32 = 1;
const HALF: u32 = 2;
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
    /// `None` where there is no hypervisor, so that no other machine is on processors' cores.
    speed: Option<Speed>,
    /// `None` while processors may sleep, or where nobody may ask for that.
    awake: Option<Awake>,
    /// Turns that count; those of them after which processors were not as far from each other as before, and those after
    /// which one of them did not have all its speed.
    turns: u32,
    moved: u32,
    slowed: u32,
    /// Distances behind turns that count, ns.
    behind: Vec<f64>,
    /// Time of the turns that count, and what was spent on top of it.
    counted: Duration,
    extra: Duration,
}

impl Calm {
    fn begin() -> Result<Self> {
        let (cores, zero) = (Cores::pick_close()?, Duration::ZERO);
        let is_virtual = fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpuinfo| is_virtual(&cpuinfo));
        let mut calm = Self {
            cores,
            known: Known::default(),
            speed: is_virtual.then(Speed::default),
            awake: None,
            turns: 0,
            moved: 0,
            slowed: 0,
            behind: Vec::new(),
            counted: zero,
            extra: zero,
        };
        let look = if is_virtual { LOOK_VIRTUAL } else { LOOK };
        let begin = Instant::now();
        while !calm.cores.is_shared() && !calm.known.has_several() && begin.elapsed() < look {
            calm.look();
            thread::sleep(NUDGE);
        }
        calm.awake = Awake::keep();
        Ok(calm)
    }

    /// Looks at the processors.
    fn look(&mut self) -> Seen {
        let Some(Look { distance, work }) = distance::between(self.cores) else { return Seen::default() };
        let moved = !self.known.is_usual(distance);
        let slowed = self.speed.as_mut().is_some_and(|speed| !speed.is_full(work));
        Seen { distance: Some(distance), moved, slowed }
    }

    /// Lets processors sleep, so that the hypervisor may place them anew, until they are as in the other turns; for some time.
    fn settle(&mut self) {
        let begin = Instant::now();
        loop {
            let Seen { moved, slowed, .. } = self.look();
            let (wait, share) = if moved { (WAIT, WHOLE) } else { (WAIT_SPEED, HALF) };
            if !(moved || slowed) || begin.elapsed() >= wait || !self.spend(NUDGE, share) {
                break;
            }
            self.awake = None;
            thread::sleep(NUDGE);
            self.awake = Awake::keep();
        }
    }

    /// Whether so much time is left, of one of `share` parts of what may be spent on top of the turns' own; it is spent then.
    fn spend(&mut self, time: Duration, share: u32) -> bool {
        let extra = self.extra + time;
        let may = extra <= (CREDIT + self.counted / PART) / share;
        if may {
            self.extra = extra;
        }
        may
    }
}

/// What was seen of the processors.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// How far they are from each other, ns, if that can be told.
    distance: Option<f64>,
    /// Whether that is not as far as in the other turns.
    moved: bool,
    /// Whether one of them does not have all its speed.
    slowed: bool,
}

/// Whether a hypervisor places such processors, `/proc/cpuinfo`, and others beside them.
fn is_virtual(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
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
    /// has placed processors and however fast they are
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
        let behind = with(Calm::look).unwrap_or_default();
        Ok(Turn { outcome, behind, steal, time })
    };
    let turn = calmest(take, |turn| with(|calm| calm.spend(turn.time, turn.share())).unwrap_or(true))?;
    with(|calm| {
        calm.turns += 1;
        calm.moved += u32::from(turn.behind.moved);
        calm.slowed += u32::from(turn.behind.slowed);
        calm.behind.extend(turn.behind.distance);
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
    /// What was seen of the processors behind it.
    behind: Seen,
    /// Percent.
    steal: f64,
    time: Duration,
}

impl<T> Turn<T> {
    /// What disturbed it, the worst first: of two turns the one with the lesser is taken.
    fn disturbed(&self) -> (bool, bool, bool, f64) {
        (self.behind.moved, self.steal > MOST, self.behind.slowed, self.steal)
    }

    /// Whether another one would not be expected to be better.
    fn is_calm(&self) -> bool {
        let is_as_before = !self.behind.moved && !self.behind.slowed;
        self.steal <= MOST && (is_as_before || self.time >= LONG)
    }

    /// The part of the time on top of turns that another one may use.
    fn share(&self) -> u32 {
        if self.behind.moved || self.steal > MOST { WHOLE } else { HALF }
    }
}

fn calmest<T>(
    mut take: impl FnMut() -> Result<Turn<T>>,
    mut may_take: impl FnMut(&Turn<T>) -> bool,
) -> Result<Turn<T>> {
    let mut best = take()?;
    for _ in 0..AGAIN {
        if best.is_calm() || !may_take(&best) {
            break;
        }
        let next = take()?;
        if next.disturbed() < best.disturbed() {
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
    if calm.speed.is_some() && calm.turns > 0 {
        report.machine.slowed_percent = Some(f64::from(calm.slowed) / f64::from(calm.turns) * 100.0);
    }
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

    fn behind(moved: bool, slowed: bool) -> Seen {
        Seen { distance: None, moved, slowed }
    }

    /// Which turn counts of some behind which processors had moved, or lacked speed, and in which so much was stolen.
    fn calmest_of(turns: &[((bool, bool), f64)]) -> usize {
        let mut turns = turns.iter().enumerate();
        let take = || {
            let (outcome, &((moved, slowed), steal)) = turns.next().unwrap();
            Ok(Turn { outcome, behind: behind(moved, slowed), steal, time: LONG / 2 })
        };
        calmest(take, |_| true).unwrap().outcome
    }

    #[test]
    fn machine_is_virtual_by_its_processors_flags() {
        assert!(!is_virtual("model name\t: hypervisor\nflags\t\t: fpu vme sse2\nbugs\t\t: hypervisor"));
        assert!(is_virtual("processor\t: 0\nflags\t\t: fpu sse2 hypervisor avx\nbugs\t\t: "));
    }

    #[test]
    fn calm_takes_a_disturbed_turn_again_and_the_calmest_counts() {
        const MOVED: (bool, bool) = (true, false);
        const SLOWED: (bool, bool) = (false, true);
        const CALM: (bool, bool) = (false, false);
        assert_eq!(calmest_of(&[(CALM, 1.0)]), 0);
        assert_eq!(calmest_of(&[(CALM, 9.0), (CALM, 6.0), (CALM, 8.0)]), 1);
        assert_eq!(calmest_of(&[(CALM, 9.0), (CALM, 2.0)]), 1);
        assert_eq!(calmest_of(&[(MOVED, 0.0), (CALM, 4.0)]), 1);
        assert_eq!(calmest_of(&[(MOVED, 0.0), (CALM, 9.0), (MOVED, 0.0)]), 1);
        assert_eq!(calmest_of(&[(MOVED, 3.0), (MOVED, 2.0), (MOVED, 4.0)]), 1);
        assert_eq!(calmest_of(&[(SLOWED, 0.0), (CALM, 4.0)]), 1);
        assert_eq!(calmest_of(&[(MOVED, 0.0), (SLOWED, 3.0), (CALM, 9.0)]), 1);
    }

    #[test]
    fn calm_takes_no_turn_for_which_there_is_no_time() {
        let disturbed = |time| Ok(Turn { outcome: (), behind: behind(true, true), steal: 0.0, time });
        assert!(calmest(|| disturbed(LONG / 2), |_| false).unwrap().behind.moved);
        let mut taken = 0;
        let long = || {
            taken += 1;
            disturbed(LONG)
        };
        calmest(long, |_| true).unwrap();
        assert_eq!(taken, 1);
    }
}
