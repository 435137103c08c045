//! Kafka: a broker that is its own controller, and the producer of its performance tools. No Debian package has it:
//! `KAFKA_HOME` names where a distribution of Apache's was unpacked, or where `scripts/fetch-kafka.sh` put what it needs of one.

use crate::work::Work;
use crate::zookeeper::JAVA;
use crate::{Site, file};
use anyhow::{Context, Result};
use std::process::Command;

/// Kafka's classes and those that they use.
pub const CLASSES: &str = "$KAFKA_HOME/libs";
/// Any 16 bytes, in base 64.
const CLUSTER: &str = "AAAAAAAAQACAAAAAAAAAAA";
/// The controller's port, relative to the broker's.
const CONTROLLER: u16 = 300;

/// How a producer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Records of 1 KB in batches, with the tools' defaults.
    Batches,
    /// Records of 100 B, each a request of its own, one under way.
    OneByOne,
}

impl Manner {
    /// Records that take a producer over TCP about a second, and their size in bytes.
    fn load(self) -> (u32, u32) {
        match self {
            Self::Batches => (40_000, 1000),
            Self::OneByOne => (5_000, 100),
        }
    }
}

/// A broker with its data in a folder of its own.
///
/// # Errors
/// Its files cannot be written.
pub fn server(at: &Site<'_>) -> Result<Command> {
    let folder = at.own_folder("kafka")?;
    let controller = at.port + CONTROLLER;
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://{0},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners=PLAINTEXT://{0}\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\nlog.dirs={1}\n\
         log.retention.bytes=100000000\nlog.segment.bytes=50000000\noffsets.topic.replication.factor=1\n",
        at.socket(),
        folder.join("data").display()
    );
    let settings = file(&folder, "server.properties", &text)?;
    let mut command = at.command("sh")?;
    // Words of Java come first; the messages about the format are dropped.
    command.args(["-c", "settings=$1; shift; \"$@\" kafka.tools.StorageTool format -t \"$CLUSTER\" -c \"$settings\" > /dev/null && exec \"$@\" kafka.Kafka \"$settings\"", "sh"]);
    command.env("CLUSTER", CLUSTER).arg(settings).args([JAVA, "-Xmx512m", "-cp"]).arg(class_path()?);
    Ok(command)
}

/// A producer that runs about so many seconds.
///
/// # Errors
/// There is no Kafka.
pub fn producer(at: &Site<'_>, manner: Manner, seconds: u32) -> Result<Command> {
    let (rate, bytes) = manner.load();
    let mut command = at.command(JAVA)?;
    command.args(["-Xmx256m", "-cp"]).arg(class_path()?).arg("org.apache.kafka.tools.ProducerPerformance");
    command.args(["--topic", "crosslane", "--throughput", "-1", "--record-size", &bytes.to_string()]);
    command.args(["--num-records", &(u64::from(rate) * u64::from(seconds)).to_string(), "--producer-props"]);
    command.arg(format!("bootstrap.servers={}", at.socket())).arg("acks=1");
    if manner == Manner::OneByOne {
        command.args(["batch.size=0", "max.in.flight.requests.per.connection=1"]);
    }
    Ok(command)
}

/// The producer's work: the rate of the last whole window of 5 s, when most code is compiled, if there is one.
///
/// # Errors
/// It printed something else.
pub fn read(out: &str) -> Result<Work> {
    let lines = out.lines().filter_map(|line| {
        let (count, rest) = line.split_once(" records sent, ")?;
        let rate = rest.split_once(" records/sec")?.0;
        Some((count.trim().parse::<f64>().ok()?, rate.trim().parse::<f64>().ok()?))
    });
    let lines: Vec<_> = lines.collect();
    let (count, all) = *lines.last().context("the producer printed no rate")?;
    Work::at_rate(count, if lines.len() > 2 { lines[lines.len() - 2].1 } else { all })
}

fn class_path() -> Result<String> {
    let home = std::env::var("KAFKA_HOME").context("KAFKA_HOME is not set")?;
    Ok(format!("{home}/libs/*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafka_last_whole_window_counts() {
        let out = "log4j:WARN no appenders\n10 records sent, 2.0 records/sec (0.54 MB/sec), 1 ms avg latency\n\
                   30 records sent, 6.5 records/sec (0.54 MB/sec), 1 ms avg latency\n\
                   50 records sent, 4.2 records/sec (0.27 MB/sec), 1 ms avg latency, 3 ms 50th\n";
        let work = read(out).unwrap();
        assert!((work.rate() - 6.5).abs() < 1e-9 && (work.count - 50.0).abs() < 1e-9);
        assert!((read("7 records sent, 3.5 records/sec (x)").unwrap().rate() - 3.5).abs() < 1e-9);
        assert!(read("").is_err());
    }
}
