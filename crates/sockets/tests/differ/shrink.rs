//! Makes a script that shows a difference as short as it can be: calls are taken out, arguments made simple.

use crate::compare::Difference;
use crate::script::Script;
use std::time::{Duration, Instant};

/// Most runs for one script...
const RUNS: usize = 400;
/// ...and longest time.
const TIME: Duration = Duration::from_secs(10);

/// The smallest script found for which `differs` gives a difference like `first`.
pub fn shrink(
    script: &Script,
    first: &Difference,
    mut differs: impl FnMut(&Script) -> Option<Difference>,
) -> Script {
    let mut best = script.clone();
    let (mut runs, end) = (0, Instant::now() + TIME);
    let mut still = |script: &Script| {
        runs += 1;
        runs <= RUNS
            && Instant::now() < end
            && differs(script).is_some_and(|difference| difference.is_like(first))
    };
    best.ops.truncate(first.index.saturating_add(1));
    if !still(&best) {
        best = script.clone();
    }
    loop {
        let before = best.clone();
        take_out(&mut best, &mut still);
        simplify(&mut best, &mut still);
        if best == before {
            return best;
        }
    }
}

/// Takes out runs of calls, long ones first.
fn take_out(best: &mut Script, still: &mut impl FnMut(&Script) -> bool) {
    let mut size = best.ops.len() / 2;
    while size > 0 {
        let mut at = best.ops.len();
        while at >= size {
            at -= size;
            let mut shorter = best.clone();
            if shorter.ops.drain(at..at + size).any(|op| op.keeps_time()) {
                continue;
            }
            if still(&shorter) {
                *best = shorter;
                at = at.min(best.ops.len());
            }
        }
        size /= 2;
    }
}

/// Makes arguments 0 or smaller, one at a time; drops the last ones.
fn simplify(best: &mut Script, still: &mut impl FnMut(&Script) -> bool) {
    for op in 0..best.ops.len() {
        if best.ops[op].process != 0 {
            let mut simpler = best.clone();
            simpler.ops[op].process = 0;
            if still(&simpler) {
                *best = simpler;
            }
        }
        // The first argument names a descriptor.
        if best.ops[op].keeps_time() {
            continue;
        }
        for arg in (1..best.ops[op].args.len()).rev() {
            let value = best.ops[op].args[arg];
            for to in [0, 1, value / 2] {
                if to.unsigned_abs() >= value.unsigned_abs() || value == -1 {
                    continue;
                }
                let mut simpler = best.clone();
                simpler.ops[op].args[arg] = to;
                if still(&simpler) {
                    *best = simpler;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differs as long as call `a` comes somewhere before `b 4..`.
    #[test]
    fn shrink_removes_what_does_not_matter() {
        let script = Script::parse("0 x 1\n0 a 1 5\n0 x 2\n1 b 3 9 7\n0 x 9\n").unwrap();
        let difference = |index| Difference {
            index,
            call: "b".to_owned(),
            field: "r".to_owned(),
            kernel: "1".to_owned(),
            stream: "2".to_owned(),
        };
        let shrunk = shrink(&script, &difference(3), |script| {
            let a = script.ops.iter().position(|op| op.call == "a")?;
            let b = script.ops.iter().position(|op| op.call == "b" && op.arg(1) >= 4)?;
            (a < b).then(|| difference(b))
        });
        assert_eq!(shrunk.to_string(), "0 a 1 0\n0 b 3 4 0\n");
    }
}
