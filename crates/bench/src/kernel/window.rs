//! Bare stores into a bridge's window, by two programs that have the bridge instead of the daemons: what `ntb_perf` is for the kernel.

use anyhow::{Context, Result, ensure};
use crosslane_ntb::{Device, Event, Side};
use crosslane_shm::copy::{Strategy, store_fence};
use crosslane_shm::{Outbound, Segment};
use crosslane_wire::{Caching, MemoryKind, SegmentInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the window that are stored to, over and over: as much as stock `ntb_perf` takes.
const LEN: u64 = 4 << 20;
/// Bytes of one copy: `ntb_perf`'s.
const CHUNK: usize = 512 << 10;
/// How long the link may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The device with memory behind its window and its link on.
fn open(path: &Path) -> Result<Device> {
    let device = Device::open(path).with_context(|| format!("open {}", path.display()))?;
    device.translate(0, LEN).context("memory for the window")?;
    device.link(true).context("switch the link on")?;
    Ok(device)
}

/// Lets the other end store into memory of this one, until this process is ended.
///
/// # Errors
/// There is no such device, or another process has it.
pub(super) fn hold(path: &Path) -> Result<()> {
    let _device = open(path)?;
    println!("the window has memory");
    loop {
        std::thread::park();
    }
}

/// Stores into the other end's memory for about `time` with this strategy, and prints how many MB (10^6) went in a second.
///
/// # Errors
/// As [`hold`]; the link does not come up.
pub(super) fn pour(path: &Path, time: Duration, strategy: Strategy) -> Result<()> {
    let device = open(path)?;
    wait_for_link(&device)?;
    let fd = device.carve(Side::Outbound, 0, 0, LEN).context("a range of the window")?;
    let (memory, caching) = (MemoryKind::Device, Caching::WriteCombining);
    let info = SegmentInfo { offset: 0, len: LEN, memory, caching, posted_ns: 0, lossy: true };
    let window = Outbound::map(&Segment { fd, info }).context("map the window")?;
    println!("{}", rate(&window, time, strategy));
    Ok(())
}

fn wait_for_link(device: &Device) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while device.event().context("read the device")? != Some(Event::Up) {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "the link does not come up");
        poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&Timespec::try_from(left)?))?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn rate(window: &Outbound, time: Duration, strategy: Strategy) -> f64 {
    let (bytes, start, mut stored) = (vec![0x5a; CHUNK], Instant::now(), 0u64);
    let chunks = usize::try_from(LEN).unwrap_or(CHUNK) / CHUNK;
    while start.elapsed() < time {
        for at in 0..chunks {
            window.write_by(strategy, at * CHUNK, &bytes);
        }
        store_fence();
        stored += LEN;
    }
    stored as f64 / start.elapsed().as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_takes_stores_for_as_long_as_asked() {
        let memory = crosslane_shm::mem::new_segment("window", LEN).unwrap();
        let window = Outbound::sealed(&memory, LEN).unwrap();
        for strategy in Strategy::ALL {
            assert!(rate(&window, Duration::from_millis(5), strategy) > 0.0);
        }
    }

    #[test]
    fn window_without_a_device_is_an_error_with_its_path() {
        let error = hold(Path::new("/no/such/device")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/device"), "{error:#}");
    }
}
