//! Unmodified programs between two hosts that a timed cable joins: on sockets, on IP, and on the kernel's TCP past the cable.

use super::{ASK, ECHO, IP, LIMIT, PING, Plan, SOCKETS, SOCKETS_BAR, held, least, limit};
use crate::compare::{Outcome, Setting, absence, by_turns};
use crate::figure::{Figure, Sample, Unit};
use crate::place::{self, InLab, PLAIN_IP, VETH};
use crate::program::{Effort, IPERF3, NETPERF, Program, SOCKPERF, ip};
use anyhow::Result;
use crosslane_lab::{CableKind, Lab, Options, Posted};
use crosslane_pcie::Cable;
use indicatif::ProgressBar;

/// Sockperf's metric: the median of the round trip.
const MEDIAN: usize = 1;

/// What programs reached, or why they did not.
#[derive(Debug)]
pub(super) struct Carried {
    /// Gb/s: by sockets, by IP, by the kernel.
    rates: Vec<Outcome>,
    /// Of single messages, if they were sent.
    messages: Option<Messages>,
    /// Part of the bytes that the cable carried late, of either end.
    late: f64,
}

/// What single messages took.
#[derive(Debug)]
struct Messages {
    /// us there and back: by sockets, by IP, by the kernel.
    times: Vec<Outcome>,
    /// Answers a second to netperf: the same.
    asks: Vec<Outcome>,
    /// us there and back: by IP, by the kernel.
    pings: Vec<Outcome>,
}

/// Brings two hosts up that `cable` joins, and runs the programs by turns; those that send single messages, too, if `messages`.
///
/// # Errors
/// The lab does not come up.
pub(super) fn measure(cable: Cable, messages: bool, plan: &Plan, progress: &ProgressBar) -> Result<Carried> {
    let lab = place::up(&Options { cable_kind: timed(cable), ..place::pair("direct") })?;
    let [sockets, kernel] = InLab::between(&lab, "h1", "h2")?;
    let [ip, _] = InLab::plain(&lab)?;
    let places = [sockets, ip, kernel];
    let rates = runs(&IPERF3, &places, (plan, progress));
    let late = late(&lab, &["h1", "h2"]);
    let messages = messages.then(|| {
        let times = runs(&SOCKPERF, &places, (plan, progress));
        let asks = runs(&NETPERF, &places, (plan, progress));
        let [_, ip, kernel] = places;
        Messages { times, asks, pings: runs(&ip::OFTEN, &[ip, kernel], (plan, progress)) }
    });
    place::down(lab)?;
    Ok(Carried { rates, messages, late })
}

/// Cables of this kind.
pub(super) fn timed(cable: Cable) -> CableKind {
    CableKind::Posted(Posted { link: Some(cable), ..Posted::default() })
}

