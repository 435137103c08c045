//! A descriptor of which a stranger decides how long its close takes.

use crate::{Owner, aside};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that a stranger sent, or a socket into whose queue strangers put descriptors. Dropping it never blocks: it
/// is closed [`aside`].
#[derive(Debug)]
pub struct Foreign {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    owner: Owner,
}

impl Foreign {
    /// A descriptor that `owner` has a say in.
    pub fn new(fd: OwnedFd, owner: Owner) -> Self {
        Self { fd: Some(fd), owner }
    }

    /// Who sent it.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Another descriptor of the same file.
    ///
    /// # Errors
    /// This process may open no more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.as_fd().try_clone_to_owned()?, self.owner))
    }

    /// The descriptor, to be closed by whoever drops it: for what is known to be harmless.
    pub fn into_owned(mut self) -> OwnedFd {
        self.fd.take().unwrap_or_else(|| unreachable!("only drop takes it"))
    }

    /// Closes it now, which may take for ever: for threads that work aside.
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
