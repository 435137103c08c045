//! What runs on a host: the daemon `crosslaned`.
//!
//! One thread, one epoll ([`engine`]), over one struct ([`host`]) that has the owners of everything do their part: [`cables`], which are set up
//! over the scratchpads ([`cable`]) and carry messages to neighbours ([`channel`], [`neighbour`]; [`signing`]); programs' sessions ([`sessions`],
//! [`session`], [`request`]), the [`ends`] of their circuits with their segments ([`circuit`], [`dial`], [`answer`], [`end_resources`],
//! [`holders`], [`inside`]) and their wake events ([`waiters`], [`waker`]); circuits in [`transit`] and their wakes ([`pump`],
//! [`transit_wakes`]); IP ([`tun`], [`ip`]); the engine that copies for programs ([`offload`]); descriptors of streams ([`shelves`]);
//! what each user and neighbour may have ([`quota`]); what the daemon reports about itself (a [`snapshot`], of which another thread
//! makes [`texts`]: [`status`], [`metrics`]). An owner does not know the host: it is given what it needs, and returns what is to be
//! done. What becomes of a circuit is decided in `crosslane_policy` and `crosslane_fabric`, which are pure.

pub mod accept;
pub mod address;
pub mod answer;
pub mod buffer;
pub mod cable;
pub mod cables;
pub mod channel;
pub mod circuit;
pub mod config;
pub mod control;
pub mod counter;
pub mod daemon;
pub mod dial;
pub mod echo;
pub mod end_resources;
pub mod ends;
pub mod engine;
mod eventfd;
pub mod given;
pub mod holders;
pub mod host;
pub mod inbox;
pub mod inside;
pub mod ip;
pub mod keys;
pub mod linger;
pub mod listener;
pub mod log;
pub mod lost;
pub mod metrics;
pub mod neighbour;
pub mod netlink;
pub mod netns;
pub mod offload;
mod pace;
pub mod port;
pub mod proof;
pub mod pump;
pub mod quota;
pub mod random;
pub mod reload;
pub mod request;
pub mod resume;
mod ring_size;
pub mod rule;
pub mod seldom;
pub mod session;
pub mod session_id;
pub mod sessions;
pub mod shelves;
pub mod sight;
pub mod signal;
pub mod signing;
pub mod snapshot;
pub mod socket_table;
pub mod source;
pub mod status;
pub mod status_page;
pub mod texts;
pub mod transit;
pub mod transit_wakes;
pub mod tun;
mod twin;
pub mod waiters;
pub mod waiting;
pub mod waker;
pub mod window;

pub use daemon::{Arguments, run};
