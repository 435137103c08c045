//! Unmodified programs of others: how their servers start, and what their clients ask. Tests compare the answers
//! (`check`), measurements count them (`rate`); both start the programs by this crate.
//!
//! * [`Site`]: where a program runs and where its server listens. Everything here makes [`Command`]s; the caller starts
//!   and ends them.
//! * [`script`]: clients and small servers for Python and Node.js.
//! * One module for each larger program: [`haproxy`], [`kafka`], [`mpi`], [`nbd`], [`openssh`], [`rabbitmq`], [`zookeeper`].
//! * [`work`]: the work that a client reports.
//! * [`need`]: the programs and Debian packages that this takes.
#![forbid(unsafe_code)]

pub mod haproxy;
pub mod kafka;
pub mod mpi;
pub mod nbd;
pub mod need;
pub mod openssh;
pub mod rabbitmq;
pub mod script;
pub mod work;
pub mod zookeeper;

use anyhow::{Context, Result};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a command that runs a program (a name or a path) at its site.
pub type Start<'a> = &'a dyn Fn(&str) -> Result<Command>;

/// Where a program runs, and where its server, or the server that it connects to, listens.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// Starts programs there.
    pub start: Start<'a>,
    /// Folder for files, which other programs of the same test may use too.
    pub folder: &'a Path,
    /// Address of the server.
    pub address: IpAddr,
    /// Port of the server.
    pub port: u16,
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.socket(), self.folder.display())
    }
}

impl Site<'_> {
    /// Address and port.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// A command for `program` there.
    ///
    /// # Errors
    /// There is no such place (any more).
    pub fn command(&self, program: &str) -> Result<Command> {
        (self.start)(program)
    }

    /// A folder of this server's own.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn own_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(format!("{name}-{}", self.port));
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder)
    }
}

/// Writes a file and returns its path.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
