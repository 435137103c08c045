//! Measurements, each held against the limit of this machine and against the kernel's TCP, in one run.
//!
//! [`perf`] measures direct access from user space: what `ntb_perf` is for the kernel. [`figure`] is the one result
//! that everything here gives, [`export`] its forms.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod cli;
pub mod export;
pub mod figure;
pub mod perf;
