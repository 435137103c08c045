//! A network namespace for this test alone.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const INSIDE: &str = "CROSSLANE_FUZZ_INSIDE";
/// What this process becomes: root of new namespaces, with loopback up, and then itself again.
const ENTER: &str = "ip link set lo up && exec \"$0\" \"$@\"";

/// Whether this process is in a network of its own; replaces it by itself in one if it is not. `false`: that is not
/// possible here.
pub(crate) fn enter() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c"]);
        command
    };
    let probe = unshare().arg("ip link set lo up && test -c /dev/net/tun").stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let error = unshare().arg(ENTER).arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
    panic!("unshare: {error}");
}
