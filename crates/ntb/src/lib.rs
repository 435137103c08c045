//! `/dev/crosslane0`, ...: one end of an NTB cable, as the kernel module `crosslane_ntb` gives it to one process.
//!
//! [`abi`] has the module's interface, which `kernel/include/crosslane_ntb.h` defines; a test compares the two. [`Device`] has its
//! calls. What they mean, and how they fail, is said in that header.

pub mod abi;

mod device;

pub use device::{Device, Event, Side};
