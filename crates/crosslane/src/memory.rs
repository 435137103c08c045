//! One-sided access: a program opens memory to other programs, which put, get and change words there while it does other work.
//!
//! ```text
//!   owner                                              requester
//!   Memory::serve(fabric, address)                     Peer::connect(fabric, address)
//!   memory.register(bytes) -> Region
//!   region.share(access) -> RemoteRegion  ~~ sent to the requester by any means ~~>
//!   (agent: a thread of the library)      <--commands, by a stream--  put, get, fetch_add, compare_swap, notify
//!                                         --answers-->                wait, flush
//! ```
//! No load crosses a cable: the owner's agent writes the bytes of a get to the requester. The agent executes atomic
//! operations on the owner's own processor, so they are atomic for the owner's threads as well.
//!
//! **Order.** The operations of one [`Peer`](crate::peer::Peer) are executed in the order in which they were posted, except
//! that a get may be executed, or be under way, while later ones are executed: [`Peer::fence`](crate::peer::Peer::fence) delays
//! those. Operations of different peers have no order. [`Peer::flush`](crate::peer::Peer::flush) waits until all are executed.
//!
//! **Copies.** The requester copies the bytes of a put into the owner's ring, and the agent copies them from there into
//! the region. The agent copies the bytes of a get into the requester's ring, through a piece of 64 KB that stays in its
//! processor's cache, and the requester copies them from there into its buffer.
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
//! // In another program, on any host, that has received `remote`:
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
    /// The listener cannot be opened: the daemon or the kernel refuses.
    #[error(transparent)]
    Stream(#[from] stream::Error),
    /// The kernel gives no memory for a region.
    #[error("no memory: {0}")]
    NoMemory(#[from] crosslane_shm::MapError),
    /// The agent's thread cannot be started, or the agent has ended because a new daemon of this host refuses it, as a
    /// daemon of another version does.
    #[error("the agent that serves this program's memory does not run; serve it anew")]
    NoAgent,
}

/// This program's memory, as others access it: regions, and the agent that executes requests. Dropping it closes all
/// connections. When the daemon of this host ends, the connections are lost; as soon as a daemon runs again, requesters
/// may connect anew, with the keys that they have.
#[derive(Debug)]
pub struct Memory {
    address: SocketAddr,
    regions: Arc<Regions>,
    notices: Arc<Notices>,
    handle: Handle,
    agent: Option<JoinHandle<()>>,
}

impl Memory {
    /// Serves memory at an address of this host (port 0: any free port), by a thread of its own, which sleeps while there
    /// are no requests.
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

    /// The address at which memory is served, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new region of `len` zero bytes, aligned to a page. Other programs cannot access it until it is shared.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn register(&self, len: u64) -> Result<Region, Error> {
        Regions::register(&self.regions, len)
    }

    /// The notifications that others have sent to this program.
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
