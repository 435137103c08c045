//! HAProxy before servers whose health it checks, moving bytes by `splice`.

use crate::{Site, file};
use anyhow::Result;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// A TCP proxy that splices both ways between its clients and those of `servers` that are healthy, in turn: one that
/// does not answer `GET /` is left out after 200 ms, and taken back as fast. Also returns the path of its statistics
/// socket.
///
/// # Errors
/// Its file cannot be written.
pub fn splicing(at: &Site<'_>, servers: &[SocketAddr]) -> Result<(Command, PathBuf)> {
    let folder = at.own_folder("haproxy")?;
    let socket = folder.join("stats");
    let mut text = format!(
        "global\n stats socket {} mode 600 level admin\n\
         defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n timeout check 1s\n\
         retries 3\n option redispatch\n option splice-request\n option splice-response\n\
         frontend front\n bind {}\n default_backend back\n\
         backend back\n balance roundrobin\n option tcp-check\n default-server check inter 100ms fall 2 rise 2\n",
        socket.display(),
        at.socket()
    );
    for (number, server) in servers.iter().enumerate() {
        text.push_str(&format!(" server s{number} {server}\n"));
    }
    let settings = file(&folder, "haproxy.conf", &text)?;
    let mut command = at.command("haproxy")?;
    command.arg("-db").arg("-f").arg(settings);
    Ok((command, socket))
}

/// Whether server number `number` of [`splicing`] is healthy, from the output of `show stat`; `None` if unknown.
pub fn is_well(statistics: &str, number: usize) -> Option<bool> {
    let begin = format!("back,s{number},");
    let line = statistics.lines().find(|line| line.starts_with(&begin))?;
    Some(line.split(',').nth(17)?.starts_with("UP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haproxy_server_health_is_parsed() {
        let line = |name: &str, status: &str| format!("back,{name}{},{status},1,\n", ",0".repeat(15));
        let text = line("s0", "UP") + &line("s1", "DOWN");
        assert_eq!(
            (is_well(&text, 0), is_well(&text, 1), is_well(&text, 2)),
            (Some(true), Some(false), None)
        );
    }
}
