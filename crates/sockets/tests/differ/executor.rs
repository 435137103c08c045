//! Executors: processes that run scripts on the kernel's TCP or on streams.

use crate::common::{Built, Daemon};
use crate::script::Script;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the calls of a script gave, a line for each, and how it ended.
pub type Trace = Vec<String>;

/// Whose sockets a script has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Kernel,
    Streams,
}

/// What executors are started from.
pub struct Stage {
    program: PathBuf,
    built: Built,
    pub daemon: Daemon,
}

impl Stage {
    /// Builds everything and starts a daemon.
    pub fn new() -> Result<Self, String> {
        let built = crate::common::build();
        let daemon = Daemon::start(&built.daemon)?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differ/c/executor.c");
        let program = crate::common::compile(&source, daemon.folder.path())?;
        Ok(Self { program, built, daemon })
    }

    fn spawn(&self, on: On) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        if on == On::Streams {
            command.env("LD_PRELOAD", &self.built.library);
            command.env("CROSSLANE_SOCKET", self.daemon.control());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    }
}

/// One executor; it is started again if it ends.
pub struct Executor<'a> {
    stage: &'a Stage,
    on: On,
    /// Second part of its loopback addresses: no two executors have the same.
    place: u8,
    scripts: u16,
    process: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl<'a> Executor<'a> {
    pub fn new(stage: &'a Stage, on: On, place: u8) -> Self {
        Self { stage, on, place, scripts: 0, process: None }
    }

    /// Gives it a script; [`Self::finish`] has the result.
    pub fn begin(&mut self, script: &Script) {
        self.scripts = self.scripts.wrapping_add(1);
        let [high, low] = self.scripts.to_be_bytes();
        let text = format!("begin 127.{}.{high}.{}\n{script}end\n", self.place, low.max(1));
        if self.process.is_none() {
            let mut child = self.stage.spawn(self.on).expect("the executor starts");
            let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            self.process = Some((child, input, BufReader::new(output)));
        }
        let (_, input, _) = self.process.as_mut().unwrap();
        // An executor that ended is noticed by `finish`.
        let _ = input.write_all(text.as_bytes());
    }

    /// What the script gave that it was begun with.
    pub fn finish(&mut self) -> Trace {
        let mut trace = Trace::new();
        let Some((_, _, output)) = self.process.as_mut() else { return trace };
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap_or(0) == 0 {
                trace.push("end: the executor is gone".to_owned());
                self.stop();
                return trace;
            }
            let line = line.trim_end();
            if !line.is_empty() {
                trace.push(line.to_owned());
            }
            if line.starts_with("end") {
                return trace;
            }
        }
    }

    fn stop(&mut self) {
        if let Some((mut child, input, _)) = self.process.take() {
            drop(input);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}
