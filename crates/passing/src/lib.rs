//! Descriptors that other processes send over Unix sockets: how they are received, and where they are closed.
//!
//! A descriptor of another process (a *stranger*) can block every process that uses it. `close` sleeps for the linger time
//! of a TCP socket if it drops the last reference, and for as long as the file's server likes if it is a FUSE file; `fstat`
//! of such a file does too; even `getsockname` waits for the socket's lock, which a thread of the stranger may hold in a
//! `send` that never ends. And a descriptor that the kernel cannot deliver (no room in the buffer, no free number), or that
//! lies unread in the queue of a socket that this process closes, is destroyed by *this process's* system call.
//!
//! So this crate is the one place that receives descriptors ([`receive`]), with room for all that a packet can have. It
//! returns [`Foreign`], which is never closed by the thread that drops it, but [`aside`]: by threads of which each
//! stranger ([`Owner`]) can occupy two. A socket to which strangers send is kept as [`Foreign`] too.
//!
//! `fcntl` (seals, status flags) and `getsockopt` of level `SOL_SOCKET` never block. All other calls on a stranger's
//! descriptor are made aside.

pub mod aside;
mod foreign;
mod owner;
mod packet;

pub use foreign::Foreign;
pub use owner::Owner;
pub use packet::{Message, SCM_MAX_FD, has_descriptors, receive, send};
