//! End-to-end tests in the lab with unmodified programs
