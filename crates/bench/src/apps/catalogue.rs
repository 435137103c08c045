//! The programs: what each does and needs, how it is started, and how its output is parsed. A line here is a line of the table.

use super::servers;
use super::sides::{Sides, whole};
use crate::figure::Unit;
use crate::program::process::Server;
use anyhow::{Context, Result, bail};
use crosslane_apps::kafka::{self, Manner};
use crosslane_apps::mpi::{Hosts, Mpi, PingPong};
use crosslane_apps::need::{Need, of};
use crosslane_apps::script::Script;
use crosslane_apps::work::Work;
use crosslane_apps::{Site, nbd, openssh};
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
    /// The noun for one of those: processor time is given per unit.
    pub(super) per: &'static str,
    /// What must be installed.
    pub(super) needs: &'static [Need],
    /// Starts its servers.
    pub(super) serve: Serve,
    /// Its client.
    pub(super) client: Client,
    /// Parses the client's work from its output.
    pub(super) read: fn(&str) -> Result<Work>,
    /// How long each server is asked before anything counts, s: one that compiles while it runs.
    pub(super) warm_up: f64,
    /// Why it is below TCP, if that is so and the reason is known.
    pub(super) limit: Option<&'static str>,
    /// It takes much longer to start than a short run takes: only measured by --quick if it is named.
    pub(super) is_slow: bool,
}

