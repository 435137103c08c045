//! The daemon's log: lines on standard error, which strangers can cause and must not be able to make harmful.
//!
//! ```text
//!   event --> level asked for? --> budget of its place in the source --> one line, escaped and cut --> queue --> thread --> stderr
//!                                   | used up: counted, and said later                                 | full: counted
//! ```
//! Every place in the source that logs has a `budget` of its own, so a new line is covered without anybody's thinking of
//! it. A line that names who caused it (`uid`, `port`) is held against that user's or neighbour's own part. Nothing here blocks or ends the daemon: a thread of its own writes, and what standard error does not take (a full disk,
//! a closed pipe, a pipe that nobody reads) is dropped and counted.

mod budget;
mod line;
mod queue;
mod who;

use queue::Queue;
use std::sync::Arc;
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};
use who::Who;

/// How long the end of the daemon waits for its last lines to be written.
const FAREWELL: Duration = Duration::from_millis(500);

/// The log of this process. Dropped, it waits a moment for its last lines.
#[derive(Debug)]
pub struct Log {
    queue: Arc<Queue>,
}

/// Begins to log what `CROSSLANE_LOG` asks for.
pub fn begin() -> Log {
    let wanted = std::env::var("CROSSLANE_LOG").unwrap_or_else(|_| "info".to_owned());
    let wanted = EnvFilter::try_new(wanted).unwrap_or_else(|_| "info".into());
    let queue = Arc::new(Queue::default());
    queue::start(&queue, std::io::stderr());
    let sink = queue.clone();
    // Colours would be control characters, which are escaped.
    let lines = fmt::layer().with_ansi(false).log_internal_errors(false).with_writer(move || sink.line());
    let limit = Limit { queue: queue.clone() };
    let _ = tracing_subscriber::registry().with(wanted).with(lines.with_filter(limit)).try_init();
    Log { queue }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.drain(FAREWELL);
    }
}

/// Lets through what a place in the source has a budget for.
struct Limit {
    queue: Arc<Queue>,
}

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, _metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        self.queue.may_say(event.metadata(), Who::of(event))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        None
    }
}
