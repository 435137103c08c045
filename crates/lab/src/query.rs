//! The status of one daemon, over its control socket.

use crate::LabError;
use crate::machine::{Ask, client};
use crate::state::{HostState, State};
use crosslane_client::session::Session;
use crosslane_status::{Link, Status};
use crosslane_wire::HostId;
use crosslane_wire::local::{Reply, Request};
use std::path::{Path, PathBuf};

/// Who asks one host's daemon.
#[derive(Debug)]
pub(crate) enum Tool {
    /// A session with a daemon of this kernel.
    Here { session: Session, socket: PathBuf },
    /// The agent of a virtual machine asks.
    Inside { folder: PathBuf, host: HostState },
}

impl Tool {
    /// # Errors
    /// [`LabError::NoDaemon`] if none answers at `control`.
    pub(crate) fn connect(control: &Path) -> Result<Self, LabError> {
        let socket = control.to_owned();
        let session = Session::connect(control).map_err(failed(control))?;
        session.hello("crosslane-lab").map_err(failed(control))?;
        Ok(Self::Here { session, socket })
    }

    /// Who asks the daemon of `host` of the lab in `folder`.
    ///
    /// # Errors
    /// [`LabError::NoDaemon`] if none answers.
    pub(crate) fn of(folder: &Path, state: &State, host: &HostState) -> Result<Self, LabError> {
        match state.accelerator {
            Some(_) => Ok(Self::Inside { folder: folder.to_owned(), host: host.clone() }),
            None => Self::connect(&host.control),
        }
    }

    /// The daemon's status ([`Request::Status`]).
    pub(crate) fn status(&self) -> Result<Status, LabError> {
        match self {
            Self::Here { session, socket } => {
                let text = session.text(&Request::Status).map_err(failed(socket))?;
                Status::parse(&text).map_err(failed(socket))
            }
            Self::Inside { folder, host } => {
                let text = client::ask(folder, host, &Ask::Status)?;
                Status::parse(&String::from_utf8_lossy(&text)).map_err(failed(&host.control))
            }
        }
    }

    /// A request whose answer is [`Reply::Done`].
    pub(crate) fn order(&self, request: &Request) -> Result<(), LabError> {
        let Self::Here { session, socket } = self else {
            return Err(LabError::Refused(
                "the daemon of a virtual machine takes no orders from outside".to_owned(),
            ));
        };
        match session.request(request, &[]).map_err(failed(socket))?.0 {
            Reply::Done => Ok(()),
            Reply::Error { text } => Err(LabError::Refused(text)),
            other => Err(LabError::Refused(format!("the daemon answers {other:?}"))),
        }
    }
}

/// The status that the daemon behind the control socket `control` reports ([`Request::Status`]).
///
/// # Errors
/// [`LabError::NoDaemon`] if none answers there, or answers nonsense.
pub fn status(control: &Path) -> Result<Status, LabError> {
    Tool::connect(control)?.status()
}

fn failed<E: ToString>(control: &Path) -> impl Fn(E) -> LabError {
    move |why| LabError::NoDaemon { socket: control.to_owned(), why: why.to_string() }
}

/// What is still missing until the host of `status` has the links of `ports` up and knows `hosts`. `None` if nothing
/// is.
pub(crate) fn missing(status: &Status, ports: &[&str], hosts: &[u8]) -> Option<String> {
    let own = status.host;
    if let Some(down) = down_port(status, ports) {
        return Some(format!("h{own}: {down}"));
    }
    let unknown = hosts.iter().find(|id| status.other_host(HostId(u16::from(**id))).is_none())?;
    Some(format!("h{own} does not know h{unknown} yet"))
}

/// The first of `ports` whose link is not up, as a message.
pub(crate) fn down_port(status: &Status, ports: &[&str]) -> Option<String> {
    ports.iter().find_map(|&name| match status.port(name) {
        None => Some(format!("port {name} is not there")),
        Some(port) if port.link == Link::Up => None,
        Some(port) => {
            let why = port.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            Some(format!("port {name} is {}{why}", port.link))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_status::{Host, Port};

    #[test]
    fn ready_means_links_up_and_hosts_known() {
        let status = |link, hosts: &[u16]| Status {
            host: HostId(1),
            ports: vec![Port { name: "right".to_owned(), link, ..Port::default() }],
            hosts: hosts.iter().map(|id| Host { id: HostId(*id), ..Host::default() }).collect(),
            ..Status::default()
        };
        assert_eq!(missing(&status(Link::Up, &[2, 3]), &["right"], &[2, 3]), None);
        assert_eq!(missing(&status(Link::Down, &[2, 3]), &[], &[3]), None, "that link is not wanted");
        let down = missing(&status(Link::Down, &[2, 3]), &["right"], &[]);
        assert!(down.is_some_and(|why| why.contains("right is down")));
        let unknown = missing(&status(Link::Up, &[2]), &["right"], &[2, 3]);
        assert!(unknown.is_some_and(|why| why.contains("h3")));
        let other = missing(&status(Link::Up, &[2, 3]), &["left"], &[]);
        assert!(other.is_some_and(|why| why.contains("left is not there")));
    }
}
