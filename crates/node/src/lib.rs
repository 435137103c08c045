//! What runs on a host: the daemon `crosslaned`.
//!
//! One thread, one epoll ([`engine`]), over one struct that holds everything ([`host`]). It sets cables up over the
//! scratchpads ([`cable`]), speaks with its neighbours through message channels ([`channel`], [`neighbour`]), gives
//! programs their segments of circuits ([`request`], [`circuit`], [`dial`], [`accept`], [`answer`], [`proving`], [`end_resources`], [`holders`]) and wake events ([`bell`]), carries IP ([`tun`],
//! [`ip`]), bounds what each user and neighbour may have ([`quota`]), and tells about itself (a [`snapshot`], of which another thread makes [`texts`]: [`status`], [`metrics`]). Who is where and what becomes of a circuit is decided
//! in `crosslane_fabric`, which is pure.

pub mod accept;
pub mod address;
pub mod answer;
pub mod bell;
pub mod buffer;
pub mod cable;
pub mod channel;
pub mod circuit;
pub mod config;
pub mod control;
pub mod counter;
pub mod daemon;
pub mod dial;
pub mod doubt;
pub mod echo;
pub mod end_resources;
pub mod engine;
mod eventfd;
pub mod given;
pub mod holders;
pub mod host;
pub mod inbox;
pub mod ip;
pub mod keys;
pub mod life;
pub mod linger;
pub mod listener;
pub mod log;
pub mod lost;
pub mod metrics;
pub mod neighbour;
pub mod netlink;
pub mod netns;
pub mod offload;
pub mod port;
pub mod proof;
pub mod proving;
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
pub mod sight;
pub mod signal;
pub mod snapshot;
pub mod socket_table;
pub mod source;
pub mod status;
pub mod texts;
pub mod transit;
pub mod tun;
pub mod waiting;
pub mod ways;
pub mod window;

pub use daemon::{Arguments, run};
