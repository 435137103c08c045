//! Python: its standard library's servers and clients, as scripts that check the bytes themselves.

use crate::program::Program;
use crate::rig::Rig;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Scripts for the Python interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Echo by plain sockets and threads: `server ADDRESS PORT`, `client ADDRESS PORT BYTES CONNECTIONS`.
    Echo,
    /// Echo by asyncio streams; the same arguments.
    Asyncio,
    /// `multiprocessing.connection` and a manager: `server ADDRESS PORT`, `client ADDRESS PORT`.
    Multiprocessing,
    /// `socketserver`: `forking|threading ADDRESS PORT`; the client is [`Script::Echo`]'s.
    SocketServer,
    /// A memcached client: `ADDRESS PORT`.
    Memcached,
    /// Connections that last: `server ADDRESS PORT`, `client ADDRESS PORT CONNECTIONS`: one echo on each, `ready`,
    /// idle until a line ends them.
    Idle,
    /// Many connections at once: `server ADDRESS PORT`, `client ADDRESS PORT CONNECTIONS`: `ready`, `heirs`, `last`, each
    /// behind a SIGUSR1 but the first, and the end behind another.
    Many,
    /// Client processes that come and go, to the server of [`Script::Short`]: `ADDRESS PORT COUNT PROCESSES AT_A_TIME`.
    Crowd,
    /// Short connections to ports in a row: `server ADDRESS PORT COUNT`, `client ADDRESS PORT COUNT ROUNDS BYTES`.
    Short,
    /// Connections in a loop: `server ADDRESS PORT`, `client ADDRESS PORT TIMES`; both print their descriptors.
    Loop,
    /// Traffic without end, to see faults: `server ADDRESS PORT`, `client ADDRESS PORT`; prints how it ended.
    Endless,
    /// One way in sends that the far program may fetch: `server ADDRESS PORT`, `client ADDRESS PORT asked|told FILE`; both
    /// tell what was moved, and how it ended.
    Announced,
    /// Sleepers, each in another call: `server ADDRESS PORT`, `client ADDRESS PORT`; prints how each sleep ended.
    Sleepers,
    /// Nonblocking connects to a server of [`Script::Echo`]: `ADDRESS PORT TIMES`.
    Hurry,
    /// A server that accepts at SIGUSR1: `server ADDRESS PORT`, `client ADDRESS PORT`.
    Late,
    /// A server that reads at SIGUSR1, and a client that sends twice: `server ADDRESS PORT`, `client ADDRESS PORT`.
    Reader,
    /// Behaviours of sockets that programs rely on: `server ADDRESS PORT`, `client ADDRESS PORT`.
    Behaviour,
    /// Sends to a server of [`Script::Echo`] until a file appears, and checks every byte: `ADDRESS PORT FILE SEED`.
    Checked,
    /// Sends when a file appears, and ends: `server ADDRESS PORT`, `client ADDRESS PORT FILE`.
    Leaving,
    /// Connections from ports that others may share, to the server of `crosslane-honest`: `ADDRESS SERVER PORT FIRST COUNT
    /// SECONDS`; tells how many were served and how many got what was not theirs.
    Victim,
    /// IP: `tcp-server|tcp-client ADDRESS PORT BYTES`, `udp-server ADDRESS PORT`, `udp-client ADDRESS PORT BYTES TIMES`,
    /// `hear GROUP PORT`, `say GROUP PORT TIMES BYTES`, `absent ADDRESS`.
    Net,
}

impl Script {
    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Echo => ("echo.py", include_str!("python/echo.py")),
            Self::Asyncio => ("streams.py", include_str!("python/streams.py")),
            Self::Multiprocessing => ("manager.py", include_str!("python/manager.py")),
            Self::SocketServer => ("server.py", include_str!("python/server.py")),
            Self::Memcached => ("memcache.py", include_str!("python/memcache.py")),
            Self::Idle => ("idle.py", include_str!("python/idle.py")),
            Self::Many => ("many.py", include_str!("python/many.py")),
            Self::Crowd => ("crowd.py", include_str!("python/crowd.py")),
            Self::Short => ("short.py", include_str!("python/short.py")),
            Self::Loop => ("loop.py", include_str!("python/loop.py")),
            Self::Victim => ("victim.py", include_str!("python/victim.py")),
            Self::Endless => ("endless.py", include_str!("python/endless.py")),
            Self::Announced => ("announced.py", include_str!("python/announced.py")),
            Self::Sleepers => ("sleepers.py", include_str!("python/sleepers.py")),
            Self::Hurry => ("hurry.py", include_str!("python/hurry.py")),
            Self::Late => ("late.py", include_str!("python/late.py")),
            Self::Reader => ("reader.py", include_str!("python/reader.py")),
            Self::Checked => ("checked.py", include_str!("python/checked.py")),
            Self::Leaving => ("leaving.py", include_str!("python/leaving.py")),
            Self::Net => ("net.py", include_str!("python/net.py")),
            Self::Behaviour => ("behaviour.py", include_str!("python/behaviour.py")),
        }
    }

    /// The interpreter with this script in a host, accelerated.
    ///
    /// # Errors
    /// The script cannot be written, or there is no such host.
    pub fn command(self, rig: &Rig, host: &str, python: &Path) -> Result<Command> {
        let mut command = rig.command(host, python)?;
        self.load(rig, &mut command)?;
        Ok(command)
    }

    /// As [`Self::command`], plain.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn plain(self, rig: &Rig, host: &str, python: &Path) -> Result<Command> {
        let mut command = rig.plain(host, python)?;
        self.load(rig, &mut command)?;
        Ok(command)
    }

    /// Starts the script with arguments and waits until it listens on `port`.
    ///
    /// # Errors
    /// It does not.
    pub fn server(self, rig: &Rig, host: &str, python: &Path, words: &[&str], port: u16) -> Result<Program> {
        let mut server = Program::start(self.command(rig, host, python)?.args(words))?;
        server.listens(port)?;
        Ok(server)
    }

    fn load(self, rig: &Rig, command: &mut Command) -> Result<()> {
        let (name, text) = self.text();
        let path = rig.file(name);
        if !path.exists() {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        command.args(["-u", "-X", "faulthandler"]).arg(path);
        Ok(())
    }
}
