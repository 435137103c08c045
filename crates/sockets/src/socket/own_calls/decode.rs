//! x86-64 instructions, as far as is needed to follow which number a system call is made with.
//!
//! It knows the lengths of what compilers put around a system call, and which register an instruction changes. An
//! unknown instruction ends the reading without a result.

/// Number of a general register: 0 is `rax`, 4 `rsp`, 7 `rdi`.
pub type Register = u8;

/// What an instruction does to the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that is followed here.
    Nothing,
    /// A register gets a constant.
    Set(Register, u32),
    /// The first register gets the second one's value.
    Copy(Register, Register),
    /// A register gets something else.
    Change(Register),
    /// A constant, or something else, is pushed.
    Push(Option<u32>),
    /// A register gets what was pushed last.
    Pop(Register),
    /// What is behind it is reached from elsewhere, or after a call: no register is known.
    Forget,
}

/// An instruction: its length in bytes and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub len: usize,
    pub effect: Effect,
}

/// Prefixes in front of an opcode.
#[derive(Clone, Copy, Default)]
struct Prefix {
    len: usize,
    narrow: bool,
    /// The bits of REX.
    rex: u8,
}

impl Prefix {
    fn of(code: &[u8]) -> Self {
        let mut prefix = Self::default();
        while let Some(0x66 | 0xf2 | 0xf3 | 0x64 | 0x2e) = code.get(prefix.len) {
            prefix.narrow |= code[prefix.len] == 0x66;
            prefix.len += 1;
        }
        if let Some(&rex @ 0x40..=0x4f) = code.get(prefix.len) {
            prefix.rex = rex & 0xf;
            prefix.len += 1;
        }
        prefix
    }

    fn is_wide(self) -> bool {
        self.rex & 8 != 0
    }

    /// The register in the lowest bits of an opcode, or in `rm`.
    fn base(self, bits: u8) -> Register {
        bits & 7 | (self.rex & 1) << 3
    }

    /// The register in `reg`.
    fn reg(self, modrm: u8) -> Register {
        modrm >> 3 & 7 | (self.rex & 4) << 1
    }
}

