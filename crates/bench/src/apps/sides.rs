//! Where a client and its servers run, and for how long.

use crosslane_apps::Site;

/// Where the client runs and where the servers do, both with the servers' address, and the interface between them.
#[derive(Debug)]
pub(super) struct Sides<'a> {
    pub(super) client: Site<'a>,
    pub(super) server: Site<'a>,
    pub(super) interface: &'a str,
}

/// Whole seconds, at least one: what some clients take.
pub(super) fn whole(seconds: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within what the arguments take"
    )]
    let seconds = seconds.ceil() as u32;
    seconds.max(1)
}
