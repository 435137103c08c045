//! The kernel port: the conformance suite, on two bridges of one kernel (`ntb_soft`). `kernel/tests/run.sh` runs it in a virtual machine;
//! elsewhere there are no such devices.

use crosslane_ntb::{Device, Side};
use crosslane_port::conformance::{self, Cable};
use crosslane_port::kernel::{KernelConfig, KernelPort, POSTED_NS};
use std::path::Path;
use std::time::Duration;

/// Memory behind each window, bytes.
const WINDOW: u64 = 3 << 20;
/// Bytes of each window that a neighbour stores noise into: all that the suite has memory behind, and more.
const NOISE: u64 = 768 << 10;
const DEVICES: [&str; 2] = ["/dev/crosslane0", "/dev/crosslane1"];

/// How long a store is under way at most, us, where the bridges have stores land late.
fn late_us() -> Option<u32> {
    let text = std::fs::read_to_string("/sys/module/ntb_soft/parameters/late_us").ok()?;
    text.trim().parse().ok().filter(|late| *late > 0)
}

struct Bridges {
    a: KernelPort,
    b: Option<KernelPort>,
}

fn plug(side: usize) -> KernelPort {
    let posted_ns = late_us().map_or(POSTED_NS, |late| 4000 * late);
    let config = KernelConfig { path: DEVICES[side].into(), window_bytes: WINDOW, posted_ns };
    KernelPort::open(&config).unwrap()
}

impl Cable for Bridges {
    type Port = KernelPort;

    fn a(&mut self) -> &mut KernelPort {
        &mut self.a
    }

    fn b(&mut self) -> &mut KernelPort {
        self.b.as_mut().expect("side b lives")
    }

    fn pass(&mut self) {
        let late = late_us().unwrap_or(0).into();
        std::thread::sleep(Duration::from_millis(2) + 2 * Duration::from_micros(late));
    }

    fn kill_b(&mut self) {
        self.b = None;
    }

    fn revive_b(&mut self) {
        self.b = Some(plug(1));
    }

    /// A daemon that stores noise into all of the peer's memory that the module lets it reach, as one user of it after another.
    fn rubbish_from_b(&mut self) {
        self.b = None;
        let device = Device::open(Path::new(DEVICES[1])).unwrap();
        device.translate(0, NOISE).unwrap();
        device.link(true).unwrap();
        while device.event().unwrap() != Some(crosslane_ntb::Event::Up) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let info = *device.info();
        for window in 0..info.windows {
            let len = NOISE;
            let fd = device.carve(Side::Outbound, window, 0, len).unwrap();
            let info = crosslane_wire::SegmentInfo {
                memory: crosslane_wire::MemoryKind::Device,
                ..crosslane_wire::SegmentInfo::sealed(len)
            };
            let memory = crosslane_shm::Outbound::map(&crosslane_shm::Segment { fd, info }).unwrap();
            let noise: Vec<u8> =
                std::iter::repeat_with(|| fastrand::u8(..)).take(usize::try_from(NOISE).unwrap()).collect();
            crosslane_shm::Store::write(&memory, 0, &noise);
            // Frames that the reader takes for the next ones.
            for slot in 0..64 {
                crosslane_shm::Store::store_u32(
                    &memory,
                    0x1000 + 32 * slot,
                    u32::try_from(slot).unwrap() + 1,
                );
            }
        }
        for pad in 0..32 {
            device.write_peer_pad(pad, fastrand::u32(..)).unwrap();
        }
        device.ring(u64::MAX).unwrap();
        drop(device);
        self.b = Some(plug(1));
    }
}

#[test]
fn kernel_port_passes_the_conformance_suite() {
    if !DEVICES.iter().all(|device| Path::new(device).exists()) {
        println!("SKIPPED: no NTB bridges here; kernel/tests/run.sh runs this in a virtual machine");
        return;
    }
    conformance::run(|| Bridges { a: plug(0), b: Some(plug(1)) });
}

#[test]
fn kernel_segments_have_the_magic_that_programs_look_for() {
    assert_eq!(u64::from(crosslane_ntb::abi::SEGMENT_MAGIC), crosslane_shm::segment::DEVICE_MAGIC);
}
