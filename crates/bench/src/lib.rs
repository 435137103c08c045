//! Measurements held against the limit and against the kernel's TCP
