//! The programs: what each does, what it needs, how it is started and read. A line here is a line of the table.

use super::servers;
use super::sides::{Sides, whole};
use crate::figure::Unit;
use crate::program::process::Server;
use anyhow::{Context, Result};
use crosslane_apps::kafka::{self, Manner};
use crosslane_apps::mpi::{Hosts, Mpi, PingPong};
use crosslane_apps::need::{Need, of};
use crosslane_apps::script::Script;
use crosslane_apps::work::Work;
use crosslane_apps::{Site, nbd};
use std::process::Command;

/// A program of others.
#[derive(Clone, Copy)]
pub(super) struct App {
    /// Name for `--only`.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) title: &'static str,
    /// What it counts.
    pub(super) unit: Unit,
    /// One of those, for people: processor time is of one.
    pub(super) per: &'static str,
    /// What must be installed.
    pub(super) needs: &'static [Need],
    /// Starts its servers.
    pub(super) serve: fn(&Site<'_>) -> Result<Vec<Server>>,
    /// Its client, for so many seconds.
    pub(super) ask: fn(&Sides<'_>, f64) -> Result<Command>,
    /// What the client did, by what it printed.
    pub(super) read: fn(&str) -> Result<Work>,
    /// How long each server is asked before anything counts, s: one that compiles while it runs.
    pub(super) warm_up: f64,
    /// Why it is below TCP, if it is and that is known.
    pub(super) limit: Option<&'static str>,
}

const NGINX: &[Need] = &[Need::new("nginx", "nginx-light"), Need::new("wrk", "wrk")];
const HAPROXY: &[Need] =
    &[Need::new("nginx", "nginx-light"), Need::new("wrk", "wrk"), Need::new("haproxy", "haproxy")];
const REDIS: &[Need] =
    &[Need::new("redis-server", "redis-server"), Need::new("redis-benchmark", "redis-tools")];
const POSTGRES: &[Need] = &[Need::new(servers::POSTGRES_CONTROL, "postgresql")];
/// How long a Java server compiles what it does most, s.
const COMPILING: f64 = 12.0;
/// Why bytes are spliced more slowly.
const SPLICE: &str = "the kernel's splice moves references to pages from socket to socket; a stream's bytes are copied into the \
     pipe and out of it";
/// Why short connections, which are left to TCP, are made more slowly.
const HANDSHAKE: &str =
    "TCP's handshake itself goes through both daemons' interfaces, and each packet wakes them";
/// Why streams are opened more slowly.
const SET_UP: &str = "a stream is announced before its handshake: two round trips in which the daemons and both programs wake \
     one after the other, where TCP's one wakes the server only";

/// What most have in common: a script's client that prints JSON, requests in a second.
const SCRIPT: App = App {
    name: "",
    title: "",
    unit: Unit::PerSecond,
    per: "a request",
    needs: of::PYTHON_ALONE,
    serve: servers::none,
    ask: |_, _| anyhow::bail!("nothing is asked"),
    read: Work::json,
    warm_up: 0.0,
    limit: None,
};

/// All of them.
pub(super) const APPS: &[App] = &[
    App {
        name: "grpc-unary",
        title: "gRPC (Python), unary, 64 B",
        needs: of::GRPC,
        serve: |at| servers::script(Script::Rpc, at),
        ask: |sides, time| Script::Rpc.rate(&sides.client, time, "unary"),
        ..SCRIPT
    },
    App {
        name: "grpc-bulk",
        title: "gRPC (Python), 16 MB there and back",
        unit: Unit::MegabytesPerSecond,
        per: "a MB",
        needs: of::GRPC,
        serve: |at| servers::script(Script::Rpc, at),
        ask: |sides, time| Script::Rpc.rate(&sides.client, time, "bulk"),
        ..SCRIPT
    },
    App {
        name: "zeromq-ask",
        title: "ZeroMQ, 64 B there and back",
        needs: of::ZEROMQ,
        serve: |at| servers::script(Script::ZeroMq, at),
        ask: |sides, time| Script::ZeroMq.rate(&sides.client, time, "ask"),
        ..SCRIPT
    },
    App {
        name: "zeromq-flow",
        title: "ZeroMQ, 64 KB, 32 under way",
        unit: Unit::MegabytesPerSecond,
        per: "a MB",
        needs: of::ZEROMQ,
        serve: |at| servers::script(Script::ZeroMq, at),
        ask: |sides, time| Script::ZeroMq.rate(&sides.client, time, "flow"),
        ..SCRIPT
    },
    App {
        name: "zookeeper",
        title: "ZooKeeper (kazoo), reads of 1 KB",
        warm_up: COMPILING,
        needs: of::ZOOKEEPER,
        serve: servers::zookeeper,
        ask: |sides, time| Script::ZooKeeper.rate(&sides.client, time, "get"),
        ..SCRIPT
    },
    App {
        name: "zookeeper-32",
        title: "ZooKeeper (kazoo), 32 under way",
        warm_up: COMPILING,
        needs: of::ZOOKEEPER,
        serve: servers::zookeeper,
        ask: |sides, time| Script::ZooKeeper.rate(&sides.client, time, "many"),
        ..SCRIPT
    },
    App {
        name: "rabbitmq",
        title: "RabbitMQ (pika), 100 B, 100 under way",
        per: "a message",
        needs: of::RABBITMQ,
        serve: servers::rabbitmq,
        ask: |sides, time| Script::Amqp.rate(&sides.client, time, "small"),
        ..SCRIPT
    },
    App {
        name: "kafka",
        title: "Kafka, producer, 1 KB in batches",
        ask: |sides, time| kafka::producer(&sides.client, Manner::Batches, producing(time)),
        ..KAFKA
    },
    App {
        name: "kafka-one",
        title: "Kafka, producer, 100 B, one request under way",
        ask: |sides, time| kafka::producer(&sides.client, Manner::OneByOne, producing(time)),
        ..KAFKA
    },
    App {
        name: "nbd-fio",
        title: "nbdkit, fio, 16 KB at random, 16 under way",
        unit: Unit::MegabytesPerSecond,
        per: "a MB",
        needs: of::NBD,
        serve: servers::nbd,
        ask: |sides, time| nbd::rate(&sides.client, time),
        read: nbd::read,
        ..SCRIPT
    },
    App {
        name: "openmpi-8",
        title: "Open MPI, 8 B there and back",
        ask: |s, t| mpi(Mpi::Open, s, t, 8),
        ..OPEN_MPI
    },
    App {
        name: "openmpi-1m",
        title: "Open MPI, 1 MB there and back",
        ask: |sides, time| mpi(Mpi::Open, sides, time, 1 << 20),
        ..OPEN_MPI
    },
    App {
        name: "mpich-8",
        title: "MPICH (UCX), 8 B there and back",
        ask: |s, t| mpi(Mpi::Mpich, s, t, 8),
        ..MPICH
    },
    App {
        name: "mpich-1m",
        title: "MPICH (UCX), 1 MB there and back",
        ask: |sides, time| mpi(Mpi::Mpich, sides, time, 1 << 20),
        ..MPICH
    },
    App {
        name: "haproxy",
        title: "HAProxy by splice before nginx, 256 KB",
        needs: HAPROXY,
        serve: servers::haproxy,
        ask: |sides, time| wrk(sides, time, 4, "middle"),
        read: read_wrk,
        limit: Some(SPLICE),
        ..SCRIPT
    },
    App {
        name: "nginx",
        title: "nginx, wrk, 4 KB, 16 connections",
        needs: NGINX,
        serve: servers::nginx,
        ask: |sides, time| wrk(sides, time, 16, "small"),
        read: read_wrk,
        ..SCRIPT
    },
    App {
        name: "redis",
        title: "redis, GET, 50 clients",
        needs: REDIS,
        serve: servers::redis,
        ask: redis_benchmark,
        read: read_redis,
        ..SCRIPT
    },
    App {
        name: "memcached",
        title: "memcached, 100 B, one after the other",
        needs: of::MEMCACHED,
        serve: servers::memcached,
        ask: |sides, time| Script::Memcached.rate(&sides.client, time, "get"),
        ..SCRIPT
    },
    App {
        name: "postgres",
        title: "PostgreSQL, pgbench -S, 4 clients",
        per: "a transaction",
        needs: POSTGRES,
        serve: servers::postgres,
        ask: servers::pgbench,
        read: read_pgbench,
        ..SCRIPT
    },
    App {
        name: "node-fetch",
        title: "Node.js, fetch, 4 KB there and back, 8 at once",
        needs: of::NODE,
        serve: |at| servers::script(Script::Fetch, at),
        ask: |sides, time| Script::Fetch.rate(&sides.client, time, "small"),
        ..SCRIPT
    },
    App {
        name: "row",
        title: "connections in a row: connect, 1 B, close",
        per: "a connection",
        serve: servers::connections,
        ask: |sides, time| servers::connecting(sides, time, "row"),
        limit: Some(HANDSHAKE),
        ..SCRIPT
    },
    App {
        name: "kept",
        title: "connections kept, 300 at a time: connect, 1 B",
        per: "a connection",
        serve: servers::connections,
        ask: |sides, time| servers::connecting(sides, time, "kept"),
        limit: Some(SET_UP),
        ..SCRIPT
    },
];

const KAFKA: App = App {
    per: "a record",
    warm_up: COMPILING,
    needs: of::KAFKA,
    serve: servers::kafka,
    read: kafka::read,
    ..SCRIPT
};
/// A producer compiles for some seconds; only what comes behind counts.
fn producing(seconds: f64) -> u32 {
    whole(seconds).max(11)
}

const OPEN_MPI: App = App { per: "a message there and back", needs: of::OPEN_MPI, ..SCRIPT };
const MPICH: App = App { needs: of::MPICH, ..OPEN_MPI };

/// Two processes of an MPI job.
fn mpi(mpi: Mpi, sides: &Sides<'_>, seconds: f64, bytes: usize) -> Result<Command> {
    let (near, far) = (("h1", sides.client.start), ("h2", sides.server.start));
    let hosts = Hosts { near, far, interface: sides.interface };
    let job = PingPong::prepare(mpi, sides.client.folder, &hosts)?;
    job.command(&hosts, &["rate", &bytes.to_string(), &seconds.to_string()])
}

fn wrk(sides: &Sides<'_>, seconds: f64, connections: u32, file: &str) -> Result<Command> {
    let mut command = sides.client.command("wrk")?;
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{}s", whole(seconds))]);
    command.arg(format!("http://{}/{file}", sides.client.socket()));
    Ok(command)
}

fn redis_benchmark(sides: &Sides<'_>, seconds: f64) -> Result<Command> {
    let mut command = sides.client.command("redis-benchmark")?;
    command.args(["-h", &sides.client.address.to_string(), "-p", &sides.client.port.to_string()]);
    command.args(["-t", "get", "-c", "50", "--csv", "-n", &(REQUESTS * whole(seconds)).to_string()]);
    Ok(command)
}

/// Requests that take redis over TCP about a second, and what one of its rates stands for.
const REQUESTS: u32 = 100_000;

/// The number before or behind a word of a program's report.
fn number(text: &str) -> Result<f64> {
    text.trim().trim_matches(['"', ',']).parse().with_context(|| format!("{text:?} is no number"))
}

fn read_redis(out: &str) -> Result<Work> {
    let line =
        out.lines().rfind(|line| line.starts_with("\"GET\"")).context("redis-benchmark gave no GET")?;
    let rate = number(line.split(',').nth(1).unwrap_or_default())?;
    Work::at_rate(f64::from(REQUESTS), rate)
}

fn read_wrk(out: &str) -> Result<Work> {
    anyhow::ensure!(!out.contains("Non-2xx") && !out.contains("Socket errors"), "wrk met errors: {out}");
    let line = out.lines().find(|line| line.contains(" requests in ")).context("wrk printed no requests")?;
    let count = number(line.split(" requests in ").next().unwrap_or_default())?;
    let rate = out.split_once("Requests/sec:").context("wrk printed no rate")?.1;
    Work::at_rate(count, number(rate.split_whitespace().next().unwrap_or_default())?)
}

fn read_pgbench(out: &str) -> Result<Work> {
    let behind = |label: &str| {
        let rest = out.split_once(label).with_context(|| format!("pgbench printed no {label:?}"))?.1;
        number(rest.split([' ', '\n', '/']).next().unwrap_or_default())
    };
    Work::at_rate(behind("actually processed: ")?, behind("tps = ")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_print_is_read() {
        let wrk = read_wrk(include_str!("../captured/wrk.txt")).unwrap();
        assert!((wrk.rate() - 57405.59).abs() < 0.01 && wrk.count > 1000.0, "{wrk:?}");
        assert!(read_wrk("1 requests in 1s\nSocket errors: read 1\nRequests/sec: 1").is_err());
        let redis = read_redis(include_str!("../captured/redis.csv")).unwrap();
        assert!((redis.rate() - 54054.05).abs() < 0.01);
        let text = "number of transactions actually processed: 5000\ntps = 2500.5 (without initial)\n";
        assert!((read_pgbench(text).unwrap().rate() - 2500.5).abs() < 1e-6);
        assert!(read_pgbench("").is_err());
    }

    #[test]
    fn every_program_says_what_it_needs_and_counts() {
        for app in APPS {
            assert!(!app.name.is_empty() && !app.title.is_empty() && !app.needs.is_empty(), "{}", app.name);
        }
        assert_eq!((whole(0.1), whole(2.0), whole(2.1)), (1, 2, 3));
    }
}
