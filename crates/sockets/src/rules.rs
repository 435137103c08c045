//! Which connections and listeners of this program are to be streams, and how those move their data.

use crate::process::Welcome;
use core::ffi::{CStr, c_char};
use core::net::SocketAddr;
use crosslane_stream::{Side, Transfer};
use crosslane_wire::local::{Role, Use};
use crosslane_wire::rule;
use std::sync::OnceLock;

unsafe extern "C" {
    /// What glibc took from `argv[0]` at the start, without folders.
    static program_invocation_short_name: *const c_char;
}

/// This program's name, as rules and people know it: the one that it was started by, not that of a file which several
/// names lead to (Debian's `redis-server` is a link to `redis-check-rdb`). First called at load, before the program
/// can write a title over it.
pub fn program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| invoked().or_else(executable).unwrap_or_else(|| "?".to_owned()))
}

fn invoked() -> Option<String> {
    // SAFETY: glibc sets the pointer before any library's start is called, to a C string of the program's arguments.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return None;
    }
    // SAFETY: as above; it is copied before `main` can change it.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    // A login shell has a dash in front, a program that names itself a colon behind (`sshd: [accepted]`).
    let name = name.trim_start_matches('-').split([':', ' ']).next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

fn executable() -> Option<String> {
    Some(std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned())
}

/// What rules choose for a stream whose listener is at `server`: how to send, and whether the daemon's engine copies.
pub fn chosen(welcome: &Welcome, side: Side, server: SocketAddr) -> (Option<Transfer>, Option<bool>) {
    let role = if side == Side::Client { Role::Client } else { Role::Server };
    let transfer = rule::first(&welcome.rules, role, program(), server, rule::transfer);
    let offload = rule::first(&welcome.rules, role, program(), server, rule::offload);
    (transfer.and_then(|(number, _)| Transfer::from_number(number.into())), offload.map(|(on, _)| on))
}

/// What is decided for a connection to `remote`.
pub fn for_client(welcome: &Welcome, remote: SocketAddr) -> Use {
    rule::decide(&welcome.rules, Role::Client, program(), remote)
}

/// Whether any connection or listener of this program may be a stream.
pub fn may_have_streams(welcome: &Welcome) -> bool {
    rule::may_have_streams(&welcome.rules, program())
}

/// Whether a listener at `local` may get streams; for which connections, the daemon decides.
pub fn for_listener(welcome: &Welcome, local: SocketAddr) -> bool {
    if local.ip().to_canonical().is_unspecified() {
        return rule::may_serve(&welcome.rules, program(), local.port());
    }
    rule::decide(&welcome.rules, Role::Server, program(), local) != Use::Tcp
}
