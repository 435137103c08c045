//! What the generator believes of the descriptors of a script.

/// Descriptors that a script can name, as the executor has it.
pub const SLOTS: usize = 24;
/// Processes of a script, as the executor has it.
pub const PROCESSES: usize = 3;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Empty,
    Closed,
    /// A TCP socket that nothing was done with.
    Fresh,
    Listener,
    /// One of the two ends of a connection.
    End {
        connection: usize,
        end: usize,
    },
    Reads,
    Writes,
    File,
    Epoll,
    Other,
}

/// What was sent and not received, by the end that sends; which ends have ended.
#[derive(Clone, Copy, Default)]
pub struct Connection {
    pub unread: [usize; 2],
    pub ended: [bool; 2],
}

pub struct Model {
    pub slots: [[Kind; SLOTS]; PROCESSES],
    pub alive: [bool; PROCESSES],
    pub connections: Vec<Connection>,
}

impl Model {
    pub fn new() -> Self {
        let mut alive = [false; PROCESSES];
        alive[0] = true;
        Self { slots: [[Kind::Empty; SLOTS]; PROCESSES], alive, connections: Vec::new() }
    }
}

/// An index as a script's argument.
pub fn number(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(0)
}
