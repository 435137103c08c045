//! Buffers that programs have registered with the engine: it has them mapped, and its processor copies without the kernel.
//!
//! The buffers cannot shrink, and their memory is never used for anything else. So it does no harm if a thread is stopped
//! in the middle of a copy, and finishes it when the program has long continued.

use super::Engines;
use super::worker::Word;
use crate::quota::Charge;
use crate::session_id::SessionId;
use crosslane_shm::FarBuffer;
use crosslane_wire::BufferId;
use std::sync::Arc;

/// Most buffers of one program.
const BUFFERS_MAX: usize = 64;
/// Most address space of one program's buffers, bytes.
const BYTES_MAX: u64 = 2 << 30;

/// A registered buffer.
#[derive(Debug)]
pub(super) struct RegisteredBuffer {
    handle: u32,
    len: u64,
    /// The charge to its owner's user for the mapping.
    _mapping: Charge,
}

impl Engines {
    /// The handle of a buffer that this program has registered before.
    pub(crate) fn registered(&self, session: SessionId, buffer: BufferId) -> Option<u32> {
        self.registered.get(&(session, buffer)).map(|registered| registered.handle)
    }

    /// Registers a program's buffer; returns its handle, 0 if the program has registered too much.
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

    /// A program has freed its buffer.
    pub(crate) fn reclaim(&mut self, session: SessionId, buffer: BufferId) {
        if let Some(RegisteredBuffer { handle, .. }) = self.registered.remove(&(session, buffer)) {
            for at in 0..self.threads.len() {
                self.tell(at, Word::Reclaim(session, handle));
            }
        }
    }
}
