//! Requests and replies, one at a time: their rate, their processor time, and their messages.

use super::native::Manner;
use super::pair::Done;
use super::size::Length;
use super::way::{Rig, Way};
use super::{ASK, Plan, Runs, beside, by_turns, why_not};
use crate::figure::{Figure, Unit};
use crate::program::{LOOPBACK, VETH};

/// A group of the report: requests answered a second.
pub const EXCHANGES: &str = "questions with an answer";
/// Processor time of all participants per request.
pub const EXCHANGE_PROCESSOR: &str = "processor time of a question";
/// Records and other messages of both directions per request.
pub const EXCHANGE_MESSAGES: &str = "messages of a question";
/// The same of Transactions, held against requests and replies that programs written for streams copy.
pub const TRANSACTIONS: &str = "transactions";
/// Their messages.
pub const TRANSACTION_MESSAGES: &str = "messages of a transaction";

/// Bytes of a request.
pub const QUESTION: usize = 64;
/// The subject of the figures; the others are its references.
const PLAIN: &str = "bcopy";
/// Transactions are faster; and take fewer messages, by a twentieth at least.
const FASTER: f64 = 1.0;
const FEWER: f64 = 1.05;

/// All ways: plain programs on streams and on the kernel's TCP, and native ones.
fn askers() -> Vec<Way> {
    let sockets = Way::all().into_iter().filter(|way| [PLAIN, LOOPBACK, VETH].contains(&way.name));
    sockets.chain(Manner::ASKING.map(Way::native)).collect()
}

/// Measures requests with a reply of one size, all ways by turns.
pub fn figures(rig: &Rig, plan: &Plan, answer: Length) -> Vec<Figure> {
    let run = |way| rig.run(way, ASK, &[QUESTION, answer.0], plan.time());
    let (runs, failed) = by_turns(askers(), plan.runs, &format!("answers of {answer}"), run);
    of_runs(answer, &runs).into_iter().chain(failed).collect()
}

fn of_runs(answer: Length, runs: &[Runs]) -> Vec<Figure> {
    let [copied, transaction] = Manner::ASKING.map(Manner::name);
    let figure = |group, unit, value| {
        beside(runs, &[PLAIN, LOOPBACK, VETH, copied, transaction], answer, (group, unit), value)
    };
    let barred = |group, unit, value, bar| {
        let figure = beside(runs, &[transaction, copied], answer, (group, unit), value);
        figure.without(why_not(runs, transaction)).bar(copied, bar, None)
    };
    let rate: fn(&Done) -> Option<f64> = |done| Some(done.rate());
    vec![
        figure(EXCHANGES, Unit::PerSecond, rate),
        figure(EXCHANGE_PROCESSOR, Unit::Microseconds, |done| Some(1e6 / done.per_processor())),
        figure(EXCHANGE_MESSAGES, Unit::Messages, messages),
        barred(TRANSACTIONS, Unit::PerSecond, rate, FASTER),
        barred(TRANSACTION_MESSAGES, Unit::Messages, messages, FEWER),
    ]
}

/// Messages of both directions for one request, from the daemons' counters, which cover a longer time than the window.
#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn messages(done: &Done) -> Option<f64> {
    let tally = done.tally?;
    let asked = tally.bytes() as f64 / QUESTION as f64;
    (asked > 0.0).then(|| tally.messages as f64 / asked)
}

#[cfg(test)]
mod tests {
    use super::super::tally::Tally;
    use super::*;

    fn done(by_mode: [u64; 4], messages: u64) -> Done {
        let tally = Tally { by_mode, messages, ..Tally::default() };
        Done { count: 90, seconds: 1.0, processor: 0.5, tally: Some(tally) }
    }

    fn asker(name: &str) -> Way {
        askers().into_iter().find(|way| way.name == name).unwrap()
    }

    #[test]
    fn exchange_counts_messages_per_question() {
        let ours = done([6400, 0, 0, 0], 200);
        let theirs = Done { count: 9, tally: None, ..ours };
        let figures = of_runs(Length(64), &[(asker(PLAIN), vec![ours]), (asker(LOOPBACK), vec![theirs])]);
        assert_eq!(figures[0].ratio(&figures[0].references[0]), Some(10.0));
        assert_eq!(figures[2].sample.as_ref().unwrap().median, 2.0);
        assert!(figures[2].references.is_empty(), "the kernel's messages are not counted");
    }

    #[test]
    fn exchange_transaction_must_take_fewer_messages_and_be_one() {
        let figures = |by_mode, messages| {
            let native = [
                (asker("native bcopy"), vec![done([6400, 0, 0, 0], 200)]),
                (asker("transaction"), vec![done(by_mode, messages)]),
            ];
            of_runs(Length(64), &native)
        };
        let verdicts = |figures: Vec<Figure>| (figures[3].meets_bar(), figures[4].meets_bar());
        assert_eq!(verdicts(figures([0, 0, 0, 6400], 100)), (Some(true), Some(true)));
        assert_eq!(verdicts(figures([0, 0, 0, 6400], 200)), (Some(true), Some(false)));
        let rings = figures([6400, 0, 0, 0], 100);
        assert_eq!(rings[3].missing.as_deref(), Some("carried by bcopy 100 %"));
    }

    #[test]
    fn exchange_every_asker_has_its_own_name() {
        let askers = askers();
        let names: std::collections::BTreeSet<&str> = askers.iter().map(|asker| asker.name).collect();
        assert_eq!(names.len(), askers.len());
    }
}
