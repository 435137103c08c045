//! The status of one daemon, over its control socket.

use crate::LabError;
use crosslane_client::session::Session;
use crosslane_wire::local::Request;
use serde_json::Value;
use std::path::Path;

/// What the daemon behind the control socket `control` says of itself (the JSON of [`Request::Status`]).
///
/// # Errors
/// [`LabError::NoDaemon`] if none answers there, or answers nonsense.
pub fn status(control: &Path) -> Result<Value, LabError> {
    let failed = |why: String| LabError::NoDaemon { socket: control.to_owned(), why };
    let session = Session::connect(control).map_err(|e| failed(e.to_string()))?;
    session.hello("crosslane-lab").map_err(|e| failed(e.to_string()))?;
    let text = session.text(&Request::Status).map_err(|e| failed(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
}

/// What is still missing until the host of `status` is ready in a lab of `hosts` hosts: all its links up, all
/// other hosts known. `None` if nothing is.
pub(crate) fn missing(status: &Value, hosts: u8) -> Option<String> {
    let own = status["host"].as_u64()?;
    for port in status["ports"].as_array().into_iter().flatten() {
        if port["link"].as_str() != Some("up") {
            let why = port["why"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
            return Some(format!("h{own}: port {} is {}{why}", word(&port["name"]), word(&port["link"])));
        }
    }
    let known: Vec<u64> =
        status["hosts"].as_array().into_iter().flatten().filter_map(|host| host["id"].as_u64()).collect();
    (1..=u64::from(hosts))
        .find(|id| *id != own && !known.contains(id))
        .map(|id| format!("h{own} does not know h{id} yet"))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ready_means_links_up_and_hosts_known() {
        let status = |link: &str, hosts: Value| json!({"host": 1, "ports": [{"name": "right", "link": link}], "hosts": hosts});
        let both = json!([{"id": 2}, {"id": 3}]);
        assert_eq!(missing(&status("up", both.clone()), 3), None);
        assert!(missing(&status("down", both), 3).is_some_and(|m| m.contains("right is down")));
        assert!(missing(&status("up", json!([{"id": 2}])), 3).is_some_and(|m| m.contains("h3")));
        assert_eq!(missing(&json!({"host": 1}), 1), None);
    }
}
