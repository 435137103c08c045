//! Cycle accounting: where the time of sending and of receiving goes, by the functions of the TCP/IP study.
//!
//! Off unless [`begin`] was called with a file. A span then costs a load of one word, which is null, and a branch on it
//! that is always predicted: measured on an EPYC of 2.6 GHz, 1.6 cycles. The ring's loops avoid even that: they exist
//! twice, and [`is_on`] chooses. To send 64 bytes into a ring and receive them took 22.4 ns before there was any
//! counting, and takes 23.2; with a span at each function it took 25.9. When on, a span reads the clock twice and does
//! two additions to shared memory: 48 cycles there, 24 of which are counted as the span's own. `crosslane bench stack`
//! measures both again. Nothing here allocates, blocks or makes a system call, so a signal handler may interrupt it.
//!
//! The counts are words of a file, so that a tool can read them while programs run and after they have ended. Programs
//! with the same file are counted together.
//!
//! ```text
//!   send():     Rest [ Allot [ CopyIn ] ] [ Acknowledge ]  WaitSpace
//!   receive():  Rest [ HeaderCheck ] [ CopyOut ] [ Free ] [ Acknowledge ]  WaitData
//! ```
//! The time of an inner span is deducted from the outer one: no time counts twice.

mod cost;
mod file;

pub use cost::{Overhead, idle, overhead, ticks_per_second};
pub use file::{VARIABLE, begin, begin_if_asked};

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// First word of such a file; each layout has its own.
const MAGIC: u64 = u64::from_le_bytes(*b"XLACCT01");

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Function {
    /// Finding room for bytes to be sent, and making their record.
    Allot,
    /// Copying from the program's buffer.
    CopyIn,
    /// Waiting for the receiver to give room, asleep or not.
    WaitSpace,
    /// Checking whether a record has arrived, and whether its header is valid.
    HeaderCheck,
    /// Telling the far side of new room, or of data that it waits for.
    Acknowledge,
    /// Copying into the program's buffer.
    CopyOut,
    /// Giving a record's memory back.
    Free,
    /// Waiting for data, asleep or not. Not a function of the study.
    WaitData,
    /// The rest of the program's call. Not a function of the study.
    Rest,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 9] = [
        Self::Allot,
        Self::CopyIn,
        Self::WaitSpace,
        Self::HeaderCheck,
        Self::Acknowledge,
        Self::CopyOut,
        Self::Free,
        Self::WaitData,
        Self::Rest,
    ];
}

/// The direction of the bytes on which time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// Sending.
    Send,
    /// Receiving.
    Receive,
}

/// Time and calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Units of [`ticks`], without those of spans within.
    pub ticks: u64,
    /// Spans that ended.
    pub calls: u64,
}

/// All counts of a file at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([[Count; Function::ALL.len()]; 2]);

#[repr(C)]
#[derive(Debug)]
struct Line {
    ticks: AtomicU64,
    calls: AtomicU64,
}

/// The lines of one way: a thread that sends and one that receives do not share a cache line.
#[repr(C, align(64))]
#[derive(Debug)]
struct Lines([Line; Function::ALL.len()]);

#[repr(C, align(64))]
#[derive(Debug)]
struct Table {
    magic: AtomicU64,
    ways: [Lines; 2],
}

/// Bytes of a file.
const LEN: usize = size_of::<Table>();

/// The mapped file; null while nothing is counted.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

thread_local! {
    /// Time that inner spans of the present one have taken.
    static WITHIN: Cell<u64> = const { Cell::new(0) };
}

/// Counts time until it is dropped.
#[derive(Debug)]
#[must_use = "it counts until it is dropped"]
pub struct Span {
    line: Option<&'static Line>,
    start: u64,
    within: u64,
}

/// Counts time of sending as `function`, until the span is dropped.
#[inline]
pub fn sending(function: Function) -> Span {
    span(Way::Send, function)
}

