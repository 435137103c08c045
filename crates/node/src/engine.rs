//! The engine: one thread, one epoll, everything in turns.
//!
//! ```text
//!   +-> wait for events --> ports, control socket, sessions, TUN, signals
//!   |                            |
//!   |                            v
//!   |                       neighbours' messages, IP packets, deadlines; answers and wakes go out
//!   |                            |
//!   |      something moved       v
//!   +---------------------- spin for a while (as long as that has paid lately) --+
//!   |                            | nothing                                       | arrived
//!   +-- sleep <-- look again <-- arm all channels                                +--> next turn
//! ```

mod spin;

use crate::control::ControlSocket;
use crate::host::Host;
use crate::session::SessionId;
use crate::signal::{Signal, Signals};
use crosslane_wire::PortId;
use crosslane_wire::control::Control;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use spin::Spin;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CONTROL: u64 = 1;
const SIGNALS: u64 = 2;
const PUMPS: u64 = 4;
const INBOX: u64 = 5;
const INSIDE: u64 = 6;
/// Tokens of the interface's queues, in order.
const QUEUES: u64 = 0x80;
const PORTS: u64 = 0x100;
const SESSIONS: u64 = 1 << 32;
/// How long the daemon accepts no session after it ran out of descriptors.
const FULL: Duration = Duration::from_millis(500);
/// Most sessions that are accepted in one turn; the others stay in the backlog.
const ACCEPTS: usize = 32;
/// Polls of the channels and the interface between two `epoll_wait` calls while the engine spins.
const LOOKS: u32 = 4;
/// Factor by which the spin for the answer to a packet may be longer: two hosts must wake up before it comes.
const PACKET_SPIN_FACTOR: u32 = 4;
/// Events of epoll that are handled before packets are polled again.
const BREATH: usize = 8;
/// Longest time that a busy engine runs without `epoll_wait`.
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// The daemon's packet thread.
pub struct Engine {
    host: Host,
    epoll: OwnedFd,
    control: ControlSocket,
    signals: Signals,
    /// The configuration file.
    config: PathBuf,
    /// Sessions in the epoll set, with the events that are watched.
    watched: HashMap<SessionId, epoll::EventFlags>,
    spin: Spin,
    /// The spin for answers to packets, which come from farther away.
    patience: Spin,
    last_session: u64,
    accept_at: Option<Duration>,
    /// When `epoll_wait` was last called.
    looked: Duration,
    /// The interface may have more packets.
    busy: bool,
    stopping: bool,
}

