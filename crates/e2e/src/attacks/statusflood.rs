//! Many sessions that ask for all texts without end: everything, one's own program, others', the metrics, the hosts.

use super::{LIFE, begun, greeted};
use anyhow::Result;
use crosslane_client::session::Session;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Request;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::{Duration, Instant};

/// Sessions.
const ASKERS: usize = 400;
/// Between two questions of each.
const PAUSE: Duration = Duration::from_millis(1);

/// Asks until it is ended.
///
/// # Errors
/// There is no daemon.
pub fn run(_words: &[String]) -> Result<()> {
    let sessions = (0..ASKERS).map(|_| greeted("statusflood")).collect::<Result<Vec<_>>>()?;
    begun();
    let (end, mut round) = (Instant::now() + LIFE, 0);
    while Instant::now() < end {
        sessions.iter().zip(round..).for_each(|(session, number)| ask(session, number));
        round += 1;
        // Faster than the daemon answers; more would only take the processor from others, as any program may.
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Another text, and what has come of earlier ones.
fn ask(session: &Session, number: u32) {
    let request = match number % 5 {
        0 => Request::Status,
        // A new process each time: no two of these texts are the same.
        1 => Request::Explain { pid: number },
        2 => Request::Explain { pid: std::process::id() },
        3 => Request::Metrics,
        _ => Request::Hosts,
    };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = codec::encode(&request).map(|request| send(session.socket(), &request, flags));
    let mut answer = [0; MAX_MESSAGE];
    while recv(session.socket(), &mut answer[..], RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0) {}
}
