//! Buffers that both ends of a stream map, so that bytes are copied once: from the buffer of one program directly into
//! the memory of the other.
//!
//! ```text
//!   Buffer::new ----> send from it: CircuitEnd locates it, exports it (once), and announces it to the far end;
//!                     the far end maps it for loads, and copies out of it
//!   OpenBuffer::new -> announced to receive into: the far end maps it for stores, and copies into it
//! ```
//! Only for ends on one host or on one software cable; elsewhere, and for a buffer that cannot be exported, bytes go
//! through the ring. A program that has a buffer mapped keeps that memory when its owner frees the buffer; it is never
//! used for anything else. How far programs get it: [`crate::end`]; reasons: `docs/decisions/0014-shared-buffers.md`.

pub mod far;

pub use crosslane_shm::FarBuffer;
pub use crosslane_shm::buffer::{Buffer, Landing, Located, OpenBuffer, locate, locate_bytes};
