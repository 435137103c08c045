//! Descriptors whose close another process can delay.

use crate::{Owner, aside};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that another process sent, or a socket into whose queue other processes put descriptors. Dropping it
/// never blocks: another thread closes it ([`aside`]).
#[derive(Debug)]
pub struct Foreign {
    /// `Some` until it is dropped.
    fd: Option<OwnedFd>,
    owner: Owner,
}

impl Foreign {
    /// A descriptor on which `owner` has influence.
    pub fn new(fd: OwnedFd, owner: Owner) -> Self {
        Self { fd: Some(fd), owner }
    }

    /// The sender.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The descriptor, which the caller then closes itself: for descriptors that are known to be harmless.
    pub fn into_owned(mut self) -> OwnedFd {
        self.fd.take().unwrap_or_else(|| unreachable!("only drop takes it"))
    }

    /// Closes it now, which may block for ever: only for threads of [`aside`].
    pub fn close(self) {
        drop(self.into_owned());
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().unwrap_or_else(|| unreachable!("only drop takes it")).as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            aside::run(self.owner, move || drop(fd));
        }
    }
}
