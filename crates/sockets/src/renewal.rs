//! What becomes of streams and listeners when the session with the daemon goes on by another connection, or is lost.

use crate::daemon::{offload_session, process, waiters};
use crate::descriptors::table;
use crate::kernel::thread;
use crate::socket::deferral;

/// At load: the session tells.
pub fn start() {
    process::start(process::Notices { resumed, lost: deferral::give_back });
}

/// The far side's sleepers are woken once more, since the daemon may not have heard that they were to be, and the daemon's engine
/// is asked for anew.
fn resumed() {
    offload_session::renew();
    for end in table::streams() {
        for waiter in end.make_good(thread::tid()) {
            waiters::wake(&end, waiter);
        }
    }
}
