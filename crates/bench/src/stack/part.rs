//! The parts of a message's time: the study's seven functions, and what is around them; and the study's own figures.

use crosslane_shm::account::{Counts, Function, Way};
use serde::{Deserialize, Serialize};

/// One part of the time, on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Part {
    /// Making a buffer, or finding room.
    Allot,
    /// Copying from the program.
    CopyIn,
    /// Waiting for room.
    WaitSpace,
    /// The rest of sending: TCP's, or our call's.
    SendOther,
    /// IP of what is sent.
    SendIp,
    /// Looking at what has arrived.
    HeaderCheck,
    /// Acknowledgements, made and taken; credit.
    Acknowledge,
    /// Copying to the program.
    CopyOut,
    /// Freeing buffers.
    Free,
    /// The rest of receiving.
    ReceiveOther,
    /// IP of what arrives.
    ReceiveIp,
    /// Waking the side that waits.
    Wake,
    /// Going to sleep for data, and coming back.
    WaitData,
    /// Device queues, soft interrupts, timers.
    Device,
    /// System calls and the layer of sockets.
    Call,
    /// The program and its libraries.
    Program,
}

/// How many there are.
pub const PARTS: usize = Part::Program as usize + 1;

/// Cycles a message by part; `None` where a part does not exist or was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycles(pub [Option<f64>; PARTS]);

impl Cycles {
    /// Those of one part.
    pub fn of(&self, part: Part) -> Option<f64> {
        self.0[part as usize]
    }

    /// All of these together; `None` if there is none.
    pub fn sum(&self, parts: &[Part]) -> Option<f64> {
        let known: Vec<f64> = parts.iter().filter_map(|&part| self.of(part)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Adds to one part.
    pub fn add(&mut self, part: Part, cycles: f64) {
        *self.0[part as usize].get_or_insert(0.0) += cycles;
    }

    /// Our own accounts of so many messages.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn counted(counts: &Counts, messages: u64) -> Self {
        let mut cycles = Self::default();
        for function in Function::ALL {
            for way in [Way::Send, Way::Receive] {
                let ticks = counts.of(way, function).ticks as f64;
                cycles.add(part_of(way, function), ticks / messages.max(1) as f64);
            }
        }
        cycles
    }
}

/// The parts of our functions. A sender's wake of the far side counts as waking; a receiver's credit and wake are its acknowledgement.
fn part_of(way: Way, function: Function) -> Part {
    match (function, way) {
        (Function::Allot, _) => Part::Allot,
        (Function::CopyIn, _) => Part::CopyIn,
        (Function::WaitSpace, _) => Part::WaitSpace,
        (Function::HeaderCheck, _) => Part::HeaderCheck,
        (Function::Acknowledge, Way::Send) => Part::Wake,
        (Function::Acknowledge, Way::Receive) => Part::Acknowledge,
        (Function::CopyOut, _) => Part::CopyOut,
        (Function::Free, _) => Part::Free,
        (Function::WaitData, _) => Part::WaitData,
        (Function::Rest, Way::Send) => Part::SendOther,
        (Function::Rest, Way::Receive) => Part::ReceiveOther,
    }
}

/// A line of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As it is printed.
    pub label: &'static str,
    /// The parts that are added up.
    pub parts: &'static [Part],
    /// The study's figures for [`SIZES`], thousands of clocks.
    pub study: Option<[u32; 4]>,
}

impl Row {
    /// Whether it is a part of a call that takes few of its cycles as a rule: none of the copies, no sum.
    pub fn is_small(&self) -> bool {
        matches!(self.parts, [part] if !matches!(part, Part::CopyIn | Part::CopyOut))
    }
}

/// The study's sizes, bytes, and what it calls them.
pub const SIZES: [usize; 4] = [1400, 14_000, 140_000, 1 << 20];
/// Their names.
pub const SIZE_NAMES: [&str; 4] = ["1.4 KB", "14 KB", "140 KB", "1 MB"];

const SEND_TCP: &[Part] = &[Part::Allot, Part::CopyIn, Part::WaitSpace, Part::SendOther];
const SEND: &[Part] = &[Part::Allot, Part::CopyIn, Part::WaitSpace, Part::SendOther, Part::SendIp];
const RECEIVE_TCP: &[Part] =
    &[Part::HeaderCheck, Part::Acknowledge, Part::CopyOut, Part::Free, Part::ReceiveOther];
