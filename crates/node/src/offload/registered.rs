//! Buffers that programs have registered with the engine: it has them mapped, and its processor copies with no help of the kernel's.
//!
//! They cannot shrink, and nothing else ever lies in that memory, so it does no harm that a thread may be stopped in the
//! middle of a copy, and finish it when the program has long done something else.

use super::Engines;
use super::worker::Word;
use crate::quota::Charge;
use crate::session_id::SessionId;
use crosslane_shm::FarBuffer;
use crosslane_wire::BufferId;
use std::sync::Arc;

/// Most buffers of one program,
const BUFFERS_MAX: usize = 64;
/// and most bytes of addresses that they take.
const BYTES_MAX: u64 = 2 << 30;

/// A buffer that was registered.
#[derive(Debug)]
pub(super) struct RegisteredBuffer {
    handle: u32,
    len: u64,
    /// What its owner's user pays for the mapping.
    _mapping: Charge,
}

impl Engines {
    /// The name of a buffer that this program has registered before.
    pub(crate) fn registered(&self, session: SessionId, buffer: BufferId) -> Option<u32> {
        self.registered.get(&(session, buffer)).map(|registered| registered.handle)
    }

    /// A program may name this buffer from now on, by the handle that is returned; 0: it has registered enough.
    pub(crate) fn register_buffer(
        &mut self,
        session: SessionId,
        buffer: BufferId,
        memory: FarBuffer,
        _mapping: Charge,
    ) -> u32 {
        let of_session = self.registered.range((session, BufferId(0))..=(session, BufferId(u64::MAX)));
        let (count, bytes) =
            of_session.fold((0, 0), |(count, bytes), (_, registered)| (count + 1, bytes + registered.len));
        if count >= BUFFERS_MAX || bytes + memory.len() > BYTES_MAX {
            return 0;
        }
        let (handle, len, memory) = (self.next_handle(), memory.len(), Arc::new(memory));
        self.registered.insert((session, buffer), RegisteredBuffer { handle, len, _mapping });
        for at in 0..self.threads.len() {
            self.tell(at, Word::RegisterBuffer(session, handle, memory.clone()));
        }
        handle
    }

    /// A program has given its buffer back to the system.
    pub(crate) fn reclaim(&mut self, session: SessionId, buffer: BufferId) {
        if let Some(RegisteredBuffer { handle, .. }) = self.registered.remove(&(session, buffer)) {
            for at in 0..self.threads.len() {
                self.tell(at, Word::Reclaim(session, handle));
            }
        }
    }
}
