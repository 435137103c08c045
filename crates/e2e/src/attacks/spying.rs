//! Asks for everything that a daemon reports, about every process, and looks for facts about others.

use super::{LIFE, begun};
use anyhow::{Result, bail};
use crosslane_client::session::{Session, socket_path};
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::{BufferId, CircuitId, WaiterId};
use serde_json::Value;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Instant;

/// Circuits whose names are tried, with a token that is not theirs.
const CIRCUITS: u64 = 64;

/// `SECRET...`: prints each text that has one of them, in words or as a process of another user, and then how many texts there
/// were; again and again.
///
/// # Errors
/// There is no daemon, or it ends the session.
pub fn run(secrets: &[String]) -> Result<()> {
    let session = Session::connect(&socket_path())?;
    session.hello("spying")?;
    let own = TcpListener::bind("127.0.0.1:0")?;
    session.listen(own.as_fd())?;
    let port = own.local_addr()?.port().to_string();
    begun();
    let (start, mut texts) = (Instant::now(), 0);
    while start.elapsed() < LIFE {
        for request in [Request::Status, Request::Metrics, Request::Hosts] {
            let text = session.text(&request)?;
            if request == Request::Status && !text.contains(&port) {
                bail!("our own is missing: {text}");
            }
            look(&request, &text, secrets);
            texts += 1;
        }
        for pid in processes()? {
            let request = Request::Explain { pid };
            look(&request, &session.text(&request)?, secrets);
            texts += 1;
        }
        for circuit in (0..CIRCUITS).map(CircuitId) {
            without_token(&session, circuit)?;
        }
        println!("{texts} texts");
    }
    Ok(())
}

/// The facts about others in a text.
fn look(request: &Request, text: &str, secrets: &[String]) {
    for secret in secrets.iter().filter(|secret| text.contains(secret.as_str())) {
        println!("found {secret} in {request:?}: {text}");
    }
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let (me, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for circuit in list(&value["circuits"]).iter().filter(|circuit| circuit["pid"] != me) {
        println!("found a stream in {request:?}: {circuit}");
    }
    for session in list(&value["sessions"]).iter().filter(|session| session["uid"] != uid) {
        println!("found a session in {request:?}: {session}");
    }
    for payer in list(&value["quota"]["payers"]).iter().filter(|payer| payer["user"] != uid) {
        println!("found what another has in {request:?}: {payer}");
    }
}

/// Without the token of an end the daemon gives nothing of it.
fn without_token(session: &Session, circuit: CircuitId) -> Result<()> {
    let token = 0;
    for request in [
        Request::WantWaker { circuit, token, waiter: WaiterId(1) },
        Request::ImportBuffer { circuit, token, buffer: BufferId(1) },
        Request::Resume { circuit, token, generation: 0 },
    ] {
        let (reply, fds) = session.request(&request, &[])?;
        let nothing =
            matches!(reply, Reply::Plain { .. } | Reply::Error { .. } | Reply::Buffer { shape: None });
        let no_bell = matches!(&reply, Reply::Waker { .. }) && fds.is_empty();
        if !(nothing || no_bell) || !fds.is_empty() {
            println!("found {reply:?} for {request:?}, and {} descriptors", fds.len());
        }
    }
    Ok(())
}

fn processes() -> Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
