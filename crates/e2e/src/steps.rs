//! Counts by single steps what `send` and `recv` of an unmodified program do before their bytes are copied: function
//! frames, branches, cache lines of shared memory. x86-64.
//!
//! ```text
//!   tracer                          program (its own child, under the library)
//!                                   connects, warms up, SIGTRAP
//!   steps until it is in the library
//!   steps and counts, until an instruction touches the bytes that the program gave or wants
//! ```

mod trace;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Register};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::time::Duration;

/// The library that the program runs under.
const LIBRARY: &str = "libcrosslane_sockets.so";
/// Longest way to the copy, instructions.
const STEPS: u64 = 1_000_000;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// Longest instruction, bytes.
const LONGEST: usize = 15;
/// How long an echo takes at most.
const ARRIVAL: Duration = Duration::from_millis(50);
/// Round trips before anything is counted.
const WARM_UP: usize = 2000;

/// A call that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// `send`.
    Send,
    /// `recv` of bytes that have arrived.
    Recv,
}

/// What is counted, in this order.
pub const CASES: [(Call, usize); 4] =
    [(Call::Send, 64), (Call::Recv, 64), (Call::Send, 4096), (Call::Recv, 4096)];

/// The work of a call before its bytes were touched.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// Which.
    pub call: Call,
    /// Bytes that the program gave, or had room for.
    pub bytes: usize,
    /// Instructions.
    pub instructions: u64,
    /// Functions that were called, the hook itself among them.
    pub frames: u64,
    /// Those that had not returned at the copy.
    pub depth: i64,
    /// Conditional branches.
    pub branches: u64,
    /// Those that were taken.
    pub taken: u64,
    /// Calls and jumps by a pointer.
    pub indirect: u64,
    /// Different cache lines of shared memory that were loaded or stored.
    pub shared_lines: usize,
    /// The same of all memory.
    pub lines: usize,
    /// Read-modify-write instructions with a lock, and fences.
    pub locked: u64,
    /// System calls.
    pub system_calls: u64,
    /// Where each function that was called begins: file and offset, for `addr2line -e FILE -f OFFSET`.
    pub calls: Vec<String>,
}

/// The program: connects to a server that echoes, and stops before each of [`CASES`].
///
/// # Errors
/// The connection is not what it should be.
pub fn run_program(server: SocketAddr) -> Result<()> {
    trace::ask_to_be_traced()?;
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![7; 4096];
    for round in 0..WARM_UP {
        let bytes = if round % 2 == 0 { 64 } else { 4096 };
        stream.write_all(&buffer[..bytes])?;
        stream.read_exact(&mut buffer[..bytes])?;
    }
    for (call, bytes) in CASES {
        match call {
            Call::Send => {
                stop()?;
                ensure!(stream.write(&buffer[..bytes])? == bytes, "it was not taken whole");
                stream.read_exact(&mut buffer[..bytes])?;
            }
            Call::Recv => {
                stream.write_all(&buffer[..bytes])?;
                std::thread::sleep(ARRIVAL);
                stop()?;
                ensure!(stream.read(&mut buffer[..bytes])? == bytes, "it was not given whole");
            }
        }
    }
    Ok(())
}

fn stop() -> Result<()> {
    Ok(rustix::process::kill_process(rustix::process::getpid(), Signal::TRAP)?)
}

/// Counts the work of a program that runs [`run_program`].
///
/// # Errors
/// It does not, or has no stream.
pub fn count(mut program: Command) -> Result<Vec<Count>> {
    let mut tracer = Tracer::new(program.spawn()?)?;
    let counts = CASES.into_iter().map(|case| tracer.count(case)).collect::<Result<_>>()?;
    tracer.let_go()?;
    Ok(counts)
}

struct Tracer {
    child: Child,
    pid: Pid,
    memory: File,
}

/// The layout of the program's memory.
struct Map {
    library: Vec<Range<u64>>,
    shared: Vec<Range<u64>>,
    /// Code of all files, with the offset in the file at which it begins.
    code: Vec<(Range<u64>, u64, String)>,
}

impl Map {
    fn of(pid: Pid) -> Result<Self> {
        let mut map = Self { library: Vec::new(), shared: Vec::new(), code: Vec::new() };
        for line in fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero()))?.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            let (begin, end) = range.split_once('-').context("maps")?;
            let range = u64::from_str_radix(begin, 16)?..u64::from_str_radix(end, 16)?;
            let offset = u64::from_str_radix(words.next().context("maps")?, 16)?;
            if let (true, Some(file)) = (rights.contains('x'), words.nth(2)) {
                map.code.push((range.clone(), offset, file.to_owned()));
            }
            if line.ends_with(LIBRARY) && rights.contains('x') {
                map.library.push(range);
            } else if rights.ends_with('s') {
                map.shared.push(range);
            }
        }
        ensure!(!map.library.is_empty(), "the program does not run under {LIBRARY}");
        Ok(map)
    }
}

