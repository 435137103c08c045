//! Which connections and listeners of this program are to be streams, and how those move their data.

use crate::kernel::program;
use core::net::SocketAddr;
use crosslane_stream::{Side, Transfer};
use crosslane_wire::local::{Role, Rule, Use};
use crosslane_wire::rule;

/// What rules choose for a stream whose listener is at `server`: how to send, and whether the daemon's engine copies.
pub fn chosen(rules: &[Rule], side: Side, server: SocketAddr) -> (Option<Transfer>, Option<bool>) {
    let role = if side == Side::Client { Role::Client } else { Role::Server };
    let transfer = rule::first(rules, role, program::name(), server, rule::transfer);
    let offload = rule::first(rules, role, program::name(), server, rule::offload);
    (transfer.and_then(|(number, _)| Transfer::from_number(number.into())), offload.map(|(on, _)| on))
}

/// What is decided for a connection to `remote`.
pub fn for_client(rules: &[Rule], remote: SocketAddr) -> Use {
    rule::decide(rules, Role::Client, program::name(), remote)
}

/// Whether a connection to `remote` is to use two circuits at once.
pub fn stripes(rules: &[Rule], remote: SocketAddr) -> bool {
    rule::first(rules, Role::Client, program::name(), remote, rule::stripe).is_some_and(|(on, _)| on)
}

/// Whether any connection or listener of this program may be a stream.
pub fn may_have_streams(rules: &[Rule]) -> bool {
    rule::may_have_streams(rules, program::name())
}

/// Whether a listener at `local` may get streams; for which connections, the daemon decides.
pub fn for_listener(rules: &[Rule], local: SocketAddr) -> bool {
    if local.ip().to_canonical().is_unspecified() {
        return rule::may_serve(rules, program::name(), local.port());
    }
    rule::decide(rules, Role::Server, program::name(), local) != Use::Tcp
}
