//! The differences that are meant, each with its reason: what the table in `docs/compatibility.md` lists, and nothing else.

use crate::compare::Case;
use crate::script::Op;

/// A difference that is meant.
pub struct Meant {
    /// As the table in `docs/compatibility.md` has it.
    pub name: &'static str,
    /// Why, as that table has it.
    pub reason: &'static str,
    /// What follows in the script differs with it: the rest is not compared.
    pub ends: bool,
    /// Whether a result that differs is this.
    pub fits: fn(&Case<'_>) -> bool,
}

/// The list.
pub const MEANT: &[Meant] = &[
    Meant {
        name: "how much fits before a send would block",
        reason: "a stream's ring is no socket buffer: it grows to `ring_max`, or to `SO_SNDBUF` where that was set",
        ends: true,
        fits: |case| case.call == "flood" && case.field == "total",
    },
    Meant {
        name: "`TCP_MAXSEG`, `TCP_WINDOW_CLAMP`, `TCP_QUICKACK` of a connection",
        reason: "the carrier socket's: the kernel changes its answer with what it sent and received, which is nothing",
        ends: false,
        fits: |case| {
            let names = [libc::TCP_MAXSEG, libc::TCP_WINDOW_CLAMP, libc::TCP_QUICKACK];
            names.iter().any(|name| is_option(case, libc::IPPROTO_TCP, *name)) && case.field == "value"
        },
    },
    Meant {
        name: "`SIOCOUTQ`, `SIOCOUTQNSD`",
        reason: "a stream tells what the far side has surely not read; the kernel what it has not acknowledged, its FIN too",
        ends: false,
        fits: |case| {
            let asks = |op: &Op| {
                op.call == "ioctl"
                    && [i64::try_from(libc::TIOCOUTQ).unwrap_or(0), 0x894b].contains(&op.arg(1))
            };
            case.op().is_some_and(asks) && case.field == "value"
        },
    },
    Meant {
        name: "`SO_ZEROCOPY` and `TCP_ULP` of a stream",
        reason: "refused, as by a kernel built without; programs do without",
        ends: true,
        fits: |case| {
            let refused = [(libc::SOL_SOCKET, libc::SO_ZEROCOPY), (libc::IPPROTO_TCP, libc::TCP_ULP)];
            refused.iter().any(|(level, name)| is_option(case, *level, *name))
                && case.call == "setopt"
                && case.stream_line.contains("r=-1 e=E")
                && case.op().is_some_and(|op| op.arg(3) >= 4)
        },
    },
    Meant {
        name: "how soon the far side's end is seen",
        reason: "the carrier connection is asked for it each 10 µs by calls that wait for several, each clock tick by receives that must not wait",
        ends: true,
        fits: |case| {
            let used = |call: &str| case.used(|op| op.call == call);
            case.field == "r" && case.stream_line.contains("EAGAIN") && used("exit")
                || case.field == "ev"
                    && ["exit", "close", "shutdown", "dup2", "dup3"].map(used).contains(&true)
                    && only_end_is_missing(case)
        },
    },
    Meant {
        name: "how many bytes of several small sends are there",
        reason: "a stream's are there when the call returns; the kernel puts off what its receiving side has no time for",
        ends: true,
        fits: |case| case.call == "probe" && more_unread(case),
    },
    Meant {
        name: "the order in which `epoll_wait` tells of several",
        reason: "streams come by when their bytes came; room to send, ends, and what was ready when it was added come as they are found",
        ends: true,
        fits: |case| {
            let adds = |op: &&Op| op.call == "epoll_ctl" && op.arg(1) == 1;
            case.call == "epoll_wait"
                && case.field == "ev"
                && case.script.ops.iter().take(case.index).filter(adds).count() > 1
        },
    },
    Meant {
        name: "a `bind` after a `connect` that failed",
        reason: "the port that was chosen for the `connect` is kept, as one that the program has chosen",
        ends: true,
        fits: |case| case.call == "bind" && case.used(|op| op.call == "connect"),
    },
    Meant {
        name: "a connection that `connect` to `AF_UNSPEC` dissolved",
        reason: "copies of its descriptor, and epoll sets, tell of it as of one that was reset",
        ends: true,
        fits: |case| case.used(|op| op.call == "connect" && op.arg(1) == 5),
    },
    Meant {
        name: "a file that is written to between a `sendfile` and the receive",
        reason: "the bytes are copied at the call, where the kernel sends the file's own pages",
        ends: true,
        fits: |case| case.field.starts_with("data") && case.used(|op| op.call == "sendfile"),
    },
    Meant {
        name: "how many edges tell of it",
        reason: "bytes that were received before the wait are none, and the far side's end may be one of its own behind that of its last bytes",
        ends: true,
        fits: |case| tells_of_set(case) && case.used(|op| op.call == "epoll_ctl" && op.arg(3) & EDGE != 0),
    },
    Meant {
        name: "who closes last, after a process that shared the connection ended without closing it",
        reason: "nobody counts that one off, so the far side sees a FIN where unread bytes ask for a reset",
        ends: true,
        fits: |case| case.used(|op| op.call == "exit"),
    },
    Meant {
        name: "`SO_TIMESTAMP`",
        reason: "accepted and told back; nothing is told of when bytes came",
        ends: false,
        fits: |case| {
            let asked = |op: &Op| op.call == "setopt" && op.arg(2) == libc::SO_TIMESTAMP.into();
            case.used(asked) && matches!(case.field, "controllen" | "msg_flags" | "control_beyond" | "msgs")
        },
    },
    Meant {
        name: "the state in `TCP_INFO` after a shutdown",
        reason: "the carrier connection's, whose FIN is acknowledged a moment later",
        ends: false,
        fits: |case| case.call == "getopt" && case.field == "state",
    },
    Meant {
        name: "a receive into memory that is there in part",
        reason: "it takes the messages that find room in what is there; the kernel, which joins messages as they come, takes none of what it had joined",
        ends: true,
        fits: |case| {
            let receives =
                |op: &Op| op.call == "bad_data" && matches!(op.arg(1), 1 | 3) || op.call == "bad_argument";
            case.op().is_some_and(receives)
                && matches!(case.field, "r" | "e" | "beyond")
                && case.stream_line.split("r=").nth(1).is_some_and(|rest| !rest.starts_with(['-', '0']))
        },
    },
    Meant {
        name: "a `select` of more descriptors than there are, with a set that is there in part",
        reason: "the kernel looks at as much of a set as its table of descriptors is long, and some of ours stand far up in that",
        ends: true,
        fits: |case| is_select(case) && case.field == "e" && case.stream_line.contains("EFAULT"),
    },
    Meant {
        name: "`RWF_NOWAIT` on a pipe that was spliced",
        reason: "the kernel refuses it behind a splice of its own; ours reads and writes the pipe, so it stays allowed",
        ends: true,
        fits: |case| {
            let asks = |op: &Op| op.call == "at" && op.arg(4) & i64::from(libc::RWF_NOWAIT) != 0;
            case.op().is_some_and(asks)
                && case.used(|op| op.call == "splice")
                && matches!(case.kernel, "-1" | "EOPNOTSUPP")
        },
    },
    Meant {
        name: "`O_APPEND` on a socket",
        reason: "means nothing, where the kernel refuses `sendfile` and `splice` to such a one: to ask costs each of them a call",
        ends: true,
        fits: |case| {
            let appends = |op: &Op| {
                op.call == "fcntl"
                    && op.arg(1) == libc::F_SETFL.into()
                    && op.arg(2) & i64::from(libc::O_APPEND) != 0
            };
            matches!(case.call, "sendfile" | "splice")
                && matches!(case.kernel, "-1" | "EINVAL")
                && case.used(appends)
        },
    },
    Meant {
        name: "an epoll set that processes share over `fork`",
        reason: "each process has a part of the set of its own: what is told in one (edges, `ONESHOT`) is told in the other too",
        ends: true,
        fits: |case| {
            let used = |call: &str| case.used(|op| op.call == call);
            let waits = ["epoll_wait", "poll", "select", "probe", "epoll_ctl", "bad_argument"];
            used("fork") && used("epoll_ctl") && waits.contains(&case.call)
        },
    },
    Meant {
        name: "when out-of-band data is seen",
        reason: "the direction goes back to TCP first, once what the stream holds was received",
        ends: true,
        fits: |case| case.used(is_out_of_band),
    },
    Meant {
        name: "when bytes arrive that `MSG_MORE`, `SPLICE_F_MORE` or `TCP_CORK` would hold back",
        reason: "a stream sends at once: it has no segments to fill",
        ends: true,
        fits: |case| case.used(is_held_back),
    },
];

/// The entry that a result which differs falls under.
pub fn find(case: &Case<'_>) -> Option<&'static Meant> {
    MEANT.iter().find(|entry| (entry.fits)(case))
}

const EDGE: i64 = 1 << 31;

/// The stream's one event is the kernel's without what tells of the far side's end.
fn only_end_is_missing(case: &Case<'_>) -> bool {
    let bits = |event: &str| {
        let (slot, bits) = event.split_once(':')?;
        Some((slot.to_owned(), u32::from_str_radix(bits, 16).ok()?))
    };
    let stream = case.stream_line.split("ev=").nth(1).and_then(|rest| bits(rest.split(' ').next()?));
    let readable = libc::EPOLLIN | libc::EPOLLRDNORM;
    let end = (readable | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR).cast_unsigned();
    match (bits(case.kernel), stream) {
        (Some(kernel), Some(stream)) => {
            kernel.0 == stream.0 && kernel.1 | end == stream.1 | end && stream.1 & !kernel.1 == 0
        }
        _ => false,
    }
}

/// Both are as ready as the other, and more bytes lie unread in the stream.
fn more_unread(case: &Case<'_>) -> bool {
    let field = format!(" {}=", case.field);
    let stream = case.stream_line.split(&field).nth(1).and_then(|rest| rest.split(' ').next());
    let parts = |value: &str| {
        let (bits, unread) = value.split_once('/')?;
        Some((bits.to_owned(), unread.parse::<i64>().ok()?))
    };
    matches!((parts(case.kernel), stream.and_then(parts)), (Some(kernel), Some(stream))
        if kernel.0 == stream.0 && 0 < kernel.1 && kernel.1 < stream.1)
}

/// What differs is whether an epoll set is ready, or how.
fn tells_of_set(case: &Case<'_>) -> bool {
    let is_set = |slot: i64| case.used(|op| op.call == "epoll_create" && op.arg(0) == slot);
    // Its number may be that of a descriptor that was closed and has a slot still.
    let was_closed = |slot: i64| case.used(|op| op.call == "close" && op.arg(0) == slot);
    match case.call {
        "epoll_wait" => true,
        "bad_argument" => is_select(case),
        "probe" => case.field.parse().is_ok_and(|slot| is_set(slot) || was_closed(slot)),
        "poll" => case.op().is_some_and(|op| op.args.iter().skip(2).step_by(2).any(|slot| is_set(*slot))),
        "select" => case.op().is_some_and(|op| op.args.iter().skip(3).step_by(2).any(|slot| is_set(*slot))),
        _ => false,
    }
}

/// The call is a `select` whose sets are there in part: all bits of what is there are set.
fn is_select(case: &Case<'_>) -> bool {
    case.op().is_some_and(|op| op.call == "bad_argument" && op.arg(1) == 7)
}

/// The call reads or sets this option.
fn is_option(case: &Case<'_>, level: i32, name: i32) -> bool {
    case.op().is_some_and(|op| {
        matches!(op.call.as_str(), "getopt" | "setopt")
            && op.arg(1) == level.into()
            && op.arg(2) == name.into()
    })
}

/// The call sends bytes that TCP would hold back, or asks for that.
fn is_held_back(op: &Op) -> bool {
    let corks =
        op.call == "setopt" && op.arg(1) == libc::IPPROTO_TCP.into() && op.arg(2) == libc::TCP_CORK.into();
    corks || op.call == "splice" && op.arg(3) & i64::from(libc::SPLICE_F_MORE) != 0
}

/// The call sends or receives out-of-band data.
fn is_out_of_band(op: &Op) -> bool {
    let flags = match op.call.as_str() {
        "send" | "sendto" | "recv" | "recvfrom" => op.arg(2),
        "sendmsg" | "recvmsg" | "sendmmsg" | "recvmmsg" => op.arg(3),
        _ => 0,
    };
    flags & i64::from(libc::MSG_OOB) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the table under this heading of `docs/compatibility.md`.
    fn rows() -> Vec<(String, String)> {
        let text = include_str!("../../../../docs/compatibility.md");
        let table = text.split("\n## ").find(|part| part.starts_with("Differences that are meant")).unwrap();
        let lines = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let cells = lines.filter_map(|line| line.split_once(" | "));
        cells.skip(1).map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect()
    }

    #[test]
    fn meant_list_equals_the_table_in_the_docs() {
        let list: Vec<_> =
            MEANT.iter().map(|entry| (entry.name.to_owned(), entry.reason.to_owned())).collect();
        assert_eq!(rows(), list);
    }
}