type Serve = fn(&Site<'_>) -> Result<Vec<Server>>;

/// The client.
#[derive(Clone, Copy)]
pub(super) enum Client {
    /// A script, to count in one of its kinds.
    Script(Script, &'static str),
    /// Another program, for so many seconds.
    Program(fn(&Sides<'_>, f64) -> Result<Command>),
    /// Two processes, and the bytes that go there and back.
    Mpi(Mpi, usize),
}

const NGINX: &[Need] = &[Need::new("nginx", "nginx-light"), Need::new("wrk", "wrk")];
const HAPROXY: &[Need] =
    &[Need::new("nginx", "nginx-light"), Need::new("wrk", "wrk"), Need::new("haproxy", "haproxy")];
const REDIS: &[Need] =
    &[Need::new("redis-server", "redis-server"), Need::new("redis-benchmark", "redis-tools")];
const POSTGRES: &[Need] = &[Need::new(servers::POSTGRES_CONTROL, "postgresql")];
/// How long a Java server compiles its most used code, s.
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

/// The unit of most: requests a second.
const USUAL: App = App {
    name: "",
    title: "",
    unit: Unit::PerSecond,
    per: "a request",
    needs: of::PYTHON_ALONE,
    serve: servers::none,
    client: Client::Program(|_, _| bail!("nothing is asked")),
    read: Work::json,
    warm_up: 0.0,
    limit: None,
    is_slow: false,
};

/// The client of a script, which prints JSON, and the servers that it asks.
const fn script(name: &'static str, title: &'static str, script: Script, kind: &'static str) -> App {
    let serve: Serve = match script {
        Script::Rpc => |at| servers::script(Script::Rpc, at),
        Script::ZeroMq => |at| servers::script(Script::ZeroMq, at),
        Script::ZooKeeper => servers::zookeeper,
        Script::Amqp => servers::rabbitmq,
        Script::Memcached => servers::memcached,
        Script::Connections => |at| servers::script(Script::Connections, at),
        Script::Fetch => |at| servers::script(Script::Fetch, at),
    };
    App { name, title, needs: script.needs(), serve, client: Client::Script(script, kind), ..USUAL }
}

/// Two processes of an MPI job that send so many bytes there and back.
const fn mpi(name: &'static str, title: &'static str, mpi: Mpi, bytes: usize) -> App {
    let (per, client) = ("a message there and back", Client::Mpi(mpi, bytes));
    App { name, title, per, needs: mpi.needs(), client, ..USUAL }
}

/// `app`, which counts megabytes.
const fn in_megabytes(app: App) -> App {
    App { unit: Unit::MegabytesPerSecond, per: "a MB", ..app }
}

/// All of them.
pub(super) const APPS: &[App] = &[
    script("grpc-unary", "gRPC (Python), unary, 64 B", Script::Rpc, "unary"),
    in_megabytes(script("grpc-bulk", "gRPC (Python), 16 MB there and back", Script::Rpc, "bulk")),
    script("zeromq-ask", "ZeroMQ, 64 B there and back", Script::ZeroMq, "ask"),
    in_megabytes(script("zeromq-flow", "ZeroMQ, 64 KB, 32 under way", Script::ZeroMq, "flow")),
    App {
        warm_up: COMPILING,
        is_slow: true,
        ..script("zookeeper", "ZooKeeper (kazoo), reads of 1 KB", Script::ZooKeeper, "get")
    },
    App {
        warm_up: COMPILING,
        is_slow: true,
        ..script("zookeeper-32", "ZooKeeper (kazoo), 32 under way", Script::ZooKeeper, "many")
    },
    App {
        per: "a message",
        is_slow: true,
        ..script("rabbitmq", "RabbitMQ (pika), 100 B, 100 under way", Script::Amqp, "small")
    },
    App {
        name: "kafka",
        title: "Kafka, producer, 1 KB in batches",
        client: Client::Program(|sides, time| producer(sides, Manner::Batches, time)),
        ..KAFKA
    },
    App {
        name: "kafka-one",
        title: "Kafka, producer, 100 B, one request under way",
        client: Client::Program(|sides, time| producer(sides, Manner::OneByOne, time)),
        ..KAFKA
    },
    in_megabytes(App {
        name: "nbd-fio",
        title: "nbdkit, fio, 16 KB at random, 16 under way",
        needs: of::NBD,
        serve: servers::nbd,
        client: Client::Program(|sides, time| nbd::rate(&sides.client, time)),
        read: nbd::read,
        ..USUAL
    }),
    in_megabytes(App {
        name: "scp",
        title: "scp, files of 64 MB",
        needs: of::OPENSSH,
        serve: servers::openssh,
        client: Client::Program(|sides, time| openssh::rate(&sides.client, time)),
        ..USUAL
    }),
    mpi("openmpi-8", "Open MPI, 8 B there and back", Mpi::Open, 8),
    mpi("openmpi-1m", "Open MPI, 1 MB there and back", Mpi::Open, 1 << 20),
    mpi("mpich-8", "MPICH (UCX), 8 B there and back", Mpi::Mpich, 8),
    mpi("mpich-1m", "MPICH (UCX), 1 MB there and back", Mpi::Mpich, 1 << 20),
    App {
        name: "haproxy",
        title: "HAProxy by splice before nginx, 256 KB",
        needs: HAPROXY,
        serve: servers::haproxy,
        client: Client::Program(|sides, time| wrk(sides, time, 4, "middle")),
        read: read_wrk,
        limit: Some(SPLICE),
        ..USUAL
    },
    App {
        name: "nginx",
        title: "nginx, wrk, 4 KB, 16 connections",
        needs: NGINX,
        serve: servers::nginx,
        client: Client::Program(|sides, time| wrk(sides, time, 16, "small")),
        read: read_wrk,
        ..USUAL
    },
    App {
        name: "redis",
        title: "redis, GET, 50 clients",
        needs: REDIS,
        serve: servers::redis,
        client: Client::Program(redis_benchmark),
        read: read_redis,
        ..USUAL
    },
    script("memcached", "memcached, 100 B, one after the other", Script::Memcached, "get"),
    App {
        name: "postgres",
        title: "PostgreSQL, pgbench -S, 4 clients",
        per: "a transaction",
        needs: POSTGRES,
        serve: servers::postgres,
        client: Client::Program(servers::pgbench),
        read: read_pgbench,
        ..USUAL
    },
    script("node-fetch", "Node.js, fetch, 4 KB there and back, 8 at once", Script::Fetch, "small"),
    App {
        per: "a connection",
        limit: Some(HANDSHAKE),
        ..script("row", "connections in a row: connect, 1 B, close", Script::Connections, "row")
    },
    App {
        per: "a connection",
        limit: Some(SET_UP),
        ..script("kept", "connections kept, 300 at a time: connect, 1 B", Script::Connections, "kept")
    },
];

const KAFKA: App = App {
    per: "a record",
    warm_up: COMPILING,
    is_slow: true,
    needs: of::KAFKA,
    serve: servers::kafka,
    read: kafka::read,
    ..USUAL
};

/// A producer compiles for some seconds; only what follows counts.
fn producer(sides: &Sides<'_>, manner: Manner, seconds: f64) -> Result<Command> {
    kafka::producer(&sides.client, manner, whole(seconds).max(11))
}

impl App {
    /// Its client, for so many seconds.
    pub(super) fn ask(&self, sides: &Sides<'_>, seconds: f64) -> Result<Command> {
        match self.client {
            Client::Script(script, kind) => script.rate(&sides.client, seconds, kind),
            Client::Program(client) => client(sides, seconds),
            Client::Mpi(mpi, bytes) => {
                let (near, far) = (("h1", sides.client.start), ("h2", sides.server.start));
                let hosts = Hosts { near, far, interface: sides.interface };
                let job = PingPong::prepare(mpi, sides.client.folder, &hosts)?;
                job.command(&hosts, &["rate", &bytes.to_string(), &seconds.to_string()])
            }
        }
    }
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
    command.args(["-t", "get", "-c", "50", "-n", &(REQUESTS * whole(seconds)).to_string()]);
    Ok(command)
}

/// Requests that take redis over TCP about a second.
const REQUESTS: u32 = 100_000;

/// The number before or behind a word of a program's output.
fn number(text: &str) -> Result<f64> {
    text.trim().trim_matches(['"', ',']).parse().with_context(|| format!("{text:?} is no number"))
}

fn read_redis(out: &str) -> Result<Work> {
    let before = |words: &str| {
        let text = out.split_once(words).with_context(|| format!("redis-benchmark printed no {words:?}"))?.0;
        number(text.split_whitespace().next_back().unwrap_or_default())
    };
    Work::at_rate(before(" requests completed in")?, before(" requests per second")?)
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
    fn client_output_is_parsed() {
        let wrk = read_wrk(include_str!("../captured/wrk.txt")).unwrap();
        assert!((wrk.rate() - 57405.59).abs() < 0.01 && wrk.count > 1000.0, "{wrk:?}");
        assert!(read_wrk("1 requests in 1s\nSocket errors: read 1\nRequests/sec: 1").is_err());
        let redis = "====== GET ======\n  200000 requests completed in 3.70 seconds\n\nSummary:\n  \
                     throughput summary: 54054.05 requests per second\n";
        let redis = read_redis(redis).unwrap();
        assert!((redis.rate() - 54054.05).abs() < 0.01 && redis.count == 200_000.0);
        assert!(read_redis("").is_err());
        let text = "number of transactions actually processed: 5000\ntps = 2500.5 (without initial)\n";
        assert!((read_pgbench(text).unwrap().rate() - 2500.5).abs() < 1e-6);
        assert!(read_pgbench("").is_err());
    }

    #[test]
    fn catalogue_every_program_has_needs_and_a_unit() {
        for app in APPS {
            assert!(!app.name.is_empty() && !app.title.is_empty() && !app.needs.is_empty(), "{}", app.name);
        }
        assert_eq!((whole(0.1), whole(2.0), whole(2.1)), (1, 2, 3));
    }
}
