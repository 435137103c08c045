//! A program that uses the engine, as one of the engine's threads serves it.

use super::job::Job;
use super::table::Table;
use super::tally::Tally;
use super::work::Work;
use crate::session_id::SessionId;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::FarBuffer;
use crosslane_shm::remote::Remote;
use crosslane_shm::submission::{Descriptor, Outcome, RequestId, SLOTS, Way};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// A program. The thread that serves it drops it, between two pieces.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) session: SessionId,
    pub(super) remote: Remote,
    pub(super) table: Table,
    /// Once dropped by all threads, the program sees that no thread of the daemon works for it any more.
    pub(super) _lease: Arc<OwnedFd>,
    pub(super) works: HashMap<u32, Arc<Work>>,
    /// Buffers that the program has registered.
    pub(super) registered: HashMap<u32, Arc<FarBuffer>>,
    pub(super) jobs: VecDeque<Job>,
    /// Slots whose transfers are in `jobs`: a slot that is submitted twice counts once.
    pub(super) busy: Vec<bool>,
    /// Bytes moved for the program, less the bytes of its past turns: an excess in one round is deducted in the next.
    pub(super) spent: usize,
}

impl Client {
    pub(super) fn new(session: SessionId, remote: Remote, table: Table, lease: Arc<OwnedFd>) -> Self {
        Self {
            session,
            remote,
            table,
            _lease: lease,
            works: HashMap::new(),
            registered: HashMap::new(),
            jobs: VecDeque::new(),
            busy: vec![false; SLOTS],
            spent: 0,
        }
    }

    /// Takes new transfers off the submission queue; returns how many.
    pub(super) fn collect(&mut self, way: Way, now: Instant, tag: &mut u64) -> u64 {
        let mut taken = 0;
        for index in self.table.queue.filled(way) {
            if self.busy[index] {
                // The transfer was cancelled and the slot filled again before this thread saw that: drops the old job.
                self.jobs.retain(|job| job.index() != index);
                self.busy[index] = false;
            }
            let Some((request, descriptor)) = self.table.queue.take(way, index) else { continue };
            *tag += 1;
            match self.job(*tag, way, request, &descriptor, now) {
                Some(job) => {
                    self.busy[index] = true;
                    self.jobs.push_back(job);
                    taken += 1;
                }
                None => self.table.finish(request, 0, Outcome::Stale),
            }
        }
        taken
    }

    /// A job for a transfer; `None` if its rings or its buffer are not registered.
    fn job(
        &self,
        tag: u64,
        way: Way,
        request: RequestId,
        descriptor: &Descriptor,
        now: Instant,
    ) -> Option<Job> {
        let work = self.works.get(&descriptor.handle)?.clone();
        let registered = match descriptor.buffer {
            0 => None,
            handle => Some(self.registered.get(&handle)?.clone()),
        };
        Job::new(tag, way, request, descriptor, (work, registered), now)
    }

    /// A transfer is over.
    pub(super) fn ended(&mut self, index: usize) {
        self.busy[index] = false;
    }

    /// Counts `bytes` as moved for the program.
    pub(super) fn spend(&mut self, bytes: usize, tally: &Tally) {
        self.spent += bytes;
        tally.bytes.fetch_add(bytes as u64, Relaxed);
    }
}