/// The instruction that `code` begins with; `None` if it is none that is known here.
pub fn step(code: &[u8]) -> Option<Step> {
    let prefix = Prefix::of(code);
    let (&opcode, rest) = code.get(prefix.len..)?.split_first()?;
    let head = prefix.len + 1;
    if opcode == 0x0f {
        let step = two_bytes(prefix, rest)?;
        return Some(Step { len: step.len + head, ..step });
    }
    let immediate = if prefix.narrow { 2 } else { 4 };
    let plain = |len, effect| Some(Step { len: head + len, effect });
    match opcode {
        0x00..=0x3f if opcode & 7 < 4 => {
            let (modrm, len) = operand(rest)?;
            let compares = opcode >= 0x38;
            let same = modrm >= 0xc0 && prefix.reg(modrm) == prefix.base(modrm);
            // `xor` and `sub` of a register with itself.
            let effect = match opcode {
                0x31 | 0x33 | 0x29 | 0x2b if same => Effect::Set(prefix.base(modrm), 0),
                _ if compares => Effect::Nothing,
                _ if opcode & 2 != 0 => Effect::Change(prefix.reg(modrm)),
                _ => changed(prefix, modrm),
            };
            plain(len, effect)
        }
        0x00..=0x3f if opcode & 7 == 4 => plain(1, Effect::Change(0)),
        0x00..=0x3f if opcode & 7 == 5 => {
            plain(immediate, if opcode == 0x3d { Effect::Nothing } else { Effect::Change(0) })
        }
        0x50..=0x57 => plain(0, Effect::Push(None)),
        0x58..=0x5f => plain(0, Effect::Pop(prefix.base(opcode))),
        0x63 | 0x8b | 0x8d => {
            let (modrm, len) = operand(rest)?;
            let copies = opcode != 0x8d && modrm >= 0xc0;
            let to = prefix.reg(modrm);
            plain(len, if copies { Effect::Copy(to, prefix.base(modrm)) } else { Effect::Change(to) })
        }
        0x89 => {
            let (modrm, len) = operand(rest)?;
            let copy = Effect::Copy(prefix.base(modrm), prefix.reg(modrm));
            plain(len, if modrm >= 0xc0 { copy } else { Effect::Nothing })
        }
        0x68 => plain(4, Effect::Push(word(rest))),
        0x6a => plain(1, Effect::Push(rest.first().map(|&byte| u32::from(byte)))),
        0x69 | 0x6b => {
            let (modrm, len) = operand(rest)?;
            plain(len + if opcode == 0x69 { immediate } else { 1 }, Effect::Change(prefix.reg(modrm)))
        }
        0x80 | 0x81 | 0x83 => {
            let (modrm, len) = operand(rest)?;
            let compares = modrm >> 3 & 7 == 7;
            let effect = if compares { Effect::Nothing } else { changed(prefix, modrm) };
            plain(len + if opcode == 0x81 { immediate } else { 1 }, effect)
        }
        0x84 | 0x85 => plain(operand(rest)?.1, Effect::Nothing),
        0x86 | 0x87 | 0x8a => {
            let (modrm, len) = operand(rest)?;
            plain(len, Effect::Change(prefix.reg(modrm)))
        }
        0x88 | 0xd0..=0xd3 => {
            let (modrm, len) = operand(rest)?;
            plain(len, changed(prefix, modrm))
        }
        // The number keeps its value when it is extended.
        0x90 | 0x98 | 0x99 | 0xcc => plain(0, Effect::Nothing),
        0x70..=0x7f | 0xa8 => plain(1, Effect::Nothing),
        0xa9 => plain(immediate, Effect::Nothing),
        0xb0..=0xb7 => plain(1, Effect::Change(prefix.base(opcode))),
        0xb8..=0xbf if prefix.is_wide() => plain(8, Effect::Change(prefix.base(opcode))),
        0xb8..=0xbf => plain(immediate, Effect::Set(prefix.base(opcode), word(rest)?)),
        0xc0 | 0xc1 => {
            let (modrm, len) = operand(rest)?;
            plain(len + 1, changed(prefix, modrm))
        }
        0xc2 => plain(2, Effect::Forget),
        0xc3 | 0xc9 => plain(0, Effect::Forget),
        0xc6 => plain(operand(rest)?.1 + 1, Effect::Nothing),
        0xc7 => {
            let (modrm, len) = operand(rest)?;
            let sets = modrm >= 0xc0;
            let effect =
                if sets { Effect::Set(prefix.base(modrm), word(rest.get(len..)?)?) } else { Effect::Nothing };
            plain(len + immediate, effect)
        }
        0xe8 | 0xe9 => plain(4, Effect::Forget),
        0xeb => plain(1, Effect::Forget),
        0xf6 | 0xf7 => {
            let (modrm, len) = operand(rest)?;
            match modrm >> 3 & 7 {
                0 | 1 => plain(len + if opcode == 0xf6 { 1 } else { immediate }, Effect::Nothing),
                2 | 3 => plain(len, changed(prefix, modrm)),
                _ => plain(len, Effect::Change(0)),
            }
        }
        0xfe | 0xff => {
            let (modrm, len) = operand(rest)?;
            match modrm >> 3 & 7 {
                0 | 1 => plain(len, changed(prefix, modrm)),
                2 | 4 if opcode == 0xff => plain(len, Effect::Forget),
                6 if opcode == 0xff => plain(len, Effect::Push(None)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Opcodes behind `0f`.
fn two_bytes(prefix: Prefix, code: &[u8]) -> Option<Step> {
    let (&opcode, rest) = code.split_first()?;
    let plain = |len, effect| Some(Step { len: 1 + len, effect });
    match opcode {
        // A system call: the result is in `rax`, `rcx` and `r11` are lost.
        0x05 => plain(0, Effect::Change(0)),
        0x0b | 0xa2 => plain(0, Effect::Forget),
        // Vectors; nothing of the general registers.
        0x10..=0x17
        | 0x1e
        | 0x1f
        | 0x28
        | 0x29
        | 0x51..=0x5f
        | 0x60..=0x6d
        | 0x6f
        | 0x7f
        | 0xd6
        | 0xe7
        | 0xef
        | 0xeb
        | 0xdb
        | 0xd4
        | 0xfe => plain(operand(rest)?.1, Effect::Nothing),
        // The same of a general register that is only read.
        0x6e | 0xa3 => plain(operand(rest)?.1, Effect::Nothing),
        0x70 | 0xba | 0xc6 => plain(operand(rest)?.1 + 1, Effect::Nothing),
        0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xbc..=0xbf => {
            let (modrm, len) = operand(rest)?;
            plain(len, Effect::Change(prefix.reg(modrm)))
        }
        0x80..=0x8f => plain(4, Effect::Nothing),
        0x7e | 0x90..=0x9f => {
            let (modrm, len) = operand(rest)?;
            plain(len, changed(prefix, modrm))
        }
        0xb0 | 0xb1 | 0xc0 | 0xc1 => plain(operand(rest)?.1, Effect::Change(0)),
        _ => None,
    }
}

/// The operand in `rm` is written.
fn changed(prefix: Prefix, modrm: u8) -> Effect {
    if modrm >= 0xc0 { Effect::Change(prefix.base(modrm)) } else { Effect::Nothing }
}

/// The byte `modrm`, and the length of all that says where the operand is.
fn operand(code: &[u8]) -> Option<(u8, usize)> {
    let &modrm = code.first()?;
    let (kind, rm) = (modrm >> 6, modrm & 7);
    let mut len = 1;
    let mut is_absolute = kind == 0 && rm == 5;
    if kind != 3 && rm == 4 {
        is_absolute = kind == 0 && code.get(1)? & 7 == 5;
        len += 1;
    }
    len += match kind {
        0 if is_absolute => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some((modrm, len))
}

fn word(code: &[u8]) -> Option<u32> {
    code.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_lengths_and_effects_of_compiled_code() {
        let known: &[(&[u8], usize, Effect)] = &[
            (&[0xb8, 0xb9, 1, 0, 0], 5, Effect::Set(0, 441)),
            (&[0x41, 0xb9, 8, 0, 0, 0], 6, Effect::Set(9, 8)),
            (&[0x48, 0xc7, 0xc0, 7, 0, 0, 0], 7, Effect::Set(0, 7)),
            (&[0x31, 0xc0], 2, Effect::Set(0, 0)),
            (&[0x45, 0x31, 0xed], 3, Effect::Set(13, 0)),
            (&[0x31, 0xd8], 2, Effect::Change(0)),
            (&[0x4c, 0x89, 0xe7], 3, Effect::Copy(7, 12)),
            (&[0x44, 0x89, 0xe0], 3, Effect::Copy(0, 12)),
            (&[0x48, 0x8b, 0xb3, 0xa0, 0, 0, 0], 7, Effect::Change(6)),
            (&[0x48, 0x8b, 0x44, 0x24, 8], 5, Effect::Change(0)),
            (&[0x4c, 0x8d, 0x85, 0x30, 0xff, 0xff, 0xff], 7, Effect::Change(8)),
            (&[0x6a, 7], 2, Effect::Push(Some(7))),
            (&[0x58], 1, Effect::Pop(0)),
            (&[0x48, 0x3d, 1, 0xf0, 0xff, 0xff], 6, Effect::Nothing),
            (&[0x66, 0x0f, 0x1f, 0x44, 0, 0], 6, Effect::Nothing),
            (&[0xe8, 1, 2, 3, 4], 5, Effect::Forget),
            (&[0x0f, 0x84, 1, 0, 0, 0], 6, Effect::Nothing),
            (&[0xf3, 0x0f, 0x1e, 0xfa], 4, Effect::Nothing),
            (&[0xff, 0xd0], 2, Effect::Forget),
            (&[0x83, 0xf8, 0xda], 3, Effect::Nothing),
        ];
        for &(code, len, effect) in known {
            assert_eq!(step(code), Some(Step { len, effect }), "{code:x?}");
        }
        assert_eq!(step(&[]), None);
        assert_eq!(step(&[0xb8, 1]), None);
        assert_eq!(step(&[0x0f]), None);
    }
}
