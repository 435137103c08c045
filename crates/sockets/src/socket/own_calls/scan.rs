//! Finds the system calls that a piece of machine code makes by itself.
//!
//! ```text
//!   ... b8 b9 01 00 00   mov $441,%eax
//!       48 89 de         mov %rbx,%rsi
//!       0f 05            syscall          <- the two bytes are looked for, the instructions before them are read
//! ```
//! The two bytes occur in other instructions and in tables too, once in 65,536 bytes. To tell, decoding starts at each
//! byte before them: such decodings soon fall into step with the code, so nearly all arrive there if it is an
//! instruction, and few if not.

use super::decode::{self, Effect, Register, Step};

/// Bytes before a call that are read.
const BEFORE: usize = 80;
/// Bytes before a call in which a register may have got the number that is later copied for it.
pub const REACH: usize = 4096;
/// Numbers of system calls are less.
const NUMBERS: u32 = 1024;

/// What is known of the number that a call is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This one.
    Is(u32),
    /// Whatever the caller of the function says.
    Any,
    /// Nothing.
    Unknown,
}

/// A register's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Constant(u32),
    /// What another register had before.
    From(Register),
    Unknown,
}

/// Calls `found` for each system call in `code` behind its first `skip` bytes, until it returns `false`.
pub fn calls(code: &[u8], skip: usize, mut found: impl FnMut(Number) -> bool) -> bool {
    let mut from = skip;
    while let Some(at) = next(code, from) {
        if let Some(number) = call(code, at)
            && !found(number)
        {
            return false;
        }
        from = at + 2;
    }
    true
}

/// Where the next `syscall` may be. Whole blocks are looked at at once.
fn next(code: &[u8], mut from: usize) -> Option<usize> {
    const BLOCK: usize = 64;
    let is = |pair: &[u8]| pair == [0x0f, 0x05];
    while let Some(block) = code.get(from..from + BLOCK + 1) {
        let firsts = block[..BLOCK].iter().zip(&block[1..]);
        if firsts.fold(false, |any, (&a, &b)| any | (a == 0x0f) & (b == 0x05)) {
            return block.windows(2).position(is).map(|at| from + at);
        }
        from += BLOCK;
    }
    code.get(from..)?.windows(2).position(is).map(|at| from + at)
}

/// The number of the call at `at`; `None` if there is none, but the bytes belong to something else.
fn call(code: &[u8], at: usize) -> Option<Number> {
    let (mut met, mut missed, mut value) = (0, 0, None);
    for start in at.saturating_sub(BEFORE)..at {
        match read(&code[start..], at - start) {
            Some(end) => {
                met += 1;
                value = value.or(Some(end));
            }
            None => missed += 1,
        }
    }
    if met <= missed {
        return None;
    }
    let behind = &code[at + 2..];
    Some(match value? {
        Value::Constant(number) => Number::Is(number),
        Value::From(_) | Value::Unknown if is_wrapper(behind) => Number::Any,
        Value::From(register) => {
            constant(&code[at.saturating_sub(REACH)..at], register).map_or(Number::Unknown, Number::Is)
        }
        Value::Unknown => Number::Unknown,
    })
}

/// Reads `len` bytes of instructions; the value of `rax` behind them, `None` if no instruction begins there.
fn read(code: &[u8], len: usize) -> Option<Value> {
    let (mut registers, mut pushed, mut at) = ([Value::Unknown; 16], None, 0);
    while at < len {
        let Step { len, effect } = decode::step(&code[at..])?;
        let before = registers;
        let mut set = |register: Register, value| registers[usize::from(register & 15)] = value;
        match effect {
            Effect::Nothing => {}
            Effect::Set(register, number) => set(register, Value::Constant(number)),
            Effect::Change(register) => set(register, Value::Unknown),
            Effect::Push(number) => pushed = number,
            Effect::Pop(register) => set(register, pushed.take().map_or(Value::Unknown, Value::Constant)),
            Effect::Forget => registers = [Value::Unknown; 16],
            Effect::Copy(to, from) => {
                let value = before[usize::from(from & 15)];
                set(to, if value == Value::Unknown { Value::From(from) } else { value });
            }
        }
        at += len;
    }
    (at == len).then_some(registers[0])
}

