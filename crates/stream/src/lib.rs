//! Ordered byte streams with SDP semantics; pure protocol
