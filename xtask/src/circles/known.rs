//! The circles that there are, each with its members by name. The list only becomes shorter.

/// Where, and who.
pub(super) const KNOWN: &[(&str, &[&str])] = &[];
