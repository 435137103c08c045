//! What each descriptor of this process is to us.

pub mod choice;
pub mod internal_fds;
pub mod table;
