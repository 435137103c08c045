//! `crosslane key`.

use anyhow::Result;
use crosslane_node::keys::{generate, public_text, read_private};
use std::io::{Write, stdout};
use std::path::Path;

/// Prints the public key of the private one in `file`, which is made first if `new` is set.
///
/// # Errors
/// The file is there already, or is no private key that is kept well.
pub(crate) fn key(file: &Path, host: Option<&str>, new: bool) -> Result<()> {
    let private = if new { generate(file)? } else { read_private(file)? };
    let public = public_text(&private.verifying_key());
    match host {
        Some(host) => writeln!(stdout(), "{host} {public}")?,
        None => writeln!(stdout(), "{public}")?,
    }
    Ok(())
}
