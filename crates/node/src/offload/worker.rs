//! An engine's thread: serves all programs in turn, a bounded piece of one transfer each; polls for as long as that has
//! paid lately, then sleeps.
//!
//! ```text
//!    submission queues --filled--> jobs --turn: plan, claim, copy, commit--> ring, state, submission queue
//!      ^                 |  waited too long, or all done
//!      +---- asleep <----+---> the program goes on by itself
//! ```

use super::client::Client;
use super::copy::{CopyEngine, PIECE};
use super::job::{Hand, Step};
use super::poller::Poller;
use super::tally::Tally;
use super::work::Work;
use crate::session_id::SessionId;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::FarBuffer;
use crosslane_shm::submission::{Outcome, Way};
use crosslane_shm::wait::Budget;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

/// Rounds between two reads of the clock and of new orders, while bytes move.
const ROUNDS: u32 = 16;

/// An order of the daemon's thread to an engine's thread.
#[derive(Debug)]
pub(super) enum Word {
    /// A program uses the engine from now on.
    Client(Box<Client>),
    /// The program's transfers may use these rings.
    RegisterRings(SessionId, u32, Arc<Work>),
    /// They may not use them any more.
    Forget(SessionId, u32),
    /// The program's transfers may use this buffer.
    RegisterBuffer(SessionId, u32, Arc<FarBuffer>),
    /// They may not use it any more.
    Reclaim(SessionId, u32),
    /// The program has ended.
    Remove(SessionId),
}

/// The thread's state.
pub(super) struct Worker {
    pub(super) way: Way,
    pub(super) words: Receiver<Word>,
    pub(super) poller: Poller,
    pub(super) engine: Box<dyn CopyEngine>,
    pub(super) limit_ns: u32,
    pub(super) tally: Arc<Tally>,
    pub(super) clients: BTreeMap<SessionId, Client>,
    pub(super) tag: u64,
}

/// Binds this thread to a processor; `false` if it may not run there.
pub(super) fn pin(processor: usize) -> bool {
    let mut set = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return false;
    }
    set.set(processor);
    sched_setaffinity(None, &set).is_ok()
}

impl Worker {
    /// Works until the daemon's thread has dropped its sender of orders.
    pub(super) fn run(mut self) {
        let budget = Budget::new();
        let (mut quiet, mut rounds) = (Instant::now(), 0_u32);
        while self.obey() {
            let taken = self.collect();
            let (moved, jobs) = self.round();
            rounds = rounds.wrapping_add(1);
            if taken || moved {
                quiet = Instant::now();
                continue;
            }
            core::hint::spin_loop();
            if jobs > 0 {
                if rounds.is_multiple_of(ROUNDS) {
                    std::thread::yield_now();
                }
                continue;
            }
            let spun = quiet.elapsed().as_nanos();
            if spun < u128::from(budget.ns(self.limit_ns)) {
                continue;
            }
            if self.sleep() {
                let slept =
                    u64::try_from(quiet.elapsed().as_nanos().saturating_sub(spun)).unwrap_or(u64::MAX);
                budget.slept(slept, self.limit_ns);
            }
            quiet = Instant::now();
        }
    }

    /// Executes the waiting orders; `false` if the daemon's thread has dropped its sender.
    fn obey(&mut self) -> bool {
        loop {
            match self.words.try_recv() {
                Ok(word) => self.follow(word),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn follow(&mut self, word: Word) {
        match word {
            Word::Client(client) => {
                self.clients.insert(client.session, *client);
            }
            Word::RegisterRings(session, handle, work) => {
                if let Some(client) = self.clients.get_mut(&session) {
                    client.works.insert(handle, work);
                }
            }
            Word::Forget(session, handle) => {
                if let Some(client) = self.clients.get_mut(&session) {
                    client.works.remove(&handle);
                }
            }
            Word::RegisterBuffer(session, handle, buffer) => {
                if let Some(client) = self.clients.get_mut(&session) {
                    client.registered.insert(handle, buffer);
                }
            }
            Word::Reclaim(session, handle) => {
                if let Some(client) = self.clients.get_mut(&session) {
                    client.registered.remove(&handle);
                }
            }
            Word::Remove(session) => {
                self.clients.remove(&session);
            }
        }
    }

    /// Takes the transfers that programs have submitted; returns whether there were any.
    pub(super) fn collect(&mut self) -> bool {
        if !self.clients.values().any(|client| client.table.queue.is_filled(self.way)) {
            return false;
        }
        // The order that registers a handle was sent before the program got the handle.
        self.obey();
        let now = Instant::now();
        let mut taken = 0;
        for client in self.clients.values_mut() {
            taken += client.collect(self.way, now, &mut self.tag);
        }
        self.tally.transfers.fetch_add(taken, Relaxed);
        taken > 0
    }

    /// Gives each program a turn; returns whether anything moved, and how many transfers are left.
    pub(super) fn round(&mut self) -> (bool, usize) {
        let cpu = u16::try_from(sched_getcpu()).unwrap_or(0);
        let (mut moved, mut jobs, mut now) = (false, 0, None);
        for client in self.clients.values_mut().filter(|client| !client.jobs.is_empty()) {
            client.spent = client.spent.saturating_sub(PIECE);
            // Each of its transfers is tried once at most.
            for _ in 0..client.jobs.len() {
                let Some(mut job) = client.jobs.pop_front() else { break };
                let mut hand = Hand {
                    table: &client.table,
                    remote: &client.remote,
                    engine: self.engine.as_mut(),
                    cpu,
                    tally: &self.tally,
                };
                match job.run_once(&mut hand) {
                    Step::Moved(bytes) => {
                        job.moved = *now.get_or_insert_with(Instant::now);
                        client.spend(bytes, &self.tally);
                        client.jobs.push_back(job);
                        moved = true;
                    }
                    Step::Waits => {
                        let now = *now.get_or_insert_with(Instant::now);
                        if job.has_waited(now, self.limit_ns) {
                            job.end(&client.table, Outcome::Done);
                            client.ended(job.index());
                        } else {
                            client.jobs.push_back(job);
                        }
                    }
                    Step::Ended(bytes) => {
                        client.spend(bytes, &self.tally);
                        client.ended(job.index());
                        moved = true;
                    }
                }
                if client.spent >= PIECE {
                    break;
                }
            }
            jobs += client.jobs.len();
        }
        (moved, jobs)
    }

    /// Marks the thread as asleep on all submission queues, looks once more, and sleeps until a program wakes it. Returns
    /// whether it slept.
    fn sleep(&mut self) -> bool {
        self.clients.values().for_each(|client| client.table.queue.set_asleep(self.way, true));
        let filled = self.clients.values().any(|client| client.table.queue.is_filled(self.way));
        if !filled {
            self.tally.sleeps.fetch_add(1, Relaxed);
            self.poller.sleep();
        }
        self.clients.values().for_each(|client| client.table.queue.set_asleep(self.way, false));
        !filled
    }
}
