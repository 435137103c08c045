//! The terminal of this process, while a program in a machine has it.

use super::{Size, Terminal};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};
use std::io;

/// The terminal that a program is to have: none if standard input or output is something else, or where this process is in the
/// background, and may neither read it nor change its modes.
pub(super) fn own() -> Option<Terminal> {
    let (input, output) = (io::stdin(), io::stdout());
    let ours = isatty(&output) && tcgetpgrp(&input).is_ok_and(|group| group == getpgrp());
    let size = Size::of(&input).ok().filter(|_| ours)?;
    Some(Terminal { size, error: isatty(io::stderr()) })
}

/// Raw mode of the terminal: all that is typed goes to the program, which has a terminal that does the rest. Ends when it is dropped.
pub(super) struct Raw(Termios);

impl Raw {
    pub(super) fn enter() -> io::Result<Self> {
        let modes = tcgetattr(io::stdin())?;
        let mut raw = modes.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self(modes))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no modes.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}
