//! This host: everything that the daemon knows and holds. The modules beside this one add what it does.

use crate::cable::CableEvent;
use crate::cables::Cables;
use crate::config::{Config, own_addresses};
use crate::counter::Counters;
use crate::ends::Ends;
use crate::inbox::Inbox;
use crate::inside::Inside;
use crate::ip::Ip;
use crate::keys::KeyRing;
use crate::listener::Listeners;
use crate::netns;
use crate::offload::Engines;
use crate::proof::{Connected, Proof};
use crate::quota::{Accounts, Kind, Ledger, descriptor_limit};
use crate::random;
use crate::session::{Session, SessionId};
use crate::sessions::Sessions;
use crate::shelves::Shelves;
use crate::signing::Signing;
use crate::socket_table::SocketTable;
use crate::texts::{Texts, Writer};
use crate::transit::Transits;
use crate::transit_wakes::TransitWakes;
use crate::tun::Tun;
use crate::waiters::Waiters;
use crosslane_fabric::circuit::{Death, Limits, Scope};
use crosslane_fabric::route::Spread;
use crosslane_passing::Foreign;
use crosslane_policy::Policy;
use crosslane_wire::local::Reply;
use crosslane_wire::{HostId, PortId, WaiterId};
use rustix::io::Errno;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod accept;
mod buffer;
mod ends;
mod hearing;
mod holding;
mod ip;
mod offload;
mod provider;
mod proving;
mod quota;
mod room;
mod snapshot;
mod texts;
mod transit;

pub(crate) use provider::{Answer, Attempt, Provider};
pub(crate) use quota::{Carved, not_there, refusal_of};

/// Ends that each other host may have here before a program accepts them. Its share of a window is used up before: with a
/// smaller number one user there could take it from the others of his host.
const PENDING_MAX: usize = 65536;
/// What programs of other namespaces are told where the kernel does not say whose a socket is.
const NAMESPACE: &str = "this program is in another network namespace than the daemon, and the kernel cannot tell their sockets \
                         apart (Linux before 5.14): run a daemon in that namespace";

/// Everything.
pub struct Host {
    /// The configuration.
    pub config: Config,
    /// Time since the daemon started, as of this turn of the engine.
    pub now: Duration,
    /// Our ports, with their cables.
    pub cables: Cables,
    /// What is known of the network, and what is decided by it.
    pub policy: Policy,
    /// What the ends hold.
    pub ends: Ends,
    /// How programs of this host reach each other.
    pub inside: Inside,
    /// Circuits that pass through, and what moves their bytes.
    pub transits: Transits,
    /// What copies for programs; none before the first that wants it.
    pub offload: Option<Engines>,
    /// Wakes that cross this host.
    pub transit_wakes: TransitWakes,
    /// Sessions.
    pub sessions: Sessions,
    /// What other threads of the daemon have for this one.
    pub inbox: Inbox,
    /// Texts that were asked for, and what they are made of.
    pub texts: Texts,
    /// Accelerated listeners.
    pub listeners: Listeners,
    /// Wake events of all sessions.
    pub waiters: Waiters,
    /// IP, with its interface.
    pub ip: Ip,
    /// What the kernel knows of the sockets of the daemon's own network namespace.
    pub sockets: SocketTable,
    /// Counters.
    pub counters: Counters,
    /// Who has how much of what is scarce, and how much each user was served lately.
    pub accounts: Accounts,
    /// Descriptors that are kept for streams.
    pub shelves: Shelves,
    /// Whether link states are signed and checked.
    pub signing: Signing,
    start: Instant,
    netns: Option<u64>,
    /// A number of this life of the daemon.
    life: u64,
}

impl Host {
    /// A host with its ports and its interface; nobody is there yet.
    ///
    /// # Errors
    /// An eventfd cannot be made, or the kernel has no netlink sockets.
    pub fn new(config: Config, (cables, inside): (Cables, Inside), tun: Option<Tun>) -> Result<Self, Errno> {
        let me = config.addresses.me;
        let limits = Limits { pending: PENDING_MAX, patience: config.resume };
        let mut policy = Policy::new(me, incarnation(), limits);
        policy.report_reach();
        if config.one_way {
            policy.links.go_one_way(cables.iter().filter(|cable| cable.config.listens).map(|cable| cable.id));
        }
        if config.all_ways {
            policy.spread_over(Spread::All);
        }
        let windows = cables.iter().map(|cable| (Kind::Window(cable.id), cable.window().circuits_bytes()));
        let ledger = Ledger::new(config.quota.clone(), descriptor_limit(), windows);
        let sockets = SocketTable::open()?;
        if !sockets.works() {
            let hint = "load the kernel module tcp_diag (CONFIG_INET_TCP_DIAG)";
            tracing::error!(hint, "the kernel does not tell whose a connection is: all of them use TCP");
        }
        let netns = netns::own();
        if netns.is_none() {
            let hint = "Linux 5.14 and later can; run one daemon in each namespace";
            tracing::warn!(
                hint,
                "the kernel cannot tell network namespaces apart: programs of others are refused"
            );
        }
        let inbox = Inbox::new()?;
        let transits = Transits::new(Duration::from_micros(config.spin_us.into()))?;
        let ports = cables.ports();
        Ok(Self {
            now: Duration::ZERO,
            cables,
            policy,
            ends: Ends::default(),
            inside,
            transits,
            offload: None,
            transit_wakes: TransitWakes::default(),
            sessions: Sessions::default(),
            texts: Texts::new(Writer::start(inbox.letterbox())?),
            inbox,
            listeners: Listeners::default(),
            waiters: Waiters::new(random::u32()),
            ip: Ip::new(tun),
            sockets,
            counters: Counters::default(),
            shelves: Shelves::new(descriptor_limit(), ledger.clone()),
            accounts: Accounts::new(ledger, ports),
            netns,
            signing: Signing::default(),
            start: Instant::now(),
            life: random::u64(),
            config,
        })
    }

