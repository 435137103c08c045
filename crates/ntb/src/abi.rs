//! The structures and call numbers of `kernel/include/crosslane_ntb.h`.

use rustix::ioctl::{Opcode, opcode};

/// Version of the interface; a module of another one is refused.
pub const VERSION: u32 = 3;
/// Most memory windows of a port.
pub const WINDOWS: usize = 8;
/// Scratchpads of a port.
pub const PADS: usize = 32;
/// Doorbells of a port.
pub const DOORBELLS: u32 = 64;
/// What `statfs` says of the descriptor of a carved range, and of a bell: nobody but the module can make one.
pub const SEGMENT_MAGIC: u32 = 0x584c_5347;

/// `struct crosslane_ntb_window`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Longest memory that the bridge can translate to, bytes; 0: not known while its link is down.
    pub inbound_max: u64,
    /// Memory that is wanted behind the window, bytes; 0: none.
    pub inbound_len: u64,
    /// The peer's memory that this host can address, bytes.
    pub outbound_len: u64,
}

/// `struct crosslane_ntb_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// [`VERSION`].
    pub version: u32,
    /// How many of `window` there are.
    pub windows: u32,
    /// The windows, of both directions.
    pub window: [Window; WINDOWS],
    /// Longest copy by a DMA engine, bytes; 0: this port has none.
    pub copy_max: u64,
    /// The bridge's number of this end; where there are two ends, both may be 0.
    pub port: i32,
    /// The bridge's number of the peer.
    pub peer_port: i32,
}

/// `struct crosslane_ntb_translate`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translate {
    /// The window.
    pub window: u32,
    /// 0.
    pub reserved: u32,
    /// Length of the memory behind it, bytes; 0: none.
    pub len: u64,
}

/// `struct crosslane_ntb_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The window.
    pub window: u32,
    /// 0: inbound, 1: outbound.
    pub side: u32,
    /// Distance from the window's start, bytes; whole pages.
    pub offset: u64,
    /// Length, bytes; whole pages.
    pub len: u64,
}

/// `struct crosslane_ntb_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Which scratchpad.
    pub index: u32,
    /// What is in it.
    pub value: u32,
}

/// `struct crosslane_ntb_waker`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waker {
    /// A datagram socket of family `AF_UNIX`, connected to the sleeper's.
    pub socket: i32,
    /// By which the peer gets a bell for it.
    pub handle: u32,
    /// What wakes: a datagram of eight zeros and this word, the highest byte first.
    pub word: u64,
}

/// `struct crosslane_ntb_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRequest {
    /// Where the process's memory begins.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
    /// Distance from the range's start, bytes.
    pub offset: u64,
    /// An eventfd that counts one when the copy is over.
    pub over: i32,
    /// An eventfd that has counted one before that if it is not known what was copied.
    pub failed: i32,
}

/// `struct crosslane_ntb_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// 1: the link's life has ended, 2: one has begun, 3: doorbells.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The doorbells that were rung.
    pub doorbells: u64,
    /// Number of the life.
    pub life: u64,
}

const GROUP: u8 = 0xe7;

/// `CROSSLANE_NTB_INFO`.
pub const INFO: Opcode = opcode::read::<Info>(GROUP, 0);
/// `CROSSLANE_NTB_TRANSLATE`.
pub const TRANSLATE: Opcode = opcode::write::<Translate>(GROUP, 1);
/// `CROSSLANE_NTB_CARVE`.
pub const CARVE: Opcode = opcode::write::<Range>(GROUP, 2);
/// `CROSSLANE_NTB_TAKE_BACK`.
pub const TAKE_BACK: Opcode = opcode::write::<Range>(GROUP, 3);
/// `CROSSLANE_NTB_LINK`.
pub const LINK: Opcode = opcode::write::<u32>(GROUP, 4);
/// `CROSSLANE_NTB_READ_PAD`.
pub const READ_PAD: Opcode = opcode::read_write::<Register>(GROUP, 5);
/// `CROSSLANE_NTB_WRITE_PEER_PAD`.
pub const WRITE_PEER_PAD: Opcode = opcode::write::<Register>(GROUP, 6);
/// `CROSSLANE_NTB_RING`.
pub const RING: Opcode = opcode::write::<u64>(GROUP, 7);
/// `CROSSLANE_NTB_MASK`.
pub const MASK: Opcode = opcode::write::<u64>(GROUP, 8);
/// `CROSSLANE_NTB_WAKER`.
pub const WAKER: Opcode = opcode::read_write::<Waker>(GROUP, 9);
/// `CROSSLANE_NTB_DROP_WAKER`.
pub const DROP_WAKER: Opcode = opcode::write::<u32>(GROUP, 10);
/// `CROSSLANE_NTB_BELL`.
pub const BELL: Opcode = opcode::write::<u32>(GROUP, 11);
/// `CROSSLANE_NTB_COPY`.
pub const COPY: Opcode = opcode::write::<CopyRequest>(GROUP, 12);
