//! A script: the calls of one sequence, as text and as what the executor reads.

use std::fmt;

/// One call: which process makes it, its name in the executor, its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub process: usize,
    pub call: String,
    pub args: Vec<i64>,
}

/// The calls of one sequence, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub ops: Vec<Op>,
}

impl Op {
    pub fn arg(&self, index: usize) -> i64 {
        self.args.get(index).copied().unwrap_or(0)
    }

    /// `TCP_NODELAY`: without it the kernel holds bytes back for a time that nobody knows, so it stays in every script.
    pub fn keeps_time(&self) -> bool {
        self.call == "setopt" && self.args.get(1..).is_some_and(|option| option == [6, 1, 4, 1])
    }
}

impl Script {
    /// Reads what `Display` writes; lines that begin with `#` are remarks.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let ops = lines.map(|line| parse_op(line).ok_or_else(|| format!("no call: {line}")));
        Ok(Self { ops: ops.collect::<Result<_, _>>()? })
    }
}

fn parse_op(line: &str) -> Option<Op> {
    let mut words = line.split_whitespace();
    let process = words.next()?.parse().ok()?;
    let call = words.next()?.to_owned();
    let args = words.map(number).collect::<Option<_>>()?;
    Some(Op { process, call, args })
}

fn number(word: &str) -> Option<i64> {
    match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.process, self.call)?;
        self.args.iter().try_for_each(|arg| write!(to, " {arg}"))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ops.iter().try_for_each(|op| writeln!(to, "{op}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_reads_back_as_written() {
        let text = "0 socket 0 2 1 0\n0 send 3 100 -1\n1 exit\n";
        let script = Script::parse(&format!("# why\n\n{text}")).unwrap();
        assert_eq!(script.to_string(), text);
        assert_eq!(Script::parse("0 send 0x10").unwrap().ops[0].args, [16]);
        assert!(Script::parse("send").is_err());
        assert!(Script::parse("0 send ten").is_err());
    }
}
