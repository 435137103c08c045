//! `poll` and `ppoll` over streams, epoll sets that hold streams, and kernel descriptors, in one call.
//!
//! ```text
//!   rings ready? --yes--> answer            (the kernel is asked first if it has descriptors of its own here)
//!      | no
//!   spin: rings at each round, the kernel each 10 us
//!      | in vain
//!   one waiter for all rings --> ppoll(kernel descriptors + carrier sockets + waiter + daemon) --> look again
//! ```

mod round;

use crate::descriptors::table::{self, Kind};
use crate::socket::own_calls;
use crate::waiting::epoll;
use crate::waiting::limit::Timeout;
use core::ffi::{c_int, c_short};
use libc::{pollfd, sigset_t};
use round::{EXTRA, Round};

/// Descriptors that need no allocation.
pub const FEW: usize = 64;
/// Among the events that are asked of a descriptor, none of the kernel's: it was open when the call began.
pub const WAS_OPEN: c_short = 0x4000;

/// Whether the kernel alone cannot answer for `fd`.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    match table::look(fd).map(|entry| entry.kind) {
        Some(Kind::Stream | Kind::Unknown) => true,
        Some(Kind::Epoll) => epoll::is_shadowed(fd),
        Some(Kind::Shy) => {
            own_calls::waited_for(fd);
            false
        }
        _ => false,
    }
}

/// Fills in `revents` and returns how many are not zero. `Err` is the error number for the program.
pub fn run(fds: &mut [pollfd], timeout: Timeout, mask: *const sigset_t) -> Result<usize, c_int> {
    let nothing = pollfd { fd: -1, events: 0, revents: 0 };
    if fds.len() <= FEW {
        let mut kernel = [nothing; FEW + EXTRA];
        let len = fds.len() + EXTRA;
        Round::new(fds, &mut kernel[..len]).wait(timeout, mask)
    } else {
        let mut kernel = vec![nothing; fds.len() + EXTRA];
        Round::new(fds, &mut kernel).wait(timeout, mask)
    }
}