/// Counts time of receiving as `function`, until the span is dropped.
#[inline]
pub fn receiving(function: Function) -> Span {
    span(Way::Receive, function)
}

/// Counts time as `function`, until the span is dropped.
#[inline]
pub fn span(way: Way, function: Function) -> Span {
    // SAFETY: null, or a mapping that stays for the life of the process.
    match unsafe { TABLE.load(Acquire).as_ref() } {
        None => Span { line: None, start: 0, within: 0 },
        Some(table) => Span::on(table, way, function),
    }
}

/// Whether spans are counted.
#[inline(always)]
pub fn is_on() -> bool {
    !TABLE.load(Relaxed).is_null()
}

/// Calls `call`, the counting variant, out of line, so that the variant without counting stays compact.
#[cold]
#[inline(never)]
pub fn aside<T>(call: impl FnOnce() -> T) -> T {
    call()
}

impl Span {
    #[cold]
    fn on(table: &'static Table, way: Way, function: Function) -> Self {
        let line = &table.ways[way as usize].0[function as usize];
        let within = WITHIN.try_with(|within| within.replace(0)).unwrap_or(0);
        Self { line: Some(line), start: ticks(), within }
    }

    #[cold]
    fn end(&self, line: &Line) {
        let all = ticks().saturating_sub(self.start);
        let within = WITHIN.try_with(|within| within.replace(self.within.wrapping_add(all))).unwrap_or(0);
        line.ticks.fetch_add(all.saturating_sub(within), Relaxed);
        line.calls.fetch_add(1, Relaxed);
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(line) = self.line {
            self.end(line);
        }
    }
}

impl Line {
    const fn new() -> Self {
        Self { ticks: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }
}

impl Lines {
    const fn new() -> Self {
        Self([const { Line::new() }; Function::ALL.len()])
    }
}

impl Table {
    const fn new() -> Self {
        Self { magic: AtomicU64::new(MAGIC), ways: [const { Lines::new() }; 2] }
    }
}

/// The present time: cycles of the processor's constant clock (TSC) on x86-64, else ns. The read does not wait for
/// earlier instructions to finish: the end of a short copy may count for the function after it. With a barrier here a
/// message of 1.4 KB took twice its time, since cache misses were waited for that otherwise overlap.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has this instruction, and Linux lets programs use it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static MINE: Table = Table::new();

    fn count(way: Way, function: Function) -> (u64, u64) {
        let line = &MINE.ways[way as usize].0[function as usize];
        (line.ticks.load(Relaxed), line.calls.load(Relaxed))
    }

    fn pass(least: u64) {
        let from = ticks();
        while ticks() - from < least {
            core::hint::spin_loop();
        }
    }

    #[test]
    fn account_takes_inner_spans_off_outer_ones() {
        const LONG: u64 = 10_000_000;
        let from = ticks();
        {
            let _outer = Span::on(&MINE, Way::Send, Function::Rest);
            pass(LONG);
            {
                let _inner = Span::on(&MINE, Way::Send, Function::Allot);
                pass(2 * LONG);
                let _innermost = Span::on(&MINE, Way::Receive, Function::CopyOut);
                pass(3 * LONG);
            }
            let _second = Span::on(&MINE, Way::Send, Function::Allot);
            pass(LONG);
        }
        let all = ticks() - from;
        let (rest, allot) = (count(Way::Send, Function::Rest), count(Way::Send, Function::Allot));
        let copy = count(Way::Receive, Function::CopyOut);
        assert_eq!((rest.1, allot.1, copy.1), (1, 2, 1));
        assert!(rest.0 >= LONG && allot.0 >= 3 * LONG && copy.0 >= 3 * LONG, "{rest:?} {allot:?} {copy:?}");
        assert!(
            rest.0 + allot.0 + copy.0 <= all,
            "nothing counts twice: {rest:?} {allot:?} {copy:?} of {all}"
        );
        assert_eq!(count(Way::Receive, Function::Rest), (0, 0));
    }
}
