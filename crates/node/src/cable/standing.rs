//! How far a cable is trusted to lead anywhere.

use std::time::Duration;

/// What is known of a cable besides its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// When it may be used, if it is up and not yet used.
    pub join_at: Option<Duration>,
    /// When its neighbour was asked a question that it has not answered.
    pub asked: Option<Duration>,
    /// The neighbour does not answer: nothing is led through it.
    pub silent: bool,
}
