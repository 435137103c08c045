//! Scripts for Python and Node.js, all with the same arguments: `server ADDRESS PORT` (if they have a server), `check
//! ADDRESS PORT` compares the answers and prints their number of bytes, `rate ADDRESS PORT SECONDS KIND` counts
//! ([`crate::work::Work::json`]).

use crate::need::{Need, PYTHON, of};
use crate::{Site, file};
use anyhow::Result;
use std::process::Command;

/// The text of [`Script::Connections`], which has one more command: `hold ADDRESS PORT COUNT` keeps idle connections.
pub const CONNECTIONS: &str = include_str!("python/connections.py");

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// gRPC, a server and its client; kinds `unary`, `bulk`.
    Rpc,
    /// ZeroMQ, a server and its client; kinds `ask`, `flow`.
    ZeroMq,
    /// A client of ZooKeeper; kinds `get`, `many`.
    ZooKeeper,
    /// A client of RabbitMQ; kind `small`.
    Amqp,
    /// A client of memcached; kind `get`.
    Memcached,
    /// Plain sockets; kinds `row`, `kept`.
    Connections,
    /// Node.js: an HTTP server and `fetch`; kind `small`.
    Fetch,
}

impl Script {
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Rpc => ("rpc.py", include_str!("python/rpc.py")),
            Self::ZeroMq => ("zeromq.py", include_str!("python/zeromq.py")),
            Self::ZooKeeper => ("zookeeper.py", include_str!("python/zookeeper.py")),
            Self::Amqp => ("amqp.py", include_str!("python/amqp.py")),
            Self::Memcached => ("memcached.py", include_str!("python/memcached.py")),
            Self::Connections => ("connections.py", CONNECTIONS),
            Self::Fetch => ("fetch.js", include_str!("nodejs/fetch.js")),
        }
    }

    /// What must be installed for it, and for the server that it is a client of.
    pub const fn needs(self) -> &'static [Need] {
        match self {
            Self::Rpc => of::GRPC,
            Self::ZeroMq => of::ZEROMQ,
            Self::ZooKeeper => of::ZOOKEEPER,
            Self::Amqp => of::RABBITMQ,
            Self::Memcached => of::MEMCACHED,
            Self::Connections => of::PYTHON_ALONE,
            Self::Fetch => of::NODE,
        }
    }

    /// The server.
    ///
    /// # Errors
    /// The script cannot be written, or the place is gone.
    pub fn server(self, at: &Site<'_>) -> Result<Command> {
        self.command(at, "server", &[])
    }

    /// A client that compares.
    ///
    /// # Errors
    /// As [`Self::server`].
    pub fn check(self, at: &Site<'_>) -> Result<Command> {
        self.command(at, "check", &[])
    }

    /// A client that counts for so many seconds.
    ///
    /// # Errors
    /// As [`Self::server`].
    pub fn rate(self, at: &Site<'_>, seconds: f64, kind: &str) -> Result<Command> {
        self.command(at, "rate", &[&seconds.to_string(), kind])
    }

    fn command(self, at: &Site<'_>, role: &str, more: &[&str]) -> Result<Command> {
        let (name, text) = self.text();
        let path = file(at.folder, name, text)?;
        let mut command = if self == Self::Fetch {
            at.command("node")?
        } else {
            let mut python = at.command(PYTHON)?;
            python.args(["-u", "-X", "faulthandler"]);
            python
        };
        command.arg(path).args([role, &at.address.to_string(), &at.port.to_string()]).args(more);
        Ok(command)
    }
}
