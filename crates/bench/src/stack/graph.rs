//! The kernel's functions by its `function_graph` tracer, which notes when each of them begins and ends.
//!
//! Only functions that a rule of [`super::attribute`] names are traced. What one takes without those that it calls is its own;
//! time asleep counts, as in the study. Tracing needs root, and a kernel with `CONFIG_FUNCTION_GRAPH_TRACER`.

use super::attribute::{rule, traced};
use super::part::{Cycles, Part};
use crate::program::process::run;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, HashMap};
use std::fs::{OpenOptions, read_to_string, write};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where the tracer is.
const FOLDER: &str = "/sys/kernel/tracing";
/// Memory for what is noted, KB and processor.
const BUFFER: &str = "65536";
/// What the kernel has for it if nobody says more, KB and processor.
const USUAL_BUFFER: &str = "1408";
/// What it prints beside times and names: the process of each line, and names behind closing brackets.
const OPTIONS: [&str; 4] = ["funcgraph-proc", "funcgraph-tail", "funcgraph-duration", "sleep-time"];
/// How long a mount may take.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether this kernel has the tracer; its tracers are mounted if they are not.
///
/// # Errors
/// It has none, or does not show it to this user: the error says why.
pub fn check() -> Result<()> {
    let tracers = Path::new(FOLDER).join("available_tracers");
    if !tracers.exists() {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tracefs", "none", FOLDER]);
        run(mount, MOUNT_TIMEOUT).context("cannot mount the kernel's tracers (run as root)")?;
    }
    let known = read_to_string(&tracers).context("the kernel's tracers cannot be read (run as root)")?;
    let is_there = known.split_whitespace().any(|tracer| tracer == "function_graph");
    ensure!(
        is_there,
        "this kernel has no function_graph (tracers: {}): CONFIG_FUNCTION_GRAPH_TRACER",
        known.trim()
    );
    Ok(())
}

/// A running trace; the tracer is off again when this is dropped.
#[derive(Debug)]
pub struct Tracer(());

impl Tracer {
    /// Begins to trace what these processes do in the kernel.
    ///
    /// # Errors
    /// The kernel refuses, or knows none of the functions.
    pub fn start(pids: &[u32]) -> Result<Self> {
        check()?;
        let tracer = Self(());
        off()?;
        set("buffer_size_kb", BUFFER)?;
        for option in OPTIONS {
            set(&format!("options/{option}"), "1")?;
        }
        set("set_ftrace_pid", &pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?;
        // A kernel need not have each of them by this name; some are inlined.
        let found = traced().into_iter().filter(|name| append("set_ftrace_filter", name).is_ok()).count();
        ensure!(found > 0, "the kernel has none of the functions by these names");
        set("current_tracer", "function_graph")?;
        set("tracing_on", "1")?;
        Ok(tracer)
    }

    /// Ends the trace: what the functions took.
    ///
    /// # Errors
    /// More was noted than there is memory for, or it cannot be read.
    pub fn stop(self) -> Result<Graph> {
        set("tracing_on", "0")?;
        let graph = Graph::read(&read_to_string(Path::new(FOLDER).join("trace"))?);
        ensure!(!graph.is_cut, "more was traced than the kernel keeps; trace a shorter time");
        Ok(graph)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = off();
        let _ = set("set_ftrace_pid", "");
        let _ = set("set_ftrace_filter", "");
        let _ = set("buffer_size_kb", USUAL_BUFFER);
    }
}

fn off() -> Result<()> {
    set("tracing_on", "0")?;
    set("current_tracer", "nop")
}

fn set(file: &str, value: &str) -> Result<()> {
    write(Path::new(FOLDER).join(file), value).with_context(|| format!("the tracer refuses {file} {value}"))
}

fn append(file: &str, value: &str) -> Result<()> {
    Ok(OpenOptions::new().append(true).open(Path::new(FOLDER).join(file))?.write_all(value.as_bytes())?)
}

/// What the traced functions took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Time by function and its part, microseconds, and how often it was called.
    functions: BTreeMap<(Part, &'static str), (f64, u64)>,
    /// The kernel had to drop something.
    is_cut: bool,
}

/// A function that has begun.
struct Open {
    name: String,
    owner: Option<(Part, &'static str)>,
    /// Time of traced functions that it called, microseconds.
    called: f64,
}

impl Graph {
    /// Reads what the tracer prints.
    fn read(trace: &str) -> Self {
        let mut graph = Self::default();
        let mut stacks: HashMap<u32, Vec<Open>> = HashMap::new();
        for line in trace.lines() {
            graph.is_cut |= line.contains("LOST") || is_overrun(line);
            if let Some(line) = Line::parse(line) {
                graph.take(stacks.entry(line.pid).or_default(), &line);
            }
        }
        graph
    }

    fn take(&mut self, stack: &mut Vec<Open>, line: &Line<'_>) {
        match line.event {
            Event::Begin => stack.push(opened(stack, line.name)),
            Event::Call => {
                let call = opened(stack, line.name);
                self.end(stack, &call, line.took);
            }
            Event::End => {
                // What began before the trace did has no beginning here.
                while let Some(open) = stack.pop() {
                    if line.name.is_empty() || open.name == line.name {
                        return self.end(stack, &open, line.took);
                    }
                }
            }
        }
    }

    fn end(&mut self, stack: &mut [Open], call: &Open, took: Option<f64>) {
        let took = took.unwrap_or(0.0);
        if let Some(caller) = stack.last_mut() {
            caller.called += took;
        }
        if let Some(owner) = call.owner {
            let (time, calls) = self.functions.entry(owner).or_default();
            *time += (took - call.called).max(0.0);
            *calls += 1;
        }
    }

