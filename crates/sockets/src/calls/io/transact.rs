//! A request and its answer in one call: Transactions by programs in C.

use super::receive::{receive, receive_failed};
use super::write_zcopy::{self, Landed};
use super::{Outcome, send};
use crate::descriptors::table::Held;
use crate::waiting::wait;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use std::io::{IoSlice, IoSliceMut};

/// As `send` of the request and `recv` of the answer, one after the other, where nothing can be offered.
pub fn transact(fd: c_int, end: &Held, request: &[u8], answer: &mut [u8]) -> Outcome {
    let deadline = wait::deadline(end.shared().status.receive_timeout.load(Relaxed));
    let blocks = end.shared().status.nonblock.load(Relaxed) == 0;
    let landed = if blocks {
        write_zcopy::receive(fd, end, request, answer, deadline)
    } else {
        Ok(Landed::Ring(false))
    };
    match landed {
        Ok(Landed::Bytes(count)) => return Outcome::Bytes(count),
        Ok(Landed::Errno(errno)) => return Outcome::Errno(errno),
        Ok(Landed::Ring(true)) => {}
        Ok(Landed::Ring(false)) | Err(Failure::Tcp) => {
            let sent = send(fd, end, &[IoSlice::new(request)], 0);
            if !matches!(sent, Outcome::Bytes(count) if count == request.len()) {
                return sent;
            }
        }
        Err(failure) => return receive_failed(fd, end, failure),
    }
    receive(fd, end, &mut [IoSliceMut::new(answer)], 0)
}