impl Map {
    /// File and offset of an address of code.
    fn place(&self, address: u64) -> String {
        let found = self.code.iter().find(|(range, ..)| range.contains(&address));
        let Some((range, offset, file)) = found else { return format!("{address:#x}") };
        format!("{file}+{:#x}", address - range.start + offset)
    }
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

impl Tracer {
    fn new(child: Child) -> Result<Self> {
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid, memory: File::open(format!("/proc/{}/mem", pid.as_raw_nonzero()))? })
    }

    /// Lets the program run until it stops for the next case.
    fn await_stop(&mut self) -> Result<()> {
        loop {
            match self.wait()? {
                Signal::TRAP => return Ok(()),
                other => trace::go_on(self.pid, Some(other))?,
            }
        }
    }

    /// The signal by which it has stopped.
    fn wait(&mut self) -> Result<Signal> {
        let (_, status) = waitpid(Some(self.pid), WaitOptions::empty())?.context("no child")?;
        let signal =
            status.stopping_signal().with_context(|| format!("the program has ended: {status:?}"))?;
        Signal::from_named_raw(signal).context("a signal without a name")
    }

    /// Executes one instruction.
    fn step(&mut self) -> Result<()> {
        trace::step(self.pid)?;
        match self.wait()? {
            Signal::TRAP => Ok(()),
            other => bail!("{other:?} in the middle of a call"),
        }
    }

    fn instruction(&self, ip: u64) -> Result<Instruction> {
        let mut bytes = [0; LONGEST];
        let got = self.memory.read_at(&mut bytes, ip)?;
        let instruction = Decoder::with_ip(64, &bytes[..got], ip, DecoderOptions::NONE).decode();
        ensure!(!instruction.is_invalid(), "no instruction at {ip:#x}");
        Ok(instruction)
    }

    fn count(&mut self, (call, bytes): (Call, usize)) -> Result<Count> {
        self.await_stop()?;
        let map = Map::of(self.pid)?;
        let mut registers = trace::registers(self.pid)?;
        for _ in 0..STEPS {
            if is_in(&map.library, registers.rip) {
                break;
            }
            self.step()?;
            registers = trace::registers(self.pid)?;
        }
        ensure!(registers.rdx == bytes as u64, "that is another call: {} bytes", registers.rdx);
        let buffer = registers.rsi..registers.rsi + registers.rdx;
        let mut way = Way::new((call, bytes), &map, buffer);
        for _ in 0..STEPS {
            let instruction = self.instruction(registers.rip)?;
            if way.note(&instruction, &registers) {
                trace::go_on(self.pid, None)?;
                return Ok(way.end());
            }
            self.step()?;
            let after = trace::registers(self.pid)?;
            if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                && instruction.code() != Code::Syscall
            {
                way.count.calls.push(map.place(after.rip));
            }
            way.count.taken += u64::from(
                instruction.flow_control() == FlowControl::ConditionalBranch
                    && after.rip != instruction.next_ip(),
            );
            registers = after;
        }
        bail!("no byte was touched within {STEPS} instructions")
    }

    fn let_go(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

/// The work so far on the way to the copy.
struct Way<'map> {
    map: &'map Map,
    buffer: Range<u64>,
    info: InstructionInfoFactory,
    count: Count,
    shared: BTreeSet<u64>,
    all: BTreeSet<u64>,
}

impl<'map> Way<'map> {
    fn new((call, bytes): (Call, usize), map: &'map Map, buffer: Range<u64>) -> Self {
        let count = Count {
            call,
            bytes,
            instructions: 0,
            frames: 1,
            depth: 1,
            branches: 0,
            taken: 0,
            indirect: 0,
            shared_lines: 0,
            lines: 0,
            locked: 0,
            system_calls: 0,
            calls: Vec::new(),
        };
        let (shared, all) = (BTreeSet::new(), BTreeSet::new());
        Self { map, buffer, info: InstructionInfoFactory::new(), count, shared, all }
    }

    /// Counts what the next instruction will do; `true` if that is the copy.
    fn note(&mut self, instruction: &Instruction, registers: &libc::user_regs_struct) -> bool {
        let touched: Vec<(u64, u64)> = self
            .info
            .info(instruction)
            .used_memory()
            .iter()
            .filter(|memory| memory.memory_size().size() > 0)
            .filter_map(|memory| {
                let address = memory.virtual_address(0, |register, _, _| value(register, registers))?;
                Some((address, memory.memory_size().size() as u64))
            })
            .collect();
        if touched.iter().any(|(address, _)| self.buffer.contains(address)) {
            return true;
        }
        for (address, size) in touched {
            for line in address / LINE..=(address + size - 1) / LINE {
                self.all.insert(line);
                if is_in(&self.map.shared, address) {
                    self.shared.insert(line);
                }
            }
        }
        let count = &mut self.count;
        count.instructions += 1;
        count.locked += u64::from(is_locked(instruction));
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                (count.frames, count.depth) = (count.frames + 1, count.depth + 1);
                count.indirect += u64::from(instruction.flow_control() == FlowControl::IndirectCall);
                count.system_calls += u64::from(instruction.code() == Code::Syscall);
                if instruction.code() == Code::Syscall {
                    (count.frames, count.depth) = (count.frames - 1, count.depth - 1);
                }
            }
            FlowControl::Return => count.depth -= 1,
            FlowControl::ConditionalBranch => count.branches += 1,
            FlowControl::IndirectBranch => count.indirect += 1,
            _ => {}
        }
        false
    }

    fn end(mut self) -> Count {
        (self.count.shared_lines, self.count.lines) = (self.shared.len(), self.all.len());
        self.count
    }
}

/// Whether the instruction synchronizes with other processors.
fn is_locked(instruction: &Instruction) -> bool {
    let exchanges = matches!(
        instruction.code(),
        Code::Xchg_rm8_r8 | Code::Xchg_rm16_r16 | Code::Xchg_rm32_r32 | Code::Xchg_rm64_r64
    );
    instruction.has_lock_prefix()
        || matches!(instruction.code(), Code::Mfence | Code::Sfence)
        || exchanges && instruction.op0_register() == Register::None
}

fn value(register: Register, registers: &libc::user_regs_struct) -> Option<u64> {
    Some(match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::RIP => registers.rip,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}
