//! The offload engine (decision 15): one thread that sends and one that receives, for all programs of this host that have
//! asked for it. A program puts a descriptor of its buffer on its submission queue and sleeps; the thread finds room,
//! copies, checks headers, acknowledges and gives credit.
//!
//! ```text
//!   program --Offload: submission queue, wakers--> daemon's thread --Word--> two Workers      (Client, Work: what they know)
//!      |                                                          |
//!      +--submission queue: Descriptor -------------------------------------->+--> Job --CopyEngine--> ring, state
//! ```
//! The engine copies every word that a program can write once and checks the copy; a program that lies loses its own stream.

mod client;
mod copy;
mod job;
mod mapped;
mod marks;
mod poller;
mod registered;
mod table;
mod tally;
mod work;
mod worker;

pub use copy::{Choice, CopyEngine};
pub use tally::Tally;
pub(crate) use work::Work;

use crate::session_id::SessionId;
use client::Client;
use crosslane_shm::remote::Remote;
use crosslane_shm::submission::{SubmissionQueue, Way};
use crosslane_shm::wake::{Receiver, Waker};
use crosslane_wire::{BufferId, CircuitId};
use poller::Poller;
use registered::RegisteredBuffer;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use table::Table;
use worker::{Word, Worker};

/// Factor by which an engine's thread polls for longer than a program spins, since it serves many programs.
const SPIN_FACTOR: u32 = 4;

/// How the engine must work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processors of the sending and the receiving thread; none: the kernel chooses.
    pub processors: Option<[usize; 2]>,
    /// How to copy.
    pub copy: Choice,
    /// Smallest blocking call that is worth a transfer, bytes.
    pub least: u64,
}

/// The daemon's handle of one thread.
#[derive(Debug)]
struct Thread {
    words: Sender<Word>,
    receiver: Arc<Receiver>,
    tid: u32,
    tally: Arc<Tally>,
    handle: JoinHandle<()>,
}

/// Both threads. Dropping it ends them.
#[derive(Debug)]
pub struct Engines {
    threads: Vec<Thread>,
    /// Programs that use the engine.
    sessions: BTreeSet<SessionId>,
    /// Registered rings of each end: session, handle, rings.
    works: HashMap<CircuitId, Vec<(SessionId, u32, Arc<Work>)>>,
    /// Buffers that programs have registered.
    registered: BTreeMap<(SessionId, BufferId), RegisteredBuffer>,
    handle: u32,
}

