//! Two programs that communicate, and their work in a window of time.

use super::flow::{Mark, Order};
use super::tally::Tally;
use crate::program::process::processor_time;
use crate::speaker::Speaker;
use anyhow::{Context, Result, ensure};
use crosslane_lab::Lab;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// How long programs run before they are measured: rings grow, and modes are found, within the first milliseconds.
const WARM: Duration = Duration::from_millis(60);

/// The two, connected and at work.
#[derive(Debug)]
pub struct Pair {
    listener: Speaker,
    connector: Speaker,
    client: SocketAddr,
}

/// The work in a window of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Bytes that arrived, or questions that were answered.
    pub count: u64,
    /// How long it took, s.
    pub seconds: f64,
    /// Processor time of both programs together, and of both daemons if streams carried it, s.
    pub processor: f64,
    /// What the stream counted, if it was one.
    pub tally: Option<Tally>,
}

impl Done {
    /// Units a second.
    pub fn rate(&self) -> f64 {
        per(self.count, self.seconds)
    }

    /// Units per second of processor time.
    pub fn per_processor(&self) -> f64 {
        per(self.count, self.processor)
    }
}

impl Pair {
    /// Starts both: `listener` reports where it listens, and `connector` starts the other one with that.
    ///
    /// # Errors
    /// One does not start, or they do not find each other.
    pub fn start(listener: Command, connector: impl FnOnce(SocketAddr) -> Result<Command>) -> Result<Self> {
        let mut listener = Speaker::start(listener)?;
        let at = listener.receive().context("the listening program")?;
        let mut connector = Speaker::start(connector(at)?)?;
        let client = connector.receive().context("the connecting program")?;
        Ok(Self { listener, connector, client })
    }

    /// Lets them work for `time`, and ends them. With `lab` a stream carries the bytes: its daemons' counters cover a
    /// little more time than the window, so that reading them is not measured.
    ///
    /// # Errors
    /// One of them fails, or there was no stream.
    pub fn measure(mut self, time: Duration, lab: Option<&Lab>) -> Result<Done> {
        std::thread::sleep(WARM);
        let client = self.client;
        let tally = || lab.map(|lab| Tally::of(lab, client)).transpose();
        let counted = tally()?;
        let daemons = lab.map_or(0, processors);
        let before = self.marks()?;
        std::thread::sleep(time);
        let after = self.marks()?;
        let daemons = lab.map_or(0, processors).saturating_sub(daemons);
        let tally = tally()?.zip(counted).map(|(now, before)| now - before);
        self.stop()?;
        let [theirs, ours] = [0, 1].map(|at: usize| after[at].processor.saturating_sub(before[at].processor));
        let done = Done {
            count: after[0].done.saturating_sub(before[0].done),
            seconds: seconds(after[0].nanos.saturating_sub(before[0].nanos)),
            processor: seconds(theirs + ours + daemons),
            tally,
        };
        ensure!(done.count > 0, "nothing arrived");
        Ok(done)
    }

    /// Of the listening and of the connecting program, at about the same time.
    fn marks(&mut self) -> Result<[Mark; 2]> {
        self.listener.say(&Order::Mark)?;
        self.connector.say(&Order::Mark)?;
        let theirs = self.listener.receive().context("the listening program")?;
        Ok([theirs, self.connector.receive().context("the connecting program")?])
    }

    /// The connecting one ends, and the other sees that; nothing may be lost on the way.
    fn stop(&mut self) -> Result<()> {
        self.connector.say(&Order::Stop)?;
        let sent: Mark = self.connector.receive().context("the connecting program, ending")?;
        self.listener.say(&Order::Stop)?;
        let received: Mark = self.listener.receive().context("the listening program, ending")?;
        ensure!(sent.done == received.done, "{} was sent and {} arrived", sent.done, received.done);
        Ok(())
    }
}

/// Processor time that the daemons of both hosts have used, ns.
fn processors(lab: &Lab) -> u64 {
    let daemon = |host| {
        let pid = lab.daemon(host).ok().flatten().and_then(|daemon| u32::try_from(daemon.pid).ok());
        pid.and_then(processor_time).unwrap_or(0)
    };
    daemon("h1") + daemon("h2")
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn per(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_time_and_of_processor_time() {
        let done = Done { count: 3000, seconds: 1.5, processor: 2.0, tally: None };
        assert_eq!((done.rate(), done.per_processor()), (2000.0, 1500.0));
        assert_eq!(Done { seconds: 0.0, ..done }.rate(), 0.0);
    }
}