/// What the program reached at each place.
pub(super) fn runs(
    program: &Program,
    places: &[InLab<'_>],
    (plan, progress): (&Plan, &ProgressBar),
) -> Vec<Outcome> {
    if let Some(why) = absence(program.needs) {
        return vec![Err(why); places.len()];
    }
    let effort = if plan.seconds > 1 { Effort::Long } else { Effort::Short };
    let setting = Setting { runs: plan.runs, effort, bars: false, remark: String::new(), brief: true };
    by_turns(program, places, &setting, progress)
}

/// Part of the bytes that landed late at the port of these hosts that was worst.
pub(super) fn late(lab: &Lab, hosts: &[&str]) -> f64 {
    let ports = |host: &&str| lab.status(host).unwrap_or_default().ports;
    let ports = hosts.iter().flat_map(ports);
    ports.filter_map(|port| Some(port.pacing.as_ref()?.late())).fold(0.0, f64::max)
}

impl Carried {
    /// Beside the limits of `cable`.
    pub(super) fn figures(&self, cable: &Cable) -> Vec<Figure> {
        let case = cable.to_string();
        let rate = |at: usize| Some(column(&self.rates, at, 0)?.scaled(1000.0 / 8.0));
        let sockets =
            Figure::new(SOCKETS, &case, Unit::MegabytesPerSecond, rate(0)).against(LIMIT, limit(cable));
        let sockets = held(sockets, self.late, SOCKETS_BAR);
        let ip = Figure::new(IP, &case, Unit::MegabytesPerSecond, rate(1)).against(LIMIT, limit(cable));
        let mut figures = vec![
            sockets.against(PLAIN_IP, rate(1)).against(VETH, rate(2)).without(why(&self.rates, 0)),
            ip.against(VETH, rate(2)).without(why(&self.rates, 1)),
        ];
        figures.extend(self.messages.iter().flat_map(|messages| messages.figures(cable)));
        figures.into_iter().map(Figure::by_turns).collect()
    }
}

impl Messages {
    fn figures(&self, cable: &Cable) -> [Figure; 3] {
        let case = cable.to_string();
        let time = |at: usize| Some(column(&self.times, at, MEDIAN)?.scaled(0.5));
        let (ask, ping) = (|at| column(&self.asks, at, 0), |at| column(&self.pings, at, 0));
        let echo = Figure::new(ECHO, &case, Unit::Microseconds, time(0)).against(LIMIT, least(cable));
        let asked = Figure::new(ASK, &case, Unit::PerSecond, ask(0));
        let pinged = Figure::new(PING, &case, Unit::Microseconds, ping(0)).against(VETH, ping(1));
        [
            echo.against(PLAIN_IP, time(1)).against(VETH, time(2)).without(why(&self.times, 0)),
            asked.against(PLAIN_IP, ask(1)).against(VETH, ask(2)).without(why(&self.asks, 0)),
            pinged.without(why(&self.pings, 0)),
        ]
    }
}

/// Why there are no runs at this place.
pub(super) fn why(outcomes: &[Outcome], at: usize) -> Option<String> {
    outcomes.get(at)?.as_ref().err().cloned()
}

/// The runs of a metric at this place.
pub(super) fn column(outcomes: &[Outcome], at: usize, metric: usize) -> Option<Sample> {
    let runs = outcomes.get(at)?.as_ref().ok()?;
    Sample::new(runs.columns.get(metric)?.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Runs;
    use crosslane_pcie::Limits;

    #[test]
    fn direct_programs_are_held_against_the_limit_of_their_cable() {
        let cable: Cable = "gen1 x4".parse().unwrap();
        let gigabits = Limits(&cable).payload(false) * 8.0 / 1e9;
        let runs = |values: Vec<f64>| Ok(Runs { columns: vec![vec![1.0], values], steal: 0.0 });
        let runs_of = |value: f64| Ok(Runs { columns: vec![vec![value]], steal: 0.0 });
        let rates = |part: f64| {
            let of = |part| Ok(Runs { columns: vec![vec![part * gigabits]], steal: 0.0 });
            vec![of(part), of(0.4), Err("it ended".to_owned())]
        };
        let times = || vec![runs(vec![20.0]), runs(vec![90.0]), runs(vec![60.0])];
        let missing = || vec![Err("netperf is not installed".to_owned()); 3];
        let pings = || vec![runs_of(300.0), runs_of(60.0)];
        let figures = |part, late| {
            let (rates, times) = (rates(part), times());
            let messages = Some(Messages { times, asks: missing(), pings: pings() });
            Carried { rates, messages, late }.figures(&cable)
        };
        assert_eq!(figures(0.91, 0.0)[0].meets_bar(), Some(true));
        assert_eq!(figures(0.89, 0.0)[0].meets_bar(), Some(false));
        assert_eq!(figures(0.89, 0.2)[0].bar, None);
        let all = figures(0.91, 0.0);
        assert_eq!(all[2].median(), Some(10.0));
        assert!(all[0].reference(VETH).is_none() && all[0].reference(PLAIN_IP).is_some());
        let brief = Carried { rates: rates(0.91), messages: None, late: 0.0 };
        assert_eq!(brief.figures(&cable).len(), 2);
        assert_eq!(all[3].missing.as_deref(), Some("netperf is not installed"));
        assert_eq!(
            (all[4].median(), all[4].reference(VETH).map(|it| it.sample.median)),
            (Some(300.0), Some(60.0))
        );
    }
}
