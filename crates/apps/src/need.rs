//! Programs and packages that must be installed.

use std::env;
use std::path::PathBuf;

/// Folders that an ordinary user's search path may not name.
const MORE: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Something that must be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// A program, or the path of a file.
    pub what: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
}

impl Need {
    /// `what`, which `package` brings.
    pub const fn new(what: &'static str, package: &'static str) -> Self {
        Self { what, package }
    }

    /// Its path, if it is there.
    pub fn find(&self) -> Option<PathBuf> {
        if self.what.starts_with('/') {
            return Some(PathBuf::from(self.what)).filter(|path| path.exists());
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(MORE.iter().map(PathBuf::from));
        folders.map(|folder| folder.join(self.what)).find(|path| path.is_file())
    }
}

/// The first of `needs` that is missing.
pub fn missing(needs: &[Need]) -> Option<&Need> {
    needs.iter().find(|need| need.find().is_none())
}

/// The system's Python rather than one that a version chooser puts in front: the modules of Debian's packages are its.
pub const PYTHON: &str = "/usr/bin/python3";

/// What programs need, by the names that are used here.
pub mod of {
    use super::{Need, PYTHON};

    macro_rules! module {
        ($name:literal) => {
            concat!("/usr/lib/python3/dist-packages/", $name, "/__init__.py")
        };
    }

    /// gRPC for Python.
    pub const GRPC: &[Need] = &[Need::new(PYTHON, "python3"), Need::new(module!("grpc"), "python3-grpcio")];
    /// ZeroMQ for Python.
    pub const ZEROMQ: &[Need] = &[Need::new(PYTHON, "python3"), Need::new(module!("zmq"), "python3-zmq")];
    /// ZooKeeper's server and a client.
    pub const ZOOKEEPER: &[Need] = &[
        Need::new(PYTHON, "python3"),
        Need::new(module!("kazoo"), "python3-kazoo"),
        Need::new(crate::zookeeper::JAVA, "default-jre-headless"),
        Need::new(crate::zookeeper::CLASSES, "libzookeeper-java"),
    ];
    /// RabbitMQ's broker and a client.
    pub const RABBITMQ: &[Need] = &[
        Need::new(PYTHON, "python3"),
        Need::new(module!("pika"), "python3-pika"),
        Need::new(crate::rabbitmq::BROKER, "rabbitmq-server"),
    ];
    /// A server of network block devices and its clients.
    pub const NBD: &[Need] =
        &[Need::new("nbdkit", "nbdkit"), Need::new("nbdcopy", "libnbd-bin"), Need::new("fio", "fio")];
    /// Open MPI, with its compiler.
    pub const OPEN_MPI: &[Need] =
        &[Need::new("mpirun.openmpi", "openmpi-bin"), Need::new("mpicc.openmpi", "libopenmpi-dev")];
    /// MPICH, with its compiler.
    pub const MPICH: &[Need] =
        &[Need::new("mpirun.mpich", "mpich"), Need::new("mpicc.mpich", "libmpich-dev")];
    /// memcached, with a client of our own.
    pub const MEMCACHED: &[Need] = &[Need::new(PYTHON, "python3"), Need::new("memcached", "memcached")];
    /// Python alone.
    pub const PYTHON_ALONE: &[Need] = &[Need::new(PYTHON, "python3")];
    /// Node.js.
    pub const NODE: &[Need] = &[Need::new("node", "nodejs")];
    /// uvloop.
    pub const UVLOOP: &[Need] =
        &[Need::new(PYTHON, "python3"), Need::new(module!("uvloop"), "python3-uvloop")];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let needs =
            [Need::new("sh", "dash"), Need::new("/no/such/file", "nothing"), Need::new("no-such", "x")];
        assert_eq!(missing(&needs), Some(&needs[1]));
        assert_eq!(missing(&needs[..1]), None);
        assert!(needs[0].find().is_some_and(|path| path.ends_with("sh")));
    }
}
