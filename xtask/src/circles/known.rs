//! The circles that there are, each with its members by name. The list only becomes shorter.

/// Where, and who.
pub(super) const KNOWN: &[(&str, &[&str])] = &[(
    "node",
    &[
        "accept",
        "answer",
        "buffer",
        "cable",
        "config",
        "dial",
        "doubt",
        "end_resources",
        "holders",
        "host",
        "inbox",
        "ip",
        "keys",
        "listener",
        "metrics",
        "offload",
        "proving",
        "quota",
        "session",
        "snapshot",
        "texts",
        "transit",
        "tun",
        "ways",
    ],
)];