const RECEIVE: &[Part] =
    &[Part::HeaderCheck, Part::Acknowledge, Part::CopyOut, Part::Free, Part::ReceiveOther, Part::ReceiveIp];

/// The lines, with the figures of the study's tables 1 to 3.
pub const ROWS: [Row; 20] = [
    row("send: buffer allot", &[Part::Allot], Some([9, 105, 957, 7291])),
    row("send: copy in", &[Part::CopyIn], Some([3, 46, 413, 2525])),
    row("send: wait for space", &[Part::WaitSpace], Some([0, 0, 4092, 31298])),
    row("send: other", &[Part::SendOther], None),
    row("send: TCP, or our call, in all", SEND_TCP, Some([14, 166, 5651, 44411])),
    row("send: IP", &[Part::SendIp], Some([3, 19, 267, 2100])),
    row("send: in all", SEND, Some([17, 185, 5918, 46511])),
    row("receive: header check", &[Part::HeaderCheck], Some([11, 12, 117, 720])),
    row("receive: acknowledgement", &[Part::Acknowledge], Some([13, 54, 99, 294])),
    row("receive: copy out", &[Part::CopyOut], Some([17, 72, 767, 7413])),
    row("receive: buffer free", &[Part::Free], Some([5, 51, 720, 5710])),
    row("receive: other", &[Part::ReceiveOther], None),
    row("receive: TCP, or our call, in all", RECEIVE_TCP, Some([48, 214, 1816, 15304])),
    row("receive: IP", &[Part::ReceiveIp], Some([11, 49, 158, 1004])),
    row("receive: in all", RECEIVE, Some([59, 263, 1974, 16308])),
    row("beside: waking the other side", &[Part::Wake], None),
    row("beside: waiting for data", &[Part::WaitData], None),
    row("beside: device, interrupts", &[Part::Device], None),
    row("beside: system call, sockets", &[Part::Call], None),
    row("beside: the program itself", &[Part::Program], None),
];

const fn row(label: &'static str, parts: &'static [Part], study: Option<[u32; 4]>) -> Row {
    Row { label, parts, study }
}

/// The line that a function's line is a part of, as the study has it: TCP in all, of its side.
pub fn whole(label: &str) -> Option<&'static str> {
    let row = ROWS.iter().find(|row| row.label == label && row.parts.len() == 1)?;
    let whole = ROWS.iter().find(|whole| {
        [SEND_TCP, RECEIVE_TCP].contains(&whole.parts) && whole.parts.contains(&row.parts[0])
    })?;
    Some(whole.label)
}

/// A size with the study's name, or as a short text.
pub fn size_name(size: usize) -> String {
    match SIZES.iter().position(|&known| known == size) {
        Some(at) => SIZE_NAMES[at].to_owned(),
        None => crate::figure::bytes(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_totals_of_the_study_are_tcp_and_ip() {
        let of = |label: &str| ROWS.iter().find(|row| row.label == label).unwrap().study.unwrap();
        for side in ["send", "receive"] {
            let [tcp, ip, all] =
                [": TCP, or our call, in all", ": IP", ": in all"].map(|row| of(&format!("{side}{row}")));
            assert!((0..4).all(|at| tcp[at] + ip[at] == all[at]), "{side}");
        }
    }

    #[test]
    fn part_functions_belong_to_tcp_of_their_side() {
        assert_eq!(whole("send: copy in"), Some("send: TCP, or our call, in all"));
        assert_eq!(whole("receive: buffer free"), Some("receive: TCP, or our call, in all"));
        assert!(
            ["send: IP", "send: in all", "beside: the program itself", "?"]
                .iter()
                .all(|row| whole(row).is_none())
        );
    }

    #[test]
    fn part_sums_leave_out_unknown_values() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.sum(SEND), None);
        cycles.add(Part::CopyIn, 3.0);
        cycles.add(Part::CopyIn, 1.0);
        cycles.add(Part::SendIp, 2.0);
        assert_eq!(
            (cycles.sum(SEND), cycles.sum(SEND_TCP), cycles.sum(RECEIVE)),
            (Some(6.0), Some(4.0), None)
        );
    }
}
