//! Questions and answers, one at a time: how many in a second, what they cost, and how many messages they take.

use super::native::Manner;
use super::pair::{Done, Pair};
use super::size::Length;
use super::way::{Rig, Way};
use super::{Plan, by_turns, carried_by_others, failure};
use crate::figure::{Figure, Sample, Unit};
use crate::program::{LOOPBACK, VETH};
use anyhow::Result;

/// A group of the report: questions that are answered in a second.
pub const EXCHANGES: &str = "questions with an answer";
/// Processor time of all who take part, for each.
pub const EXCHANGE_PROCESSOR: &str = "processor time of a question";
/// Records and other messages of both directions, for each.
pub const EXCHANGE_MESSAGES: &str = "messages of a question";
/// The same of Transactions, held against questions and answers that programs written for streams copy.
pub const TRANSACTIONS: &str = "transactions";
/// Their messages.
pub const TRANSACTION_MESSAGES: &str = "messages of a transaction";

/// Bytes of a question.
pub const QUESTION: usize = 64;
/// What the figures are of; the others are their references.
const PLAIN: &str = "bcopy";
/// Transactions are faster; and take fewer messages, by a twentieth at least.
const FASTER: f64 = 1.0;
const FEWER: f64 = 1.05;

/// Who asks and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// Plain programs with sockets.
    Sockets(Way),
    /// Programs that are written for streams.
    Native(Manner),
}

impl Asker {
    /// All of them: plain programs on streams and on the kernel's TCP, and native ones.
    fn all() -> Vec<Self> {
        let asks = |way: &Way| [PLAIN, LOOPBACK, VETH].contains(&way.name);
        let sockets = Way::all().into_iter().filter(asks).map(Self::Sockets);
        sockets.chain(Manner::ASKING.map(Self::Native)).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sockets(way) => way.name,
            Self::Native(manner) => manner.name(),
        }
    }

    fn is_ours(self) -> bool {
        match self {
            Self::Sockets(way) => way.is_ours(),
            Self::Native(_) => true,
        }
    }

    fn run(self, rig: &Rig, plan: &Plan, answer: Length) -> Result<Done> {
        let sizes = [QUESTION.to_string(), answer.0.to_string()];
        let (mut listener, at) = match self {
            Self::Sockets(way) => rig.listener(way)?,
            Self::Native(manner) => rig.native_listener(manner)?,
        };
        listener.args(["--reply", &at.to_string()]).args(&sizes);
        let pair = Pair::start(listener, |to| {
            let mut connector = match self {
                Self::Sockets(way) => rig.connector(way)?,
                Self::Native(manner) => rig.native_connector(manner)?,
            };
            connector.args(["--ask", &to.to_string()]).args(&sizes);
            Ok(connector)
        })?;
        pair.measure(plan.time(), self.is_ours().then_some(&rig.lab))
    }
}

/// What questions cost whose answers have a size, all askers by turns.
pub fn figures(rig: &Rig, plan: &Plan, answer: Length) -> Vec<Figure> {
    let (runs, failed) = by_turns(Asker::all(), plan.runs, |asker| asker.run(rig, plan, answer));
    let runs: Vec<(&str, Vec<Done>)> = runs.into_iter().map(|(asker, runs)| (asker.name(), runs)).collect();
    let name = |asker: Asker| format!("{}, answers of {answer}", asker.name());
    let failed = failed.into_iter().map(|(asker, why)| failure(&name(asker), &why));
    of_runs(answer, &runs).into_iter().chain(failed).collect()
}

fn of_runs(answer: Length, runs: &[(&str, Vec<Done>)]) -> Vec<Figure> {
    let of = |name: &str| runs.iter().find(|(other, _)| *other == name).map_or(&[][..], |(_, runs)| runs);
    let transaction = Manner::Transaction.name();
    let missing = carried_by_others(Manner::Transaction.mode(), of(transaction));
    let sample = |name: &str, value: fn(&Done) -> Option<f64>| {
        let lies = name == transaction && missing.is_some();
        if lies { None } else { Sample::new(of(name).iter().filter_map(value).collect()) }
    };
    let figure = |group: &str, unit, value| {
        let others = runs.iter().map(|(name, _)| *name).filter(|name| *name != PLAIN);
        let figure = Figure::new(group, answer.to_string(), unit, sample(PLAIN, value));
        others.fold(figure, |figure, name| figure.against(name, sample(name, value)))
    };
    let barred = |group: &str, unit, value, bar| {
        let figure = Figure::new(group, answer.to_string(), unit, sample(transaction, value));
        let copied = Manner::Stream.name();
        let figure = Figure { missing: missing.clone().or(figure.missing.clone()), ..figure };
        figure.against(copied, sample(copied, value)).bar(copied, bar, None)
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

/// Messages of both directions for one question; of what the daemons counted, which is of a longer time than the window.
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

    #[test]
    fn messages_are_counted_for_each_question() {
        let ours = done([6400, 0, 0, 0], 200);
        let theirs = Done { count: 9, tally: None, ..ours };
        let figures = of_runs(Length(64), &[(PLAIN, vec![ours]), (LOOPBACK, vec![theirs])]);
        assert_eq!(figures[0].ratio(&figures[0].references[0]), Some(10.0));
        assert_eq!(figures[2].sample.as_ref().unwrap().median, 2.0);
        assert!(figures[2].references.is_empty(), "the kernel's messages are not counted");
    }

    #[test]
    fn a_transaction_must_take_fewer_messages_and_be_one() {
        let figures = |by_mode, messages| {
            let native = [
                ("native bcopy", vec![done([6400, 0, 0, 0], 200)]),
                ("transaction", vec![done(by_mode, messages)]),
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
    fn every_asker_has_a_name_of_its_own() {
        let askers = Asker::all();
        let names: std::collections::BTreeSet<&str> = askers.iter().map(|asker| asker.name()).collect();
        assert_eq!(names.len(), askers.len());
    }
}
