//! One shelf: a thread with a table of descriptors of its own, which does nothing but receive and close.
//!
//! The daemon sends descriptors with their names, and opens the memory anew by the thread's table in `/proc`. What it drops it
//! writes into a list, and has the thread look if nobody has yet. So it never waits for the thread, but where it wants something that
//! it sent a moment ago.

use super::table;
use crosslane_passing::{Foreign, Owner, receive, send};
use crosslane_shm::signals::Masked;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the daemon waits at most until the thread has received what was sent to it, or begun.
const SHELF_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a name.
const NAME: usize = 8;
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;

/// Whether a shelf can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not yet: its thread begins.
    Starting,
    /// Not yet: its thread has a table of its own, and closes what it does not need there.
    Apart,
    /// Yes.
    Ready,
    /// Its thread could not have a table of its own.
    Failed,
}

/// The daemon's side of a shelf. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Shelf {
    socket: OwnedFd,
    shared: Arc<Shared>,
    /// What was sent and not dropped.
    len: usize,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Something arrived, or the state is another.
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// Where the thread's table is: `/proc/<pid>/task/<tid>/fd`.
    table: String,
    /// Numbers in that table by name, and how each may be opened, if it is memory.
    numbers: HashMap<u64, (RawFd, Option<OFlags>)>,
    /// What is to be closed.
    dropped: Vec<u64>,
}

impl Shelf {
    /// Starts the thread, and waits until it has a table of its own. It is ready a little later.
    pub(super) fn start() -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let inner = Inner {
            state: State::Starting,
            table: String::new(),
            numbers: HashMap::new(),
            dropped: Vec::new(),
        };
        let shared = Arc::new(Shared { inner: Mutex::new(inner), changed: Condvar::new() });
        let (number, of_thread) = (theirs.as_raw_fd(), shared.clone());
        std::thread::Builder::new()
            .name("shelf".to_owned())
            .stack_size(STACK)
            .spawn(move || keep(number, &of_thread))?;
        if shared.wait(|inner| inner.state == State::Starting).state == State::Starting {
            // It takes that number with it whenever it runs; so it must stay what it is.
            std::mem::forget(theirs);
        }
        Ok(Self { socket: ours, shared, len: 0 })
    }

    pub(super) fn state(&self) -> State {
        self.shared.lock().state
    }

    /// How many descriptors it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Hands it descriptors; `false` if it takes nothing now.
    pub(super) fn put(&mut self, batch: &[(u64, Rc<OwnedFd>)]) -> bool {
        let names: Vec<u8> = batch.iter().flat_map(|(id, _)| id.to_ne_bytes()).collect();
        let fds: Vec<_> = batch.iter().map(|(_, fd)| fd.as_fd()).collect();
        let sent = send(&self.socket, &names, &fds, SendFlags::DONTWAIT).is_ok();
        self.len += if sent { batch.len() } else { 0 };
        sent
    }

    /// Opens the memory of this name anew, as the descriptor that was put here may be used.
    pub(super) fn open(&self, id: u64) -> Result<OwnedFd, Errno> {
        let inner = self.shared.wait(|inner| !inner.numbers.contains_key(&id));
        let (number, flags) = inner.numbers.get(&id).copied().ok_or(Errno::TIMEDOUT)?;
        let flags = flags.ok_or(Errno::BADF)? | OFlags::CLOEXEC;
        rustix::fs::open(format!("{}/{number}", inner.table), flags, Mode::empty())
    }

    /// The descriptor of this name is closed soon.
    pub(super) fn drop(&mut self, id: u64) {
        self.len = self.len.saturating_sub(1);
        let mut inner = self.shared.lock();
        inner.dropped.push(id);
        let first = inner.dropped.len() == 1;
        drop(inner);
        if first {
            // If there is no room for that the thread has other messages, and looks at the list behind each.
            let _ = send(&self.socket, &[0], &[], SendFlags::DONTWAIT);
        }
    }
}

impl Shared {
    /// What another thread left half done is not believed to be: each statement leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as this holds, but not too long.
    fn wait(&self, holds: impl FnMut(&mut Inner) -> bool) -> MutexGuard<'_, Inner> {
        let waited = self.changed.wait_timeout_while(self.lock(), SHELF_TIMEOUT, holds);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self, state: State) {
        self.lock().state = state;
        self.changed.notify_all();
    }
}

/// The thread. Numbers of its table are of use to nobody else, so it alone closes them.
fn keep(number: RawFd, shared: &Shared) {
    // A handler that writes to a pipe of the daemon's would write to what has its number here.
    let _masked = Masked::new();
    let table = std::fs::read_link("/proc/thread-self").map(|own| format!("/proc/{}/fd", own.display()));
    let (Ok(table), Ok(socket)) = (table, table::take_own(number)) else { return shared.set(State::Failed) };
    shared.lock().table = table;
    shared.set(State::Apart);
    // From the moment in which the table was copied it has descriptors of strangers, whose close may block.
    if table::close_below(socket).is_err() {
        return shared.set(State::Failed);
    }
    shared.set(State::Ready);
    let mut stock = Stock::default();
    while stock.receive(socket, shared) {
        stock.close_dropped(shared);
    }
}

/// What the thread has.
#[derive(Default)]
struct Stock {
    fds: HashMap<u64, OwnedFd>,
    /// Dropped before they were here.
    early: HashSet<u64>,
}

impl Stock {
    /// Takes one message; `false` if the daemon is not there any more.
    fn receive(&mut self, socket: BorrowedFd<'_>, shared: &Shared) -> bool {
        let mut names = [0; NAME * super::BATCH];
        let message = match receive(socket, &mut names, RecvFlags::empty(), Owner::NOBODY) {
            Ok(message) => message,
            Err(Errno::INTR) => return true,
            Err(_) => return false,
        };
        // None of them may be closed by another thread, in another table.
        let fds: Vec<OwnedFd> = message.fds.into_iter().map(Foreign::into_owned).collect();
        let ids = names[..message.bytes].chunks_exact(NAME).filter_map(|name| name.try_into().ok());
        for (id, fd) in ids.map(u64::from_ne_bytes).zip(fds) {
            self.place(id, fd, shared);
        }
        shared.changed.notify_all();
        message.bytes > 0
    }

    fn place(&mut self, id: u64, fd: OwnedFd, shared: &Shared) {
        if self.early.remove(&id) {
            return;
        }
        shared.lock().numbers.insert(id, (fd.as_raw_fd(), opened_as(&fd)));
        self.fds.insert(id, fd);
    }

    fn close_dropped(&mut self, shared: &Shared) {
        let dropped = {
            let mut inner = shared.lock();
            let dropped = std::mem::take(&mut inner.dropped);
            for id in &dropped {
                inner.numbers.remove(id);
            }
            dropped
        };
        for id in dropped {
            if self.fds.remove(&id).is_none() {
                self.early.insert(id);
            }
        }
    }
}

/// How a descriptor may be used; `None` unless it is of memory: to open anything else anew could block.
fn opened_as(fd: &OwnedFd) -> Option<OFlags> {
    rustix::fs::fcntl_get_seals(fd).ok()?;
    Some(rustix::fs::fcntl_getfl(fd).ok()? & OFlags::RWMODE)
}
