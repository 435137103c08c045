//! The daemon's log: lines on standard error. Strangers can cause lines, but no line may do harm.
//!
//! ```text
//!   event --> level asked for? --> budget of its place in the source --> one line, escaped and cut --> queue --> thread --> stderr
//!                                   | used up: counted, and said later                                 | full: counted
//! ```
//! Every call site that logs has a `budget` of its own, so a new line is limited without further code. A line with a field `uid` or
//! `port` counts against the budget of that user or neighbour. Logging neither blocks nor ends the daemon: a thread of its own
//! writes, and drops and counts what standard error does not take (a full disk, a closed pipe, a pipe that nobody reads).

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

/// How long the daemon waits at its end for the last lines to be written.
const FAREWELL: Duration = Duration::from_millis(500);

/// The log of this process. Its `drop` waits at most 500 ms for the last lines.
#[derive(Debug)]
pub struct Log {
    queue: Arc<Queue>,
}

/// Starts to log what `CROSSLANE_LOG` asks for.
pub fn begin() -> Log {
    let wanted = std::env::var("CROSSLANE_LOG").unwrap_or_else(|_| "info".to_owned());
    let wanted = EnvFilter::try_new(wanted).unwrap_or_else(|_| "info".into());
    let queue = Arc::new(Queue::default());
    queue::start(&queue, std::io::stderr());
    let sink = queue.clone();
    // Colours would be control characters, which `line::clean` escapes.
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

/// Lets an event through if its call site has a budget for it.
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
