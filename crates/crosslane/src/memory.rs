//! One-sided access: a program opens memory to others, and they put, get and change words there, while it does something
//! else.
//!
//! ```text
//!   owner                                              requester
//!   Memory::serve(fabric, address)                     Peer::connect(fabric, address)
//!   memory.register(bytes) -> Region
//!   region.share(access) -> RemoteRegion  ~~ given away by whatever means ~~>
//!   (agent: a thread of the library)      <--commands, by a stream--  put, get, fetch_add, compare_swap, notify
//!                                         --answers-->                wait, flush
//! ```
//! Nothing is read across a cable: what a requester gets, the owner's agent writes to it. Atomic operations are executed
//! by the agent on the owner's own processor, so they are atomic against the owner's threads as well.
//!
//! **Order.** The operations of one [`Peer`](crate::peer::Peer) are executed in the order in which they were posted, except that a get may be
//! executed, or be under way, while later ones are executed: [`Peer::fence`](crate::peer::Peer::fence) holds those back. Operations of different
//! peers have no order. [`Peer::flush`](crate::peer::Peer::flush) waits until all are executed.
//!
//! **Copies.** What is put is copied by the requester into the owner's ring, and by the agent from there into the region.
//! What is got is copied by the agent into the requester's ring, by way of a piece of 64 KB that stays in its processor's
//! cache, and by the requester from there into its buffer.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use crosslane::fabric::Fabric;
//! use crosslane::memory::{Access, Memory};
//! use crosslane::peer::Peer;
//!
//! let fabric = Fabric::open()?;
//! let memory = Memory::serve(fabric, "10.86.0.1:7000".parse()?)?;
//! let region = memory.register(1 << 20)?;
//! let remote = region.share(Access::ALL)?;
//!
//! // In another program, on any host, that was told `remote`:
//! let mut peer = Peer::connect(fabric, "10.86.0.1:7000".parse()?)?;
//! peer.put(&remote, 64, b"hello")?;
//! let before = peer.fetch_add(&remote, 0, 1)?;
//! peer.flush()?;
//! # Ok(())
//! # }
//! ```

mod agent;
mod connection;
mod handle;
mod notices;
mod regions;

pub use crosslane_shm::shared_bytes::{BadPlace, SharedBytes};
pub use notices::{Notice, Notices};
pub use regions::{Access, Region, RemoteRegion};

use crate::fabric::{Fabric, Listener};
use crate::stream;
use agent::Agent;
use handle::Handle;
use regions::Regions;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use thiserror::Error;

/// Why memory cannot be served.
#[derive(Debug, Error)]
pub enum Error {
    /// The daemon of this host is of no help, or the kernel is not.
    #[error(transparent)]
    Stream(#[from] stream::Error),
    /// Memory for a region cannot be had.
    #[error("no memory: {0}")]
    NoMemory(#[from] crosslane_shm::MapError),
    /// The agent's thread cannot be started, or the agent has ended since a new daemon of this host refuses it, as one of
    /// another version does.
    #[error("the agent that serves this program's memory does not run; serve it anew")]
    NoAgent,
}

/// This program's memory, as others reach it: regions, and the agent that executes what is asked for. When dropped, all
/// connections are closed. When the daemon of this host ends, they are lost; as soon as it runs again, requesters may
/// connect anew, with the keys that they have.
#[derive(Debug)]
pub struct Memory {
    address: SocketAddr,
    regions: Arc<Regions>,
    notices: Arc<Notices>,
    handle: Handle,
    agent: Option<JoinHandle<()>>,
}

impl Memory {
    /// Serves memory at an address of this host (port 0: any free one), by a thread of its own. It sleeps while nobody
    /// asks for anything.
    ///
    /// # Errors
    /// The address cannot be listened at, or there are no threads left.
    pub fn serve(fabric: Fabric, address: SocketAddr) -> Result<Self, Error> {
        let listener: Listener = fabric.listen(address)?;
        let address = listener.address();
        let (regions, notices) = (Arc::new(Regions::default()), Arc::new(Notices::new()?));
        let agent = Agent::new(listener, Arc::clone(&regions), Arc::clone(&notices))?;
        let handle = agent.handle();
        let thread = std::thread::Builder::new().name("crosslane-agent".to_owned());
        let agent = Some(thread.spawn(move || agent.run()).map_err(|_| Error::NoAgent)?);
        Ok(Self { address, regions, notices, handle, agent })
    }

    /// Where it is served, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new region of `len` zero bytes, aligned to a page. Nobody else reaches it until it is shared.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn register(&self, len: u64) -> Result<Region, Error> {
        Regions::register(&self.regions, len)
    }

    /// What others notified this program of.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(agent) = self.agent.take() {
            let _ = agent.join();
        }
    }
}
