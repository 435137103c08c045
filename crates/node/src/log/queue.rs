//! Lines on their way to standard error, and the thread that writes them.

use super::budget::Budgets;
use super::line;
use super::who::Who;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::Metadata;

/// Most bytes that the queue holds.
const QUEUED_BYTES_MAX: usize = 256 * 1024;
/// Time between two lines that count suppressed lines.
const TELL: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines for which the queue had no room, or which standard error did not take.
    lost: u64,
    /// Whether a line is being written.
    writing: bool,
    budgets: Budgets,
    start: Instant,
    /// When the next line that counts suppressed lines may be written.
    tell_at: Duration,
}

/// Lines that wait for the writing thread.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// A line that is being formatted; dropping it puts it into the queue.
#[derive(Debug)]
pub(super) struct Line {
    queue: Arc<Queue>,
    bytes: Vec<u8>,
}

impl Default for Queue {
    fn default() -> Self {
        let state = State {
            lines: VecDeque::new(),
            bytes: 0,
            lost: 0,
            writing: false,
            budgets: Budgets::default(),
            start: Instant::now(),
            tell_at: TELL,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Queue {
    /// A new line.
    pub(super) fn line(self: &Arc<Self>) -> Line {
        Line { queue: self.clone(), bytes: Vec::new() }
    }

    /// Whether this call site may log now.
    pub(super) fn may_say(&self, metadata: &Metadata<'_>, who: Option<Who>) -> bool {
        let mut state = self.lock();
        let now = state.start.elapsed();
        let knew = state.budgets.has_left_out();
        let may = state.budgets.take(metadata, who, now);
        if !knew && state.budgets.has_left_out() {
            self.changed.notify_all();
        }
        may
    }

    /// Waits until the queue is written, at most for `patience`.
    pub(super) fn drain(&self, patience: Duration) {
        let mut state = self.lock();
        state.tell_left_out();
        self.changed.notify_all();
        let busy = |state: &mut State| state.writing || !state.lines.is_empty();
        let _ = self.changed.wait_timeout_while(state, patience, busy);
    }

    fn push(&self, line: String) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is a line, and takes it.
    fn next(&self) -> String {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        loop {
            let now = state.start.elapsed();
            if state.budgets.has_left_out() && state.tell_at <= now {
                state.tell_left_out();
            }
            if let Some(line) = state.pop() {
                return line;
            }
            state = if state.budgets.has_left_out() {
                let pause = state.tell_at.saturating_sub(now);
                self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

impl State {
    fn push(&mut self, line: String) {
        if self.bytes + line.len() > QUEUED_BYTES_MAX {
            self.lost += 1;
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn pop(&mut self) -> Option<String> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        self.writing = true;
        let lost = std::mem::take(&mut self.lost);
        Some(if lost > 0 {
            format!("{lost} lines were lost here: the log was not taken\n{line}")
        } else {
            line
        })
    }

    fn tell_left_out(&mut self) {
        for (place, count) in self.budgets.left_out() {
            self.push(format!("{count} lines were left out, too many of one kind: {place}\n"));
        }
        self.tell_at = self.start.elapsed() + TELL;
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.queue.push(line::clean(&self.bytes));
        }
    }
}

/// Starts the thread that writes to `target` for as long as this process lives. If no thread can be started, lines are lost.
pub(super) fn start(queue: &Arc<Queue>, mut target: impl Write + Send + 'static) {
    let queue = queue.clone();
    let write = move || {
        loop {
            let line = queue.next();
            if target.write_all(line.as_bytes()).is_err() {
                queue.lock().lost += 1;
            }
        }
    };
    let _ = std::thread::Builder::new().name("log".into()).stack_size(64 * 1024).spawn(write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A writer that blocks until the test sends on its channel.
    struct Stuck(Receiver<()>, Sender<String>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_waits_and_tells_what_was_lost() {
        let (queue, (go, wait), (told, heard)) = (Arc::new(Queue::default()), channel(), channel());
        start(&queue, Stuck(wait, told));
        writeln!(queue.line(), "line 0").unwrap();
        // The writing thread has taken the line, and blocks in `write`.
        while queue.lock().bytes > 0 {
            std::thread::yield_now();
        }
        for number in 1..10_000 {
            writeln!(queue.line(), "line {number} {}", "x".repeat(100)).unwrap();
        }
        assert!(queue.lock().bytes <= QUEUED_BYTES_MAX && queue.lock().lost > 1000);
        drop(go);
        queue.drain(Duration::from_secs(20));
        let all: String = heard.try_iter().collect();
        assert!(all.starts_with("line 0\n") && all.contains(" lines were lost here"), "{all}");
    }

    #[test]
    fn ending_waits_only_a_moment_for_what_is_not_taken() {
        let (queue, (_go, wait), (told, _heard)) = (Arc::new(Queue::default()), channel(), channel());
        start(&queue, Stuck(wait, told));
        writeln!(queue.line(), "nobody reads this").unwrap();
        let start = Instant::now();
        queue.drain(Duration::from_millis(50));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