/// The last small constant that `register` gets in `code`.
fn constant(code: &[u8], register: Register) -> Option<u32> {
    let opcode = 0xb8 | register & 7;
    code.windows(6).rev().find_map(|bytes| {
        let [rex, found, number @ ..] = bytes.first_chunk::<6>()?;
        let is_high = rex & 0xf1 == 0x41;
        let number = u32::from_le_bytes(*number);
        (*found == opcode && is_high == (register >= 8) && number < NUMBERS).then_some(number)
    })
}

/// Whether what follows a call returns at once, or looks whether it failed: so do functions that make any call.
fn is_wrapper(behind: &[u8]) -> bool {
    const RETURNS: [&[u8]; 5] = [
        &[0xc3],
        &[0x5d, 0xc3],
        &[0xc9, 0xc3],
        &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff],
        &[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff],
    ];
    RETURNS.iter().any(|returns| behind.starts_with(returns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8]) -> Vec<Number> {
        let mut all = Vec::new();
        calls(code, 0, |number| {
            all.push(number);
            true
        });
        all
    }

    /// `mov $number,%eax` and two more instructions in front of the call, behind the end of another function.
    fn direct(number: u32) -> Vec<u8> {
        let [b0, b1, b2, b3] = number.to_le_bytes();
        let mut code = vec![0x48, 0x89, 0xd8, 0x5b, 0xc3];
        code.extend([0xcc; 40]);
        code.extend([0xb8, b0, b1, b2, b3, 0x48, 0x89, 0xde, 0x4d, 0x89, 0xfa, 0x0f, 0x05, 0x89, 0xc3]);
        code
    }

    #[test]
    fn scan_finds_call_numbers() {
        assert_eq!(found(&direct(441)), [Number::Is(441)]);
        let mut many = direct(425);
        many.extend([0x90; 100]);
        many.extend(direct(1));
        assert_eq!(found(&many), [Number::Is(425), Number::Is(1)]);
        // xor %eax,%eax; push $7, pop %rax
        assert_eq!(found(&[0x90, 0x90, 0x31, 0xc0, 0x0f, 0x05]), [Number::Is(0)]);
        assert_eq!(found(&[0x90, 0x90, 0x6a, 7, 0x58, 0x0f, 0x05]), [Number::Is(7)]);
    }

    #[test]
    fn scan_finds_a_number_set_in_another_register_before() {
        let mut code = vec![0x41, 0xbc, 0xa9, 1, 0, 0];
        code.extend([0x90; 500]);
        code.extend([0x44, 0x89, 0xe0, 0x0f, 0x05, 0x85, 0xc0]);
        assert_eq!(found(&code), [Number::Is(425)]);
    }

    #[test]
    fn scan_finds_a_function_that_makes_any_call() {
        // As `syscall(3)`: mov %rdi,%rax; mov %rsi,%rdi; syscall; cmp $-4095,%rax
        let mut code = vec![0x90; 20];
        code.extend([0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]);
        assert_eq!(found(&code), [Number::Any]);
    }

    #[test]
    fn scan_ignores_bytes_inside_other_instructions() {
        // mov 0x50f(%rip),%rax; jne +0x50f
        let mut code = vec![0x90; 30];
        code.extend([0xb8, 1, 0, 0, 0, 0x48, 0x8b, 0x05, 0x0f, 0x05, 0, 0, 0x0f, 0x85, 0x0f, 0x05, 0, 0]);
        code.extend([0x90; 30]);
        assert_eq!(found(&code), []);
        assert_eq!(found(&[0x0f]), []);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn scan_reads_overlapping_pieces_once() {
        let code = [direct(441), direct(1)].concat();
        let mut all = Vec::new();
        assert!(calls(&code, direct(441).len(), |number| {
            all.push(number);
            true
        }));
        assert_eq!(all, [Number::Is(1)]);
        assert!(!calls(&code, 0, |_| false));
    }
}
