//! What programs let the far ends of their circuits map.

use crate::quota::Charge;
use crate::session_id::SessionId;
use crosslane_passing::Foreign;
use crosslane_wire::Reach;

/// A buffer that a program opened to others.
#[derive(Debug)]
pub struct Opened {
    /// Its memory.
    pub memory: Foreign,
    /// Its bytes.
    pub len: u64,
    /// What may be done with it.
    pub reach: Reach,
    /// Whose it is.
    pub owner: SessionId,
    /// What its user pays for it.
    pub charge: Charge,
}
