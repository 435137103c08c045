//! Programs and packages that must be installed.

use std::path::PathBuf;
use std::{env, fmt};

/// Folders that an ordinary user's search path may not name.
const MORE: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Something that must be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// A program, or the path of a file, which may begin with a variable of the environment, as in `$HOME/file`.
    pub what: &'static str,
    /// What provides it.
    pub source: Source,
}

/// The provider of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A Debian package.
    Debian(&'static str),
    /// Something else, in words.
    Else(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian(package) => write!(f, "Debian: apt-get install {package}"),
            Self::Else(words) => f.write_str(words),
        }
    }
}

impl Need {
    /// `what`, from the Debian package `package`.
    pub const fn new(what: &'static str, package: &'static str) -> Self {
        Self { what, source: Source::Debian(package) }
    }

    /// `what`, which no Debian package has; `words` say where it comes from.
    pub const fn by_hand(what: &'static str, words: &'static str) -> Self {
        Self { what, source: Source::Else(words) }
    }

    /// Its path, if it is there.
    pub fn find(&self) -> Option<PathBuf> {
        if let Some((variable, rest)) = self.what.strip_prefix('$').and_then(|what| what.split_once('/')) {
            return Some(PathBuf::from(env::var_os(variable)?).join(rest)).filter(|path| path.exists());
        }
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

/// The system's Python rather than one of a version manager: the modules of Debian's packages belong to it.
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
    /// Kafka's broker and its producer.
    pub const KAFKA: &[Need] = &[
        Need::new(crate::zookeeper::JAVA, "default-jre-headless"),
        Need::by_hand(crate::kafka::CLASSES, "scripts/fetch-kafka.sh brings it and says what KAFKA_HOME is"),
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
    /// OpenSSH's server and its clients.
    pub const OPENSSH: &[Need] = &[
        Need::new(crate::openssh::SSHD, "openssh-server"),
        Need::new("scp", "openssh-client"),
        Need::new("ssh-keygen", "openssh-client"),
    ];
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
    fn need_names_what_is_missing_and_its_package() {
        let needs =
            [Need::new("sh", "dash"), Need::new("/no/such/file", "nothing"), Need::new("no-such", "x")];
        assert_eq!(missing(&needs), Some(&needs[1]));
        assert_eq!(missing(&needs[..1]), None);
        let home = Need::by_hand("$HOME/.", "nothing");
        assert_eq!(home.find().is_some(), env::var_os("HOME").is_some());
        assert_eq!(Need::by_hand("$NO_SUCH_VARIABLE/x", "by hand").find(), None);
        assert_eq!(format!("{}, {}", needs[0].source, home.source), "Debian: apt-get install dash, nothing");
        assert!(needs[0].find().is_some_and(|path| path.ends_with("sh")));
    }
}
