//! Whether the daemon serves the network namespace that this program is in.
//!
//! Launchers copy their environment to programs that they start elsewhere, and with it `CROSSLANE_SOCKET`: on one machine that
//! names a daemon that is there, but has its addresses in another namespace. Then the daemon of this one is looked for beside it,
//! and if there is none, one line says so.

use crate::kernel::{program, said, sockopt};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crosslane_client::session::{self, DEFAULT_SOCKET, SOCKET_VARIABLE, Session};
use crosslane_wire::local::Reply;
use rustix::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Sockets beside the daemon's that are tried.
const TRIED: usize = 64;

/// The daemon of this namespace, where `CROSSLANE_SOCKET` names another's.
static OURS: OnceLock<PathBuf> = OnceLock::new();
/// The socket that the environment names, or the usual one.
static SOCKET_PATH: OnceLock<PathBuf> = OnceLock::new();
static SAID: AtomicBool = AtomicBool::new(false);

/// At load: some programs (nginx) clear their environment.
pub fn start() {
    let _ = SOCKET_PATH.set(socket_path());
}

/// Where the daemon is that this program talks to.
pub fn daemon_path() -> &'static Path {
    ours().unwrap_or_else(|| SOCKET_PATH.get_or_init(socket_path))
}

fn socket_path() -> PathBuf {
    if program::is_privileged() { PathBuf::from(DEFAULT_SOCKET) } else { session::socket_path() }
}

/// Whether a daemon that has its addresses in `namespace` (0: not known) has them elsewhere than where `session` was made.
pub fn is_elsewhere(session: &Session, namespace: u64) -> bool {
    namespace != 0 && sockopt::namespace(session.socket().as_raw_fd()).is_some_and(|own| own != namespace)
}

/// The daemon that was found for this namespace.
pub fn ours() -> Option<&'static Path> {
    OURS.get().map(PathBuf::as_path)
}

/// Looks for the daemon of this namespace in the folder of `named`, which `session` is with, among the sockets whose names
/// differ from its by numbers only, and at the usual place. It must run as the same user: nobody else is trusted by having a socket there. Whether there is one.
#[cold]
pub fn find_ours(named: &Path, session: &Session) -> bool {
    if ours().is_some() || program::is_privileged() {
        return false;
    }
    let user = user_of(session);
    let folder = named.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let beside = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    // Cables have sockets in such folders, too.
    let sockets = beside.filter(|path| kind(path) == kind(named));
    let mut places = sockets.take(TRIED).chain([PathBuf::from(DEFAULT_SOCKET)]).filter(|path| path != named);
    places.find(|path| serves_us(path, user)).is_some_and(|path| OURS.set(path).is_ok())
}

/// A socket's name without the numbers of hosts.
fn kind(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.replace(|letter: char| letter.is_ascii_digit(), ""))
}

/// Whether a daemon of this user listens there that has its addresses in our namespace.
fn serves_us(path: &Path, user: Option<u32>) -> bool {
    let Ok(session) = Session::connect(path) else { return false };
    if user.is_none() || user_of(&session) != user {
        return false;
    }
    match session.hello(crate::kernel::program::name()) {
        Ok(Reply::Welcome { namespace, .. }) => namespace != 0 && !is_elsewhere(&session, namespace),
        _ => false,
    }
}

fn user_of(session: &Session) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(session.socket()).ok().map(|peer| peer.uid.as_raw())
}

/// One line, once in a process.
#[cold]
pub fn say() {
    if !SAID.swap(true, Relaxed) {
        let path = daemon_path().display();
        said::say(&format!(
            "its daemon ({path}, by {SOCKET_VARIABLE} or by default) serves another network namespace; using TCP to other hosts"
        ));
    }
}