impl Engine {
    /// Makes the epoll set of all descriptors.
    pub fn new(host: Host, control: ControlSocket, signals: Signals, config: PathBuf) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, token| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        };
        add(control.socket(), CONTROL)?;
        add(signals.event_fd(), SIGNALS)?;
        add(host.transits.event_fd(), PUMPS)?;
        add(host.inbox.event_fd(), INBOX)?;
        if let Some(fd) = host.inside.event_fd() {
            add(fd, INSIDE)?;
        }
        for (queue, token) in host.ip.fds().zip(QUEUES..) {
            add(queue, token)?;
        }
        for cable in host.cables.iter() {
            add(cable.event_fd(), PORTS + u64::from(cable.id.0))?;
        }
        let most = Duration::from_micros(host.config.spin_us.into());
        Ok(Self {
            host,
            epoll,
            control,
            signals,
            config,
            watched: HashMap::new(),
            spin: Spin::new(most),
            patience: Spin::new(most * PACKET_SPIN_FACTOR),
            last_session: 0,
            accept_at: None,
            looked: Duration::ZERO,
            busy: false,
            stopping: false,
        })
    }

    /// Runs until a signal stops the daemon; then says so to the neighbours' daemons and the programs.
    pub fn run(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(256);
        self.poll_ports();
        while !self.stopping {
            if self.run_once() {
                self.look(&mut events)?;
            } else if !self.spin_a_while(&mut events)? {
                self.sleep(&mut events)?;
            }
            for (number, event) in events.drain(..).enumerate() {
                self.dispatch(event.data.u64(), event.flags);
                if number % BREATH == BREATH - 1 {
                    // However many sessions have requests, packets do not wait for all of them.
                    self.busy |= self.host.receive_packets() | self.host.send_more_packets();
                }
            }
        }
        self.say_goodbye();
        Ok(())
    }

    /// One turn: handles what has arrived; returns whether anything had.
    fn run_once(&mut self) -> bool {
        let host = &mut self.host;
        host.tick();
        let mut moved = std::mem::take(&mut self.busy);
        // Packets first: a program may wait for one, and the caches are cold for everything else that a woken daemon does.
        moved |= host.receive_packets() || (self.spin.is_hot() && host.send_more_packets());
        moved |= host.hear_neighbours();
        host.cables.disarm();
        let now = host.now;
        host.handle_time();
        host.run_circuits();
        host.expire_waiting();
        host.wake_rested();
        host.end_empty_sessions();
        self.poll_ports();
        self.host.tell_neighbours();
        self.host.tend_texts();
        self.watch_sessions();
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.watch_control(true);
        }
        moved
    }

    fn dispatch(&mut self, token: u64, flags: epoll::EventFlags) {
        self.host.tick();
        match token {
            CONTROL => self.accept(),
            SIGNALS => self.handle_signals(),
            PUMPS => self.busy |= self.host.hear_pumps(),
            INSIDE => self.host.wake_landed(),
            INBOX => self.busy |= self.host.hear_inbox(),
            token if token >= SESSIONS => {
                let hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                self.host.serve(SessionId(token - SESSIONS), hung_up);
            }
            token @ QUEUES..PORTS => self.serve_queue(token - QUEUES, flags),
            token => {
                let port = u8::try_from(token.saturating_sub(PORTS)).ok().map(PortId);
                if let Some(cable) = port.and_then(|port| self.host.cables.get_mut(port)) {
                    cable.note_readable();
                }
            }
        }
    }

    /// Receives packets from a queue of the interface, or notes that the interface was removed.
    fn serve_queue(&mut self, queue: u64, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::ERR) {
            // Every queue reports the error.
            if self.host.ip.lose_interface() {
                tracing::error!("the interface was removed: no IP until the daemon is started again");
            }
        } else {
            self.busy |= self.host.send_packets(usize::try_from(queue).unwrap_or(usize::MAX));
        }
    }

    /// Handles the events of the ports whose descriptor is readable or whose time has come.
    fn poll_ports(&mut self) {
        let now = self.host.now;
        for port in self.host.cables.ports() {
            if self.host.cables.get(port).is_some_and(|cable| cable.is_due(now)) {
                while let Some(event) = self.host.cables.get_mut(port).and_then(|cable| cable.poll_event(now))
                {
                    self.host.handle_cable(port, event);
                }
            }
        }
        self.host.run_circuits();
    }

    fn handle_signals(&mut self) {
        while let Some(signal) = self.signals.poll() {
            match signal {
                Signal::Stop => {
                    tracing::info!("stopping");
                    self.stopping = true;
                }
                Signal::Reload => self.host.reload(&self.config),
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.control.accept() {
                Ok(Some(socket)) => {
                    self.last_session += 1;
                    let id = SessionId(self.last_session);
                    self.host.add_session(id, socket);
                    self.host.sessions.touch(id);
                }
                Ok(None) => return,
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept sessions");
                    self.accept_at = Some(self.host.now + FULL);
                    return self.watch_control(false);
                }
            }
        }
    }

    fn watch_control(&mut self, on: bool) {
        let flags = if on { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(CONTROL);
        if let Err(errno) = epoll::modify(&self.epoll, self.control.socket(), data, flags) {
            tracing::error!(%errno, "control socket cannot be watched");
        }
    }

    /// Sets the epoll events of each session whose readiness may have changed.
    fn watch_sessions(&mut self) {
        for (id, socket) in self.host.sessions.take_unwatched() {
            if self.watched.remove(&id).is_some() {
                let _ = epoll::delete(&self.epoll, &*socket);
            }
        }
        while let Some(id) = self.host.sessions.poll_touched() {
            let Some((session, socket)) =
                self.host.sessions.get(id).and_then(|session| Some((session, session.socket()?)))
            else {
                self.watched.remove(&id);
                continue;
            };
            let mut flags = epoll::EventFlags::empty();
            if session.is_ready() {
                flags |= epoll::EventFlags::IN;
            }
            if session.is_clogged() || session.is_dead() {
                flags |= epoll::EventFlags::OUT;
            }
            if flags.is_empty() && session.hung_up {
                // `EPOLLHUP` cannot be masked: it would be reported in every turn while the session waits for something else.
                if self.watched.remove(&id).is_some() {
                    let _ = epoll::delete(&self.epoll, &**socket);
                }
                continue;
            }
            let data = epoll::EventData::new_u64(SESSIONS + id.0);
            let outcome = match self.watched.insert(id, flags) {
                Some(old) if old == flags => Ok(()),
                Some(_) => epoll::modify(&self.epoll, &**socket, data, flags),
                None => epoll::add(&self.epoll, &**socket, data, flags),
            };
            if let Err(errno) = outcome {
                tracing::warn!(uid = session.uid, %errno, session = id.0, "session cannot be watched");
                self.host.lose_session(id);
            }
        }
    }

    /// Collects epoll's events while the engine is busy, at most once per `LOOK_EVERY`.
    fn look(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        if self.host.elapsed() < self.looked + LOOK_EVERY {
            return Ok(());
        }
        self.wait(events, Some(Duration::ZERO))
    }

    /// Spins for as long as has paid lately; returns whether anything arrived. The interface is read without being polled first, since a
    /// poll would be another system call for each packet.
    fn spin_a_while(&mut self, events: &mut Vec<epoll::Event>) -> Result<bool, Errno> {
        let asked = self.host.ip.take_asked();
        let spin = if asked { self.spin.budget.max(self.patience.budget) } else { self.spin.budget };
        if spin.is_zero() {
            return Ok(false);
        }
        let end = Instant::now() + spin;
        let mut hit = false;
        while !hit && Instant::now() < end {
            for _ in 0..LOOKS {
                core::hint::spin_loop();
                hit = self.host.cables.arrived();
                if !hit {
                    self.busy = self.host.send_more_packets();
                    hit = self.busy;
                }
                if hit {
                    break;
                }
            }
            if !hit {
                self.wait(events, Some(Duration::ZERO))?;
                hit = !events.is_empty();
                std::thread::yield_now();
            }
        }
        if asked {
            self.patience.spun(hit)
        } else {
            self.spin.spun(hit)
        }
        Ok(hit)
    }

    /// Arms all channels, looks once more, and sleeps until something happens. The channels stay armed until the next turn has done
    /// what is urgent.
    fn sleep(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        let mut arrived = self.host.cables.arm();
        self.host.tick();
        let before = Instant::now();
        let slept = loop {
            let (next, is_under_way) = self.host.cables.next_sleep();
            // Stores that were under way when the engine last looked have landed now, or a later look of this loop finds them.
            arrived |= is_under_way && self.host.cables.arm();
            let time = if arrived { Some(Duration::ZERO) } else { self.timeout() };
            let timeout = next.limit(time);
            let outcome = self.wait(events, timeout);
            if timeout == time || !events.is_empty() || outcome.is_err() {
                break outcome;
            }
            self.host.tick();
        };
        if !arrived {
            self.spin.slept(before.elapsed());
            self.patience.slept(before.elapsed());
        }
        slept
    }

    fn timeout(&self) -> Option<Duration> {
        let at =
            [self.host.deadline(), self.host.texts.deadline(), self.accept_at].into_iter().flatten().min()?;
        Some(at.saturating_sub(self.host.now))
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        events.clear();
        let outcome = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref());
        self.looked = self.host.elapsed();
        match outcome {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Sends `Goodbye` to the neighbours' daemons; the programs see the end in their status pages.
    fn say_goodbye(&mut self) {
        for cable in self.host.cables.iter_mut() {
            cable.send(&Control::Goodbye);
            cable.flush();
        }
        self.host.shut_down();
    }
}
