//! The display: one thread that waits for keys, signals, answers and the time of the next look, and draws when something has changed.

use super::columns::Tab;
use super::daemon::{self, Look, Probes};
use super::key::Keys;
use super::signals::{Signal, Signals};
use super::state::State;
use super::terminal::Screen;
use super::theme::Theme;
use super::ui::{Act, Ui};
use super::view;
use super::worker::{Ended, Worker};
use crate::args::TopArgs;
use crate::status;
use anyhow::{Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::stdin;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long bytes of a key may be apart; after that Escape is a key by itself.
const KEY_GAP: Duration = Duration::from_millis(50);
/// Time between rounds of probes.
const ROUND: Duration = Duration::from_secs(1);

/// Why the display ends.
enum End {
    /// As it was asked to.
    Asked,
    /// The terminal is gone.
    TerminalGone,
}

/// What goes on: the display goes on, or ends.
type Step = Result<Option<End>>;

struct Display {
    socket: PathBuf,
    state: State,
    ui: Ui,
    theme: Theme,
    screen: Screen,
    signals: Signals,
    keys: Keys,
    looks: Worker<(), Look>,
    probes: Option<Probes>,
    /// Closed when the daemon goes away.
    daemon: Option<OwnedFd>,
    begin: Instant,
    /// When the last look was taken, or asked for.
    looked: Instant,
    /// Whether a look is under way.
    looking: bool,
    /// Whether the daemon has closed the connection: the next look finds out why, also while nothing is refreshed.
    hung_up: bool,
    /// When the last round of probes began.
    probed: Option<Instant>,
    /// How many more looks are shown.
    left: Option<u32>,
    stale: bool,
}

/// Shows what goes on until a key or a signal ends it.
///
/// # Errors
/// No daemon answers, or it went away; the terminal is given back before.
pub(crate) fn run(socket: &Path, delay: Duration, args: &TopArgs) -> Result<()> {
    let session = status::session(socket)?;
    let first = status::ask(&session)?;
    let now = Instant::now();
    let mut display = Display {
        socket: socket.to_owned(),
        state: State::new(first),
        ui: Ui::new(delay),
        theme: Theme::of_environment(),
        daemon: Some(session.socket().try_clone_to_owned()?),
        looks: daemon::looks(socket, session)?,
        probes: (!args.no_probes).then(|| Probes::start(socket)).transpose()?,
        signals: Signals::watch()?,
        screen: Screen::take()?,
        keys: Keys::default(),
        begin: now,
        looked: now,
        looking: false,
        hung_up: false,
        probed: None,
        left: args.refreshes,
        stale: true,
    };
    display.run()
}

impl Display {
    fn run(&mut self) -> Result<()> {
        loop {
            self.ask().map_err(ended)?;
            if std::mem::take(&mut self.stale) && self.draw().is_err() {
                return Ok(());
            }
            if self.left == Some(0) {
                return Ok(());
            }
            match self.wait()? {
                Some(End::Asked | End::TerminalGone) => return Ok(()),
                None => {}
            }
        }
    }

    /// Asks for what is due.
    fn ask(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        if !self.looking && self.next_look().is_some_and(|due| due <= now) {
            self.looks.ask(())?;
            (self.looking, self.looked, self.hung_up) = (true, now, false);
        }
        if self.next_round().is_some_and(|due| due <= now)
            && let Some(probes) = &mut self.probes
        {
            probes.begin(&mut self.state)?;
            self.probed = Some(now);
        }
        Ok(())
    }

    fn next_look(&self) -> Option<Instant> {
        match self.hung_up {
            true => (!self.looking).then_some(self.looked),
            false => (!self.looking && !self.ui.paused).then(|| self.looked + self.ui.delay),
        }
    }

    fn next_round(&self) -> Option<Instant> {
        let probes = self.probes.as_ref()?;
        let is_due = !probes.is_busy() && !self.ui.paused;
        is_due.then(|| self.probed.map_or(self.begin, |then| then + ROUND))
    }

    fn draw(&mut self) -> Result<()> {
        let page = view::layout(self.screen.area(), &self.state, self.theme).page();
        let rows = self.ui.rows(&self.state);
        self.ui.settle(&rows, page);
        self.screen.draw(&self.state, &self.ui, self.theme)
    }

    /// Waits until something has come, and serves it.
    fn wait(&mut self) -> Step {
        let gap = self.keys.is_waiting().then(|| Instant::now() + KEY_GAP);
        let until = [self.next_look(), self.next_round(), gap].into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let input = stdin();
        let none = PollFlags::empty();
        let mut fds = vec![
            PollFd::new(&input, PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.event_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.looks.event_fd(), PollFlags::IN),
        ];
        // Answers to requests are the threads' to read.
        fds.extend(self.daemon.iter().map(|daemon| PollFd::new(daemon, none)));
        fds.extend(self.probes.iter().map(|it| PollFd::from_borrowed_fd(it.event_fd(), PollFlags::IN)));
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let came: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let gave_up = ready == 0 && gap.is_some_and(|gap| gap <= Instant::now());
        self.serve(&came, gave_up)
    }

    fn serve(&mut self, came: &[PollFlags], gave_up: bool) -> Step {
        if !came[1].is_empty()
            && let Some(end) = self.signal()?
        {
            return Ok(Some(end));
        }
        if !came[2].is_empty() {
            self.looked_at()?;
        } else if self.daemon.is_some() && came[3].intersects(PollFlags::HUP | PollFlags::ERR) {
            (self.daemon, self.hung_up) = (None, true);
        }
        if let Some(probes) = &mut self.probes {
            let done = probes.collect(&mut self.state.latencies).map_err(ended)?;
            self.stale |= done && self.ui.tab == Tab::Latency;
        }
        if came[0].is_empty() {
            return if gave_up { self.keys_of(None) } else { Ok(None) };
        }
        let mut bytes = [0; 256];
        match rustix::io::read(stdin(), &mut bytes) {
            Ok(0) | Err(Errno::IO) => Ok(Some(End::TerminalGone)),
            Ok(count) => self.keys_of(Some(&bytes[..count])),
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Serves the keys in what the terminal sent; `None`: nothing followed for a while.
    fn keys_of(&mut self, bytes: Option<&[u8]>) -> Step {
        let keys = match bytes {
            Some(bytes) => self.keys.feed(bytes),
            None => self.keys.give_up(),
        };
        for key in keys {
            self.stale = true;
            let page = view::layout(self.screen.area(), &self.state, self.theme).page();
            let rows = self.ui.rows(&self.state);
            match self.ui.key(key, &rows, page) {
                Act::Nothing => {}
                Act::Quit => return Ok(Some(End::Asked)),
                Act::Redraw => self.screen.renew()?,
                Act::Clear => self.state.latencies.clear(),
            }
        }
        Ok(None)
    }

    fn signal(&mut self) -> Step {
        for signal in self.signals.take() {
            self.stale = true;
            let outcome = match signal {
                Signal::Stop => return Ok(Some(End::Asked)),
                Signal::Suspend => self.screen.suspend(),
                Signal::Resume => self.screen.resume(),
                Signal::Resize => self.screen.renew(),
            };
            if outcome.is_err() {
                return Ok(Some(End::TerminalGone));
            }
        }
        Ok(None)
    }

    fn looked_at(&mut self) -> Result<()> {
        for look in self.looks.answers().map_err(ended)? {
            match look {
                Look::Connected(daemon) => self.daemon = Some(daemon),
                Look::Status(status, at) => {
                    (self.looking, self.stale, self.ui.trouble) = (false, true, None);
                    self.state.look(*status, at.saturating_duration_since(self.begin), SystemTime::now());
                    self.left = self.left.map(|left| left.saturating_sub(1));
                }
                Look::Late => {
                    (self.looking, self.stale, self.daemon) = (false, true, None);
                    let old = self.begin.elapsed().saturating_sub(self.state.at());
                    self.ui.trouble = Some(format!("NO ANSWER FOR {} s", old.as_secs()));
                }
                Look::Failed(error) => return Err(daemon::gone(&self.socket, &error)),
            }
        }
        Ok(())
    }
}

fn ended(_: Ended) -> anyhow::Error {
    anyhow!("a thread that asks the daemon has failed, see above")
}
