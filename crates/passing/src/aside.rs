//! Work that may block for as long as another process (a *stranger*) likes, on threads of its own.
//!
//! ```text
//!   run(owner, work) --> lane of the owner: [work] [work] [work] --> at most WIDTH of one owner at a time --> threads
//! ```
//! A stranger whose work is stuck delays only its own later work. Threads are started when there is work and no thread is
//! free. They end after some time without work, except one, which sleeps.

use crate::Owner;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most threads that work for one stranger.
pub const WIDTH: usize = 2;
/// Most threads in all: others must wait only if more strangers than half of this number are stuck.
pub const THREADS_MAX: usize = 512;
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(2);
/// Stack of a thread, bytes.
const STACK: usize = 128 * 1024;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Work>,
    busy: usize,
    /// Whether the owner is in `Lanes::ready`.
    ready: bool,
}

#[derive(Default)]
struct Lanes {
    lanes: HashMap<Owner, Lane>,
    /// Owners with work that may begin, each once.
    ready: VecDeque<Owner>,
    threads: usize,
    idle: usize,
}

struct Pool {
    lanes: Mutex<Option<Lanes>>,
    work: Condvar,
}

static POOL: Pool = Pool { lanes: Mutex::new(None), work: Condvar::new() };

/// Executes `work` on another thread, after the work that was begun earlier for the same owner, and at the same time as
/// at most one other piece of that owner's work. Never blocks.
pub fn run(owner: Owner, work: impl FnOnce() + Send + 'static) {
    let mut guard = POOL.lock();
    let lanes = guard.get_or_insert_default();
    lanes.lanes.entry(owner).or_default().waiting.push_back(Box::new(work));
    lanes.offer(owner);
    lanes.wake_one();
}

impl Lanes {
    /// The owner's next piece of work may begin, if there is one and not too many pieces have begun.
    fn offer(&mut self, owner: Owner) {
        let Some(lane) = self.lanes.get_mut(&owner) else { return };
        if !lane.ready && lane.busy < WIDTH && !lane.waiting.is_empty() {
            lane.ready = true;
            self.ready.push_back(owner);
        }
    }

    /// Takes the work whose turn it is.
    fn begin(&mut self) -> Option<(Owner, Work)> {
        let owner = self.ready.pop_front()?;
        let lane = self.lanes.get_mut(&owner)?;
        lane.ready = false;
        let work = lane.waiting.pop_front()?;
        lane.busy += 1;
        self.offer(owner);
        self.wake_one();
        Some((owner, work))
    }

    fn end(&mut self, owner: Owner) {
        let Some(lane) = self.lanes.get_mut(&owner) else { return };
        lane.busy -= 1;
        if lane.busy == 0 && lane.waiting.is_empty() {
            self.lanes.remove(&owner);
        } else {
            self.offer(owner);
        }
    }

    /// Makes a thread take the work that is ready: wakes one or starts one. If no more threads can be started, the existing ones take it.
    fn wake_one(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        if self.idle > 0 {
            POOL.work.notify_one();
        } else if self.threads < THREADS_MAX {
            let thread = std::thread::Builder::new().name("aside".into()).stack_size(STACK);
            self.threads += usize::from(thread.spawn(|| POOL.serve()).is_ok());
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Option<Lanes>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut guard = self.lock();
        loop {
            let lanes = guard.get_or_insert_default();
            if let Some((owner, work)) = lanes.begin() {
                drop(guard);
                // A panic was printed; the thread goes on with other work.
                let _ = catch_unwind(AssertUnwindSafe(work));
                guard = self.lock();
                guard.get_or_insert_default().end(owner);
                continue;
            }
            if lanes.idle > 0 && lanes.threads > 1 {
                lanes.idle += 1;
                let late;
                (guard, late) = self.wait_a_while(guard);
                let lanes = guard.get_or_insert_default();
                lanes.idle -= 1;
                if late && lanes.ready.is_empty() {
                    lanes.threads -= 1;
                    return;
                }
            } else {
                lanes.idle += 1;
                guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
                guard.get_or_insert_default().idle -= 1;
            }
        }
    }

    fn wait_a_while<'a>(
        &self,
        guard: MutexGuard<'a, Option<Lanes>>,
    ) -> (MutexGuard<'a, Option<Lanes>>, bool) {
        let (guard, outcome) = self.work.wait_timeout(guard, IDLE).unwrap_or_else(PoisonError::into_inner);
        (guard, outcome.timed_out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Work that ends when the sender is dropped.
    fn stuck(owner: Owner) -> Sender<()> {
        let (end, wait): (Sender<()>, Receiver<()>) = channel();
        run(owner, move || assert!(wait.recv().is_err()));
        end
    }

    /// Pieces of an owner's work that have not begun, and that have begun and not ended.
    fn backlog(owner: Owner) -> (usize, usize) {
        let guard = POOL.lock();
        let lane = guard.as_ref().and_then(|lanes| lanes.lanes.get(&owner));
        lane.map_or((0, 0), |lane| (lane.waiting.len(), lane.busy))
    }

    fn until(what: &str, probe: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !probe() {
            assert!(Instant::now() < end, "not in time: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn aside_thread_that_is_stuck_holds_up_nobody_else() {
        let (bad, good) = (Owner::fresh(), Owner::fresh());
        let ends: Vec<Sender<()>> = (0..5).map(|_| stuck(bad)).collect();
        until("two are stuck", || backlog(bad) == (3, WIDTH));
        let (told, heard) = channel();
        for number in 0..100 {
            let told = told.clone();
            run(good, move || told.send(number).unwrap());
        }
        let mut done: Vec<i32> = (0..100).map(|_| heard.recv_timeout(PATIENCE).unwrap()).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..100));
        assert_eq!(backlog(bad), (3, WIDTH));
        drop(ends);
        until("all is done", || backlog(bad) == (0, 0));
    }

    #[test]
    fn aside_work_that_panics_leaves_its_thread() {
        let owner = Owner::fresh();
        run(owner, || std::panic::resume_unwind(Box::new("expected")));
        let (told, heard) = channel();
        run(owner, move || told.send(()).unwrap());
        heard.recv_timeout(PATIENCE).unwrap();
        until("lane is gone", || backlog(owner) == (0, 0));
    }
}
