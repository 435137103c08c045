//! Which connections and listeners of this program are to be streams.

use crate::process::Welcome;
use core::net::SocketAddr;
use crosslane_wire::local::{Role, Use};
use crosslane_wire::rule;
use std::sync::OnceLock;

/// This program's name, as rules and people know it.
pub fn program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_default();
        path.file_name().map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
    })
}

/// What is decided for a connection to `remote`.
pub fn for_client(welcome: &Welcome, remote: SocketAddr) -> Use {
    rule::decide(&welcome.rules, Role::Client, program(), remote)
}

/// Whether a listener at `local` may get streams; for which connections, the daemon decides.
pub fn for_listener(welcome: &Welcome, local: SocketAddr) -> bool {
    if local.ip().to_canonical().is_unspecified() {
        return rule::may_serve(&welcome.rules, program(), local.port());
    }
    rule::decide(&welcome.rules, Role::Server, program(), local) != Use::Tcp
}
