//! What happens to streams and listeners when the session with the daemon is resumed on another connection, or is lost.

use crate::daemon::{offload_session, process, waiters};
use crate::descriptors::table;
use crate::kernel::thread;
use crate::socket::deferral;

/// At load: registers for the session's events.
pub fn start() {
    process::start(process::Notices { resumed, lost: deferral::give_back });
}

/// Wakes the far side's sleepers once more, since the daemon may have missed a request for that, and asks for the
/// daemon's engine again.
fn resumed() {
    offload_session::renew();
    for end in table::streams() {
        for waiter in end.make_good(thread::tid()) {
            waiters::wake(&end, waiter);
        }
    }
}