impl Engines {
    /// Starts both threads. While nothing moves they poll for up to some times `spin`, if that has paid lately.
    ///
    /// # Errors
    /// No threads or no events can be made.
    pub fn start(settings: &Settings, spin: Duration) -> io::Result<Self> {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let spin = if alone { Duration::ZERO } else { spin * SPIN_FACTOR };
        let limit_ns = u32::try_from(spin.as_nanos()).unwrap_or(u32::MAX);
        let threads = [Way::Out, Way::In].map(|way| Thread::start(way, settings, limit_ns));
        let threads = threads.into_iter().collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            threads,
            sessions: BTreeSet::new(),
            works: HashMap::new(),
            registered: BTreeMap::new(),
            handle: 0,
        })
    }

    /// The thread ids of the sending and the receiving thread.
    pub fn tids(&self) -> [u32; 2] {
        [0, 1].map(|at: usize| self.threads.get(at).map_or(0, |thread| thread.tid))
    }

    /// Counters of the sending and the receiving thread.
    pub fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.threads.iter().map(|thread| thread.tally.as_ref())
    }

    /// Adds a program; the engine wakes it through `completions`, and keeps `lease` open while a thread may work for it.
    /// The program wakes the sending and the receiving thread by the returned wakers.
    ///
    /// # Errors
    /// It was added already, or there are no descriptors.
    pub fn add(
        &mut self,
        session: SessionId,
        remote: &Remote,
        queue: SubmissionQueue,
        completions: &Arc<Receiver>,
        lease: &Arc<OwnedFd>,
    ) -> io::Result<Vec<Waker>> {
        let wakers = self.threads.iter().map(|thread| thread.receiver.waker()).collect::<Result<_, _>>()?;
        if !self.sessions.insert(session) {
            return Err(io::Error::other("asked before"));
        }
        let queue = Arc::new(queue);
        for at in 0..self.threads.len() {
            let table = Table { queue: queue.clone(), completions: completions.clone() };
            let client = Client::new(session, remote.clone(), table, lease.clone());
            self.tell(at, Word::Client(Box::new(client)));
        }
        Ok(wakers)
    }

    /// Whether a program uses the engine.
    pub fn has(&self, session: SessionId) -> bool {
        self.sessions.contains(&session)
    }

    /// Registers rings for a program's transfers; returns their handle.
    pub(crate) fn register_rings(&mut self, session: SessionId, circuit: CircuitId, work: Work) -> u32 {
        let (handle, work) = (self.next_handle(), Arc::new(work));
        let known = self.works.entry(circuit).or_default();
        // The program does not use earlier generations any more.
        let (old, kept) = std::mem::take(known).into_iter().partition(|(holder, ..)| *holder == session);
        *known = kept;
        known.push((session, handle, work.clone()));
        self.forget_all(old);
        for at in 0..self.threads.len() {
            self.tell(at, Word::RegisterRings(session, handle, work.clone()));
        }
        handle
    }

    /// Sets the end's status word for transfers. Must come before the daemon counts what has arrived there.
    pub(crate) fn show(&self, circuit: CircuitId, status: u32) {
        for (_, _, work) in self.works.get(&circuit).into_iter().flatten() {
            work.set(status);
        }
    }

    /// An end is removed.
    pub(crate) fn free(&mut self, circuit: CircuitId) {
        let known = self.works.remove(&circuit).unwrap_or_default();
        known.iter().for_each(|(_, _, work)| work.end());
        self.forget_all(known);
    }

    /// A program has ended.
    pub fn remove(&mut self, session: SessionId) {
        if self.sessions.remove(&session) {
            for known in self.works.values_mut() {
                known.retain(|(holder, ..)| *holder != session);
            }
            self.works.retain(|_, known| !known.is_empty());
            self.registered.retain(|(owner, _), _| *owner != session);
            for at in 0..self.threads.len() {
                self.tell(at, Word::Remove(session));
            }
        }
    }

    fn forget_all(&self, known: Vec<(SessionId, u32, Arc<Work>)>) {
        for (session, handle, _) in known {
            for at in 0..self.threads.len() {
                self.tell(at, Word::Forget(session, handle));
            }
        }
    }

    fn next_handle(&mut self) -> u32 {
        self.handle = self.handle.wrapping_add(1).max(1);
        self.handle
    }

    fn tell(&self, at: usize, word: Word) {
        let Some(thread) = self.threads.get(at) else { return };
        if thread.words.send(word).is_ok() {
            thread.receiver.wake();
        }
    }
}

impl Thread {
    fn start(way: Way, settings: &Settings, limit_ns: u32) -> io::Result<Self> {
        let receiver = Arc::new(Receiver::new()?);
        let (words, inbox) = channel();
        let (told, tid) = channel();
        let (tally, poller) = (Arc::new(Tally::default()), Poller::new(receiver.clone()));
        let (copy, processor) = (settings.copy, settings.processors.map(|both| both[way as usize]));
        let counts = tally.clone();
        let work = move || {
            let engine = copy::choose(copy);
            let _ = counts.copy.set(engine.name());
            let bound = processor.is_none_or(worker::pin);
            tracing::info!(?way, copy = engine.name(), bound, "offload engine runs");
            let _ = told.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let clients = BTreeMap::new();
            Worker { way, words: inbox, poller, engine, limit_ns, tally: counts, clients, tag: 0 }.run();
        };
        let name = if way == Way::Out { "offload-out" } else { "offload-in" };
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        let tid = tid.recv().map_err(|_| io::Error::other("an engine's thread ended"))?;
        Ok(Self { words, receiver, tid, tally, handle })
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        for Thread { words, receiver, handle, .. } in self.threads.drain(..) {
            drop(words);
            receiver.wake();
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests;
