//! One NTB endpoint behind one trait, its back ends, and their conformance suite
