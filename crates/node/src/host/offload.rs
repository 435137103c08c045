//! What programs ask of the daemon before they hand transfers over.

use super::Host;
use crate::offload::{Engines, Work};
use crate::quota::Kind;
use crate::random;
use crate::session::SessionId;
use crate::status_page::status_of;
use core::sync::atomic::AtomicU32;
use crosslane_passing::Foreign;
use crosslane_shm::peer::Peer;
use crosslane_shm::remote::{Remote, guard_at};
use crosslane_shm::submission::SubmissionQueue;
use crosslane_shm::wake::{Receiver, Waker};
use crosslane_shm::{FarBuffer, Inbound, Outbound};
use crosslane_wire::local::Reply;
use crosslane_wire::{BufferId, CircuitId, Reach};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Descriptors that two threads keep for a program: a lease, a waker, and one of the process.
const FDS: u64 = 3;
/// Mappings of the rings of an end: both segments, and its program's arena.
const WORK_MAPPINGS: u64 = 3;

impl Host {
    /// `Offload`: the program consents.
    pub fn offload(&mut self, id: SessionId, queue: Option<Foreign>) {
        let outcome = self.try_offload(id, queue);
        let Some(session) = self.sessions.get_mut(id) else { return };
        match outcome {
            Ok((reply, wakers, completions, lease)) => {
                let fds = wakers.iter().map(AsFd::as_fd).chain([completions.as_fd(), lease.as_fd()]);
                let fds: Vec<BorrowedFd<'_>> = fds.collect();
                session.reply(&reply, &fds);
            }
            Err(why) => session.reply(&Reply::Error { text: format!("no offload: {why}") }, &[]),
        }
    }

    fn try_offload(
        &mut self,
        id: SessionId,
        queue: Option<Foreign>,
    ) -> Result<(Reply, Vec<Waker>, Arc<Receiver>, OwnedFd), String> {
        let text = |error: std::io::Error| error.to_string();
        let queue = queue.ok_or_else(|| "a submission queue is due".to_owned())?;
        let charge = self.charge_session(id, Kind::Descriptors, FDS)?;
        let queue = SubmissionQueue::open(&queue).map_err(|error| error.to_string())?;
        if self.offload.is_none() {
            let spin = std::time::Duration::from_micros(self.config.spin_us.into());
            self.offload = Some(Engines::start(&self.config.offload, spin).map_err(text)?);
        }
        let (Some(engines), Some(session)) = (&mut self.offload, self.sessions.get_mut(id)) else {
            return Err("no session".to_owned());
        };
        let socket = session.socket().ok_or_else(|| "no connection".to_owned())?;
        let peer = Peer::of(socket.as_fd()).map_err(|error| error.to_string())?;
        let (guard, nonce) = (guard_at(random::u64()), random::u64());
        let remote = Remote { peer: Arc::new(peer), guard, nonce };
        let completions = Arc::new(Receiver::new().map_err(|errno| errno.to_string())?);
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (lease, ours) = pipe.map_err(|errno| errno.to_string())?;
        let wakers = engines.add(id, &remote, queue, &completions, &Arc::new(ours)).map_err(text)?;
        session.engine_charge = Some(charge);
        let words: Vec<u64> = wakers.iter().map(Waker::word).collect();
        let words = words.try_into().map_err(|_| "two threads are due".to_owned())?;
        let (threads, least) = (engines.tids(), self.config.offload.least);
        Ok((Reply::Offload { words, guard, nonce, threads, least }, wakers, completions, lease))
    }

    /// `RegisterRings`: the name of an end's rings; 0 if they are not for the engine.
    pub fn register_rings(&mut self, id: SessionId, circuit: CircuitId, token: u64, generation: u32) -> u32 {
        if !self.offload.as_ref().is_some_and(|engines| engines.has(id)) {
            return 0;
        }
        let work = self.work_of(id, circuit, token, generation);
        match (work, &mut self.offload) {
            (Some(work), Some(engines)) => engines.register_rings(id, circuit, work),
            _ => 0,
        }
    }

    /// `RegisterBuffer`: the buffer's name on the program's submission queue; 0 if it is not for the engine.
    pub fn register_buffer(
        &mut self,
        id: SessionId,
        buffer: BufferId,
        (len, reach): (u64, Reach),
        memory: &Foreign,
    ) -> u32 {
        let known = match self.offload.as_ref().filter(|engines| engines.has(id)) {
            Some(engines) => engines.registered(id, buffer),
            None => return 0,
        };
        if let Some(handle) = known {
            return handle;
        }
        let Ok(mapping) = self.charge_session(id, Kind::Mappings, 1) else { return 0 };
        match (FarBuffer::map(memory, len, reach), &mut self.offload) {
            (Ok(memory), Some(engines)) => engines.register_buffer(id, buffer, memory, mapping),
            _ => 0,
        }
    }

    fn work_of(&mut self, id: SessionId, circuit: CircuitId, token: u64, generation: u32) -> Option<Work> {
        let mappings = self.charge_session(id, Kind::Mappings, WORK_MAPPINGS).ok()?;
        let resources = self.ends.get(circuit).filter(|resources| resources.token == token)?;
        let segments = resources
            .segments
            .back()
            .filter(|segments| segments.generation == generation && segments.way.offload)?;
        Some(Work {
            generation,
            inbound: Inbound::map(&segments.inbound.open().ok()?).ok()?,
            outbound: Outbound::map(&segments.outbound.as_ref()?.open().ok()?).ok()?,
            ring_max: segments.ring_max,
            rx_key: segments.rx_key,
            tx_key: segments.tx_key,
            state: resources.state.as_ref()?.view()?.engine_state().ok()?,
            status: AtomicU32::new(status_of(self.policy.circuits.get(circuit)?, resources.published)),
            _mappings: mappings,
        })
    }
}