    /// Cycles by part of a message, of `messages`; `clock`: ticks in a second.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn cycles(&self, messages: u64, clock: f64) -> Cycles {
        let mut cycles = Cycles::default();
        for ((part, _), (time, _)) in &self.functions {
            cycles.add(*part, time * clock / 1e6 / messages.max(1) as f64);
        }
        cycles
    }

    /// The functions that were seen, with the number of their calls, by name.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let mut calls: Vec<_> =
            self.functions.iter().map(|((_, name), (_, calls))| (*name, *calls)).collect();
        calls.sort_unstable();
        calls
    }
}

/// A function of this name, called by the innermost of `stack`. One that no rule names is its caller's.
fn opened(stack: &[Open], name: &str) -> Open {
    let caller = stack.last();
    let own = rule(name, caller.map(|caller| &*caller.name));
    Open { name: name.to_owned(), owner: own.or_else(|| caller?.owner), called: 0.0 }
}

/// `# entries-in-buffer/entries-written: 140080/250280   #P:4`: more was written than is left.
fn is_overrun(line: &str) -> bool {
    let Some(counts) = line.strip_prefix("# entries-in-buffer/entries-written:") else { return false };
    let counts = counts.split_whitespace().next().and_then(|counts| counts.split_once('/'));
    counts.is_some_and(|(left, written)| left != written)
}

/// What a line says of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// It begins.
    Begin,
    /// It ends.
    End,
    /// It was called and called nothing that is traced.
    Call,
}

/// A line such as ` 0)  crossla-341   | + 12.345 us   |    tcp_push();`.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    pid: u32,
    /// Microseconds.
    took: Option<f64>,
    name: &'a str,
    event: Event,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(3, '|');
        let (process, time, call) = (fields.next()?, fields.next()?, fields.next()?.trim());
        let pid = process.trim().rsplit_once('-')?.1.parse().ok()?;
        let took = time.split_once("us").and_then(|(time, _)| time.split_whitespace().last()?.parse().ok());
        let (name, event) = if let Some(tail) = call.strip_prefix('}') {
            (tail.trim().trim_start_matches("/*").trim_end_matches("*/").trim(), Event::End)
        } else if let Some(name) = call.strip_suffix("() {") {
            (name, Event::Begin)
        } else {
            (call.split_once("();")?.0, Event::Call)
        };
        Some(Self { pid, took, name: name.split_once(['.', ' ']).map_or(name, |(name, _)| name), event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_of(graph: &Graph, part: Part) -> f64 {
        graph.cycles(1, 1e6).of(part).unwrap_or(0.0)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn graph_gives_each_function_what_those_that_it_calls_leave() {
        let graph = Graph::read(
            " 0)  crossla-7   |               |  tcp_sendmsg() {\n \
             0)  crossla-7   |               |    tcp_sendmsg_locked() {\n \
             0)  crossla-7   |   1.500 us    |      _copy_from_iter();\n \
             0)  crossla-7   | + 20.000 us   |      tcp_push();\n \
             0)  crossla-7   | + 30.000 us   |    } /* tcp_sendmsg_locked */\n \
             0)  crossla-7   | + 32.000 us   |  } /* tcp_sendmsg */\n",
        );
        assert!(close(time_of(&graph, Part::CopyIn), 1.5), "{graph:?}");
        // tcp_push has a rule; what tcp_sendmsg_locked does itself is tcp_sendmsg's.
        assert!(close(time_of(&graph, Part::SendOther), 20.0 + 8.5 + 2.0), "{graph:?}");
        let calls = graph.calls();
        assert!(calls.contains(&("_copy_from_iter", 1)) && calls.contains(&("tcp_push", 1)), "{calls:?}");
    }

    #[test]
    fn graph_keeps_processes_apart_that_take_turns_on_a_processor() {
        let graph = Graph::read(
            " 1)  crossla-7   |               |  sk_wait_data() {\n \
             ------------------------------------------\n \
             1)  crossla-7    =>   crossla-8  \n \
             ------------------------------------------\n\n \
             1)  crossla-8   |   2.000 us    |  _copy_from_iter();\n \
             0)  crossla-7   | @ 150000.5 us |  } /* sk_wait_data */\n",
        );
        assert!(close(time_of(&graph, Part::WaitData), 150_000.5), "{graph:?}");
        assert!(close(time_of(&graph, Part::CopyIn), 2.0), "{graph:?}");
    }

    #[test]
    fn graph_that_began_in_the_middle_or_lost_lines_says_so() {
        let graph = Graph::read(
            " 0)  a-7   |   3.000 us    |  } /* tcp_ack */\n 0)  a-7   |   1.000 us    |  tcp_ack();\n",
        );
        assert!(close(time_of(&graph, Part::Acknowledge), 1.0) && !graph.is_cut, "{graph:?}");
        assert!(Graph::read("CPU:1 [LOST 92 EVENTS]\n").is_cut);
        assert!(Graph::read("# entries-in-buffer/entries-written: 140080/250280   #P:4\n").is_cut);
        assert!(!Graph::read("# entries-in-buffer/entries-written: 14/14   #P:4\n").is_cut);
    }

    #[test]
    fn lines_that_name_no_function_are_passed_over() {
        for line in [
            "",
            "# tracer: function_graph",
            " 0)   ==========> |",
            " 0)  a-7   |               |  /* a comment */",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
        let line = Line::parse(" 0)  a-b-12   | ! 100.25 us   |  tcp_ack.constprop.0();").unwrap();
        assert_eq!((line.pid, line.took, line.name, line.event), (12, Some(100.25), "tcp_ack", Event::Call));
    }
}
