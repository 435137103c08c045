//! Questions and answers, one at a time: how many in a second, what they cost, and how many messages they take.

use super::native::Manner;
use super::pair::{Done, Pair};
use super::size::Length;
use super::way::{Rig, Way};
use super::{Plan, by_turns, failure};
use crate::figure::{Figure, Sample, Unit};
use crate::program::{LOOPBACK, VETH};
use anyhow::Result;
use clap::ValueEnum;
use std::net::SocketAddr;

/// A group of the report: questions that are answered in a second.
pub const EXCHANGES: &str = "questions with an answer";
/// Processor time of all who take part, for each.
pub const EXCHANGE_PROCESSOR: &str = "processor time of a question";
/// Records and other messages of both directions, for each.
pub const EXCHANGE_MESSAGES: &str = "messages of a question";

/// Bytes of a question.
pub const QUESTION: usize = 64;
/// Port of the answering native program; no rule speaks of it.
const PORT: u16 = 24_100;
/// What the figures are of; the others are their references.
const PLAIN: &str = "bcopy";

/// Who asks and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// Plain programs with sockets.
    Sockets(Way),
    /// Programs that are written for streams.
    Native(Manner),
}

impl Asker {
    /// All of them: plain programs on streams and on the kernel's TCP, and each manner of native ones.
    fn all() -> Vec<Self> {
        let asks = |way: &Way| [PLAIN, LOOPBACK, VETH].contains(&way.name);
        let sockets = Way::all().into_iter().filter(asks).map(Self::Sockets);
        sockets.chain(Manner::value_variants().iter().copied().map(Self::Native)).collect()
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
        let (mut listener, at, verbs, manner) = match self {
            Self::Sockets(way) => {
                let (listener, at) = rig.listener(way)?;
                (listener, at, ["--reply", "--ask"], None)
            }
            Self::Native(manner) => {
                let at = SocketAddr::new(rig.lab.address("h2")?, PORT);
                (rig.native("h2")?, at, ["--reply", "--ask"], manner.to_possible_value())
            }
        };
        let manner = manner.map(|value| format!("--native={}", value.get_name()));
        listener.args(manner.as_deref()).args([verbs[0], &at.to_string()]).args(&sizes);
        let pair = Pair::start(listener, |to| {
            let mut connector = match self {
                Self::Sockets(way) => rig.connector(way)?,
                Self::Native(_) => rig.native("h1")?,
            };
            connector.args(manner.as_deref()).args([verbs[1], &to.to_string()]).args(&sizes);
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
    let figure = |group: &str, unit, value: fn(&Done) -> Option<f64>| {
        let sample = |name: &str| {
            let (_, runs) = runs.iter().find(|(other, _)| *other == name)?;
            Sample::new(runs.iter().filter_map(value).collect())
        };
        let others = runs.iter().map(|(name, _)| *name).filter(|name| *name != PLAIN);
        let figure = Figure::new(group, answer.to_string(), unit, sample(PLAIN));
        others.fold(figure, |figure, name| figure.against(name, sample(name)))
    };
    vec![
        figure(EXCHANGES, Unit::PerSecond, |done| Some(done.rate())),
        figure(EXCHANGE_PROCESSOR, Unit::Microseconds, |done| Some(1e6 / done.per_processor())),
        figure(EXCHANGE_MESSAGES, Unit::Messages, messages),
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

    #[test]
    fn messages_are_counted_for_each_question() {
        let tally = Tally { by_mode: [6400, 0, 0, 0], messages: 200, ..Tally::default() };
        let ours = Done { count: 90, seconds: 1.0, processor: 0.5, tally: Some(tally) };
        let theirs = Done { count: 9, tally: None, ..ours };
        let figures = of_runs(Length(64), &[(PLAIN, vec![ours]), (LOOPBACK, vec![theirs])]);
        assert_eq!(figures[0].ratio(&figures[0].references[0]), Some(10.0));
        assert_eq!(figures[2].sample.as_ref().unwrap().median, 2.0);
        assert!(figures[2].references.is_empty(), "the kernel's messages are not counted");
    }

    #[test]
    fn every_asker_has_a_name_of_its_own() {
        let askers = Asker::all();
        let names: std::collections::BTreeSet<&str> = askers.iter().map(|asker| asker.name()).collect();
        assert_eq!(names.len(), askers.len());
    }
}
