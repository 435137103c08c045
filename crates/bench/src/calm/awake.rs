//! Keeps processors from sleep states.
//!
//! A processor that sleeps takes its time to wake, and a virtual one may wake somewhere else.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// Which latency of a processor's wake-up somebody can bear, us (Linux's `Documentation/power/pm_qos_interface.rst`).
const DEVICE: &str = "/dev/cpu_dma_latency";

/// While it lives, idle processors do not sleep.
#[derive(Debug)]
pub(super) struct Awake(#[expect(dead_code, reason = "the kernel forgets the wish when it is closed")] File);

impl Awake {
    /// `None` where the kernel does not let this process have it.
    pub(super) fn keep() -> Option<Self> {
        let mut device = OpenOptions::new().write(true).open(DEVICE).ok()?;
        device.write_all(&0i32.to_ne_bytes()).ok()?;
        Some(Self(device))
    }
}
