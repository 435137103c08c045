//! The terminal while `top` has it: its modes, and the screen beside the usual one. It is given back in every case: when this is dropped, while
//! the process is stopped, and by a panic.

use super::state::State;
use super::theme::Theme;
use super::ui::Ui;
use super::view;
use anyhow::{Context, Result};
use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::style::ResetColor;
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use signal_hook::consts::SIGTSTP;
use std::fs;
use std::io::{Stdin, Stdout, stdin, stdout};
use std::panic;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// A size for terminals that say none.
const USUAL: (u16, u16) = (80, 24);

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal of standard input and output.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    input: Stdin,
    /// The modes that it had.
    modes: Termios,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard input or output is none.
    pub(crate) fn take() -> Result<Self> {
        let input = stdin();
        let modes = tcgetattr(&input).context("standard input is no terminal: use --plain")?;
        let options = TerminalOptions { viewport: Viewport::Fixed(area()) };
        let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), options)?;
        restore_on_panic(modes.clone());
        let mut screen = Self { terminal, input, modes };
        screen.begin()?;
        Ok(screen)
    }

    fn begin(&mut self) -> Result<()> {
        TAKEN.store(true, SeqCst);
        let mut modes = self.modes.clone();
        // Ctrl-C and Ctrl-Z stay signals: they are for all processes of the job.
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        modes
            .input_modes
            .remove(InputModes::IXON | InputModes::ICRNL | InputModes::INLCR | InputModes::IGNCR);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.input, OptionalActions::Now, &modes)?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(())
    }

    /// Draws.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn draw(&mut self, state: &State, ui: &Ui, theme: Theme) -> Result<()> {
        self.terminal.draw(|frame| view::draw(frame.buffer_mut(), state, ui, theme))?;
        Ok(())
    }

    /// The whole screen.
    pub(crate) fn area(&mut self) -> Rect {
        self.terminal.get_frame().area()
    }

    /// Draws everything anew the next time, in the size that the terminal has now.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn renew(&mut self) -> Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        // Not `clear`, which asks the terminal where its cursor is.
        Ok(self.terminal.resize(area())?)
    }

    /// Gives the terminal back, stops this process until somebody lets it go on, and takes the terminal again.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn suspend(&mut self) -> Result<()> {
        if is_alone() {
            return Ok(());
        }
        give_back(&self.modes);
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again after this process was stopped, by whatever signal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.begin()?;
        self.renew()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.modes);
    }
}

/// Whether no shell is there that would let this process go on: then the kernel does not stop it by SIGTSTP either.
fn is_alone() -> bool {
    let Some((parent, session)) = parent_and_session("self") else { return true };
    parent_and_session(&parent).is_none_or(|(_, theirs)| theirs != session)
}

/// The parent and the session of a process, of `/proc/PID/stat`. A session is 0 where its leader is outside of this PID namespace: a
/// container's first process has such a one, and `rustix::process::getsid` panics then.
fn parent_and_session(pid: &str) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(1).map(str::to_owned);
    let parent = fields.next()?;
    Some((parent, fields.nth(1)?))
}

fn area() -> Rect {
    let size = tcgetwinsize(stdout()).map(|size| (size.ws_col, size.ws_row));
    let (width, height) = size.ok().filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(USUAL);
    Rect::new(0, 0, width, height)
}

fn give_back(modes: &Termios) {
    if TAKEN.swap(false, SeqCst) {
        // A terminal that is gone has nothing to be given back.
        let _ = execute!(stdout(), ResetColor, Show, LeaveAlternateScreen);
        let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
    }
}

fn restore_on_panic(modes: Termios) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        give_back(&modes);
        before(info);
    }));
}
