//! Measurements, each held against the limit of this machine and against the kernel's TCP, in one run.
//!
//! [`quick`] has all that has a bar: unmodified programs ([`program`]) at several places ([`place`]), by turns ([`compare`]).
//! [`perf`] measures direct access from user space: what `ntb_perf` is for the kernel; [`scratchpad`] the ring study's own
//! protocol over the same ports, as a baseline; [`stack`] counts cycles by function; [`apps`] compares programs of others; [`kernel`]
//! has the kernel's own clients of an NTB bridge beside ours; [`direct`] measures on timed cables; [`steady`] looks for seconds that are much slower than others. Each is an experiment of the one [`frame`]. [`figure`] is the one result that everything here gives,
//! [`export`] its forms.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod all;
pub mod apps;
pub mod calm;
pub mod cli;
pub mod clock;
pub mod compare;
pub mod demo;
pub mod direct;
pub mod export;
pub mod figure;
pub mod frame;
pub mod kernel;
pub mod media;
pub mod output;
pub mod perf;
pub mod place;
pub mod program;
mod progress;
pub mod pumped;
pub mod quick;
pub mod ring;
pub mod scale;
pub mod scratchpad;
pub mod sdp;
pub mod speaker;
pub mod stack;
pub mod steady;
pub mod transit;
mod versions;
