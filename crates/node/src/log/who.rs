//! Who causes a line, if the event has a field for it: `uid` for a user, `port` for the neighbour at that port.

use std::fmt::Debug;
use tracing::Event;
use tracing::field::{Field, Visit};

/// Who causes a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// A user.
    User(u64),
    /// The neighbour at a port, by the port's number or name.
    Neighbour(String),
}

#[derive(Default)]
struct Seen(Option<Who>);

impl Who {
    /// The user or neighbour that an event names.
    pub(super) fn of(event: &Event<'_>) -> Option<Self> {
        let fields = event.metadata().fields();
        if fields.field("uid").is_none() && fields.field("port").is_none() {
            return None;
        }
        let mut seen = Seen::default();
        event.record(&mut seen);
        seen.0
    }
}

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "uid" => self.0 = Some(Who::User(value)),
            "port" => self.record_debug(field, &value),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "port" && self.0.is_none() {
            self.0 = Some(Who::Neighbour(format!("{value:?}")));
        }
    }
}