    /// Signs and checks link states with these keys from now on.
    pub fn use_keys(&mut self, keys: KeyRing) {
        self.signing.begin(&keys);
        self.policy.links.use_keys(Box::new(keys));
    }

    /// This host's id.
    pub fn me(&self) -> HostId {
        self.config.addresses.me
    }

    /// Reads the clock.
    pub fn tick(&mut self) {
        self.now = self.start.elapsed();
    }

    /// What was due until now happens.
    pub(crate) fn handle_time(&mut self) {
        let now = self.now;
        let (policy, mut provider) = self.split();
        policy.handle_time(now, &mut provider);
    }

    /// Time since the start, read now.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether the kernel can tell network namespaces apart.
    pub(crate) fn knows_namespaces(&self) -> bool {
        self.netns.is_some()
    }

    /// The network namespace that a socket belongs to.
    pub fn scope_of(&self, socket: &Proof) -> Scope {
        match socket.namespace {
            Some(cookie) if Some(cookie) != self.netns => Scope(cookie),
            _ => Scope(0),
        }
    }

    /// The connection that a socket proves, and its network namespace.
    pub fn connected(&self, socket: Option<Proof>) -> Option<(Connected, Scope)> {
        let socket = socket?;
        Some((socket.connected()?, self.scope_of(&socket)))
    }

    /// A program or tool connected.
    pub fn add_session(&mut self, id: SessionId, socket: Foreign) {
        let mut session = match Session::new(id, socket, self.accounts.ledger().clone(), self.now) {
            Ok(session) => session,
            Err(errno) => return tracing::debug!(%errno, "session without credentials"),
        };
        if self.netns.is_none() && netns::is_elsewhere(session.pid) == Some(true) {
            let text = NAMESPACE.to_owned();
            return session.reply(&Reply::Error { text }, &[]);
        }
        match self.accounts.charge_new_session(session.uid, self.now) {
            Ok(charges) => session.charges = charges,
            Err(denied) if self.sessions.may_be_guest(session.uid) => {
                session.guest = Some(denied.to_string())
            }
            Err(denied) => return session.reply(&Reply::Error { text: denied.to_string() }, &[]),
        }
        self.sessions.add(session);
        self.spend(id, 1);
    }

    /// The daemon goes down: all circuits are dead, and the programs see it.
    pub fn shut_down(&mut self) {
        for circuit in self.ends.circuits() {
            self.policy.circuits.kill(circuit, Death::Shutdown);
        }
        self.run_circuits();
    }

    /// A number for a new waiter.
    pub fn new_waiter(&mut self) -> WaiterId {
        self.provider().new_waiter()
    }

    /// What a session is told at its handshake, which shows this ticket from now on.
    pub fn welcome(&self, ticket: u64, resumed: bool) -> Reply {
        let subnet = |network: ipnet::IpNet| (network.addr(), network.prefix_len());
        Reply::Welcome {
            daemon: self.life,
            ticket,
            resumed,
            host: self.me(),
            namespace: self.netns.unwrap_or(0),
            addresses: own_addresses(&self.config),
            subnets: vec![subnet(self.config.addresses.v4), subnet(self.config.addresses.v6)],
            rules: self.config.rules.clone(),
            spin_ns: self.config.spin_us.saturating_mul(1000),
        }
    }

    /// A cable came up or went down.
    pub fn handle_cable(&mut self, port: PortId, event: CableEvent) {
        let name = self.cables.name(port).unwrap_or_default();
        match event {
            CableEvent::Up(agreement) => {
                tracing::info!(port = %name, peer = %agreement.peer, epoch = %agreement.epoch, "cable is up");
                self.policy.handle_cable_up(port, agreement, self.now);
            }
            CableEvent::Down(death, why) => {
                tracing::warn!(port = %name, %why, "cable is down");
                if death == Death::Violation {
                    self.counters.violations += 1;
                }
                self.policy.handle_cable_down(port, death, self.now);
                self.fail_wakers(port);
                self.fail_buffers(port);
            }
            CableEvent::Missing(why) => {
                let hint = "is the far daemon started, with the same `cable` and the other `side`? The cable comes up by itself then";
                tracing::warn!(port = %name, %why, hint, "cable has not come up yet");
            }
            CableEvent::Refused(why) => tracing::error!(port = %name, %why, "cable is refused"),
        }
    }

    /// When the daemon must act even if nothing happens.
    pub fn deadline(&self) -> Option<Duration> {
        let waiting = [self.sessions.deadline(), self.accounts.deadline()].into_iter().flatten().min();
        [self.cables.deadline(self.now), waiting, self.policy.poll_deadline()].into_iter().flatten().min()
    }
}

/// Later lives have greater numbers: milliseconds of the wall clock above random bits.
fn incarnation() -> u64 {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    u64::try_from(millis).unwrap_or(0) << 20 | u64::from(random::u32() >> 12)
}
