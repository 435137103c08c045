//! Waiting: for one stream, or, with `poll` and `epoll`, for many and the kernel's descriptors too.

pub mod epoll;
pub mod fd_limit;
pub mod limit;
pub mod poll;
pub mod wait;
