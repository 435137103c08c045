//! The hunt: scripts of successive seeds on the kernel's TCP and on streams, until the time is over.

use crate::compare::{Difference, compare};
use crate::executor::{Executor, On, Stage, Trace};
use crate::meant::Meant;
use crate::script::Script;
use crate::{generate, shrink};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pairs of executors side by side: calls that wait leave the processors to others.
const PAIRS: u8 = 4;
/// How often a difference must show again.
const AGAIN: usize = 3;

/// A difference, shrunk.
pub struct Found {
    pub seed: u64,
    pub difference: Difference,
    pub script: Script,
    pub kernel: Trace,
    pub stream: Trace,
}

/// What a hunt gave.
#[derive(Default)]
pub struct Report {
    pub scripts: u64,
    pub calls: u64,
    /// Signatures of differences that were looked at, before they were shrunk.
    pub looked_at: BTreeSet<String>,
    /// By signature.
    pub found: BTreeMap<String, Found>,
    /// How often what differed was meant, by name.
    pub meant: BTreeMap<&'static str, u64>,
    /// Seeds whose difference did not show again.
    pub passing: Vec<(u64, Difference)>,
    /// Seeds that give this and that on the kernel alone.
    pub unsteady: Vec<u64>,
}

/// One script on both.
pub struct Pair<'a> {
    kernel: Executor<'a>,
    stream: Executor<'a>,
}

impl<'a> Pair<'a> {
    /// The first of the pair is the kernel's; the second is on `second`.
    pub fn new(stage: &'a Stage, number: u8, second: On) -> Self {
        let place = 100 + 2 * number;
        Self {
            kernel: Executor::new(stage, On::Kernel, place),
            stream: Executor::new(stage, second, place + 1),
        }
    }

    pub fn run(&mut self, script: &Script) -> (Trace, Trace) {
        self.kernel.begin(script);
        self.stream.begin(script);
        (self.kernel.finish(), self.stream.finish())
    }

    /// The first difference that is not meant.
    pub fn differs(&mut self, script: &Script) -> Option<Difference> {
        let (kernel, stream) = self.run(script);
        compare(script, &kernel, &stream, |_: &Meant| ())
    }

    /// What a difference is when the script is run again and again.
    fn verdict(&mut self, script: &Script, first: &Difference, kernel: &Trace) -> Verdict {
        let mut shown = 0;
        for _ in 0..AGAIN {
            let (again, stream) = self.run(script);
            if again != *kernel {
                return Verdict::Unsteady;
            }
            let difference = compare(script, &again, &stream, |_: &Meant| ());
            shown += usize::from(difference.as_ref() == Some(first));
        }
        if shown == AGAIN { Verdict::Steady } else { Verdict::Passing }
    }
}

enum Verdict {
    Steady,
    Passing,
    Unsteady,
}

/// Hunts with seeds from `seed` on for so long; ends at `most` different differences.
pub fn hunt(stage: &Stage, second: On, seed: u64, time: Duration, most: usize) -> Report {
    let (next, report) = (AtomicU64::new(seed), Mutex::new(Report::default()));
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for number in 0..PAIRS {
            let (next, report) = (&next, &report);
            scope.spawn(move || {
                let mut pair = Pair::new(stage, number, second);
                while Instant::now() < end && report.lock().unwrap().found.len() < most {
                    one(&mut pair, next.fetch_add(1, Relaxed), report);
                }
            });
        }
    });
    report.into_inner().unwrap()
}

fn one(pair: &mut Pair<'_>, seed: u64, report: &Mutex<Report>) {
    let script = generate::script(seed);
    let (kernel, stream) = pair.run(&script);
    let mut met = Vec::new();
    let difference = compare(&script, &kernel, &stream, |entry| met.push(entry.name));
    {
        let mut report = report.lock().unwrap();
        report.scripts += 1;
        report.calls += script.ops.len() as u64;
        met.into_iter().for_each(|name| *report.meant.entry(name).or_default() += 1);
    }
    let Some(difference) = difference else { return };
    match pair.verdict(&script, &difference, &kernel) {
        Verdict::Unsteady => report.lock().unwrap().unsteady.push(seed),
        Verdict::Passing => report.lock().unwrap().passing.push((seed, difference)),
        Verdict::Steady => {
            if !report.lock().unwrap().looked_at.insert(difference.signature()) {
                return;
            }
            let script = shrink::shrink(&script, &difference, |script| pair.differs(script));
            let (kernel, stream) = pair.run(&script);
            let shrunk = compare(&script, &kernel, &stream, |_| ()).unwrap_or(difference);
            let found = Found { seed, difference: shrunk.clone(), script, kernel, stream };
            report.lock().unwrap().found.entry(shrunk.signature()).or_insert(found);
        }
    }
}
