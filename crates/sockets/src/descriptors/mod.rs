//! What each descriptor of this process is to us.

pub mod choice;
#[allow(unsafe_code, reason = "takes descriptors' numbers for what is owned")]
pub mod internal_fds;
#[allow(unsafe_code, reason = "an end lives as long as its users, which are counted by hand")]
pub mod table;
