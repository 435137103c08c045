//! The status of one daemon, over its control socket.

use crate::LabError;
use crosslane_client::session::Session;
use crosslane_wire::local::{Reply, Request};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A session with one daemon.
#[derive(Debug)]
pub(crate) struct Tool {
    session: Session,
    socket: PathBuf,
}

impl Tool {
    /// # Errors
    /// [`LabError::NoDaemon`] if none answers at `control`.
    pub(crate) fn connect(control: &Path) -> Result<Self, LabError> {
        let socket = control.to_owned();
        let session = Session::connect(control).map_err(failed(control))?;
        session.hello("crosslane-lab").map_err(failed(control))?;
        Ok(Self { session, socket })
    }

    /// The daemon's status ([`Request::Status`]).
    pub(crate) fn status(&self) -> Result<Value, LabError> {
        let text = self.session.text(&Request::Status).map_err(failed(&self.socket))?;
        serde_json::from_str(&text).map_err(failed(&self.socket))
    }

    /// A request whose answer is [`Reply::Done`].
    pub(crate) fn order(&self, request: &Request) -> Result<(), LabError> {
        match self.session.request(request, &[]).map_err(failed(&self.socket))?.0 {
            Reply::Done => Ok(()),
            Reply::Error { text } => Err(LabError::Refused(text)),
            other => Err(LabError::Refused(format!("the daemon answers {other:?}"))),
        }
    }
}

/// What the daemon behind the control socket `control` says of itself (the JSON of [`Request::Status`]).
///
/// # Errors
/// [`LabError::NoDaemon`] if none answers there, or answers nonsense.
pub fn status(control: &Path) -> Result<Value, LabError> {
    Tool::connect(control)?.status()
}

fn failed<E: ToString>(control: &Path) -> impl Fn(E) -> LabError {
    move |why| LabError::NoDaemon { socket: control.to_owned(), why: why.to_string() }
}

/// What is still missing until the host of `status` has the links of `ports` up and knows `hosts`. `None` if nothing
/// is.
pub(crate) fn missing(status: &Value, ports: &[&str], hosts: &[u8]) -> Option<String> {
    let own = status["host"].as_u64()?;
    if let Some(down) = down_port(status, ports) {
        return Some(format!("h{own}: {down}"));
    }
    let known: Vec<u64> = list(&status["hosts"]).filter_map(|host| host["id"].as_u64()).collect();
    let unknown = hosts.iter().find(|id| !known.contains(&u64::from(**id)))?;
    Some(format!("h{own} does not know h{unknown} yet"))
}

/// The first of `ports` whose link is not up, for people.
pub(crate) fn down_port(status: &Value, ports: &[&str]) -> Option<String> {
    ports.iter().find_map(|&name| {
        let port = list(&status["ports"]).find(|port| port["name"] == name);
        let link = port.and_then(|port| port["link"].as_str()).unwrap_or("not there");
        let why = port.and_then(|port| port["why"].as_str()).map(|why| format!(" ({why})"));
        (link != "up").then(|| format!("port {name} is {link}{}", why.unwrap_or_default()))
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ready_means_links_up_and_hosts_known() {
        let status = |link: &str, hosts: Value| json!({"host": 1, "ports": [{"name": "right", "link": link}], "hosts": hosts});
        let both = json!([{"id": 2}, {"id": 3}]);
        assert_eq!(missing(&status("up", both.clone()), &["right"], &[2, 3]), None);
        assert_eq!(missing(&status("down", both.clone()), &[], &[3]), None, "that link is not wanted");
        let down = missing(&status("down", both.clone()), &["right"], &[]);
        assert!(down.is_some_and(|why| why.contains("right is down")));
        let unknown = missing(&status("up", json!([{"id": 2}])), &["right"], &[2, 3]);
        assert!(unknown.is_some_and(|why| why.contains("h3")));
        assert!(
            missing(&status("up", both), &["left"], &[]).is_some_and(|why| why.contains("left is not there"))
        );
    }
}
