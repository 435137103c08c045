//! Memory that both ends of a stream map, so that bytes are copied once: straight from the buffer of the one program into
//! the memory of the other.
//!
//! ```text
//!   Buffer::new ----> send from it: End locates it, shares it (once), and names it to the far end
//!                     the far end maps it for loads, and copies out of it
//!   OpenBuffer::new -> announced to receive into: the far end maps it for stores, and copies into it
//! ```
//! Only for ends on one host or at one software cable; elsewhere bytes go by the ring, and so they do for a buffer that
//! cannot be shared. Whoever has a buffer mapped keeps that memory when its owner gives it back; nothing else ever lies
//! there. How far programs get it: [`crate::end`]; why so: `docs/decisions/0014-shared-buffers.md`.

pub mod far;

pub use crosslane_shm::FarBuffer;
pub use crosslane_shm::buffer::{Buffer, Landing, Located, OpenBuffer, locate, locate_bytes};
