//! Unmodified socket programs on streams, by LD_PRELOAD
