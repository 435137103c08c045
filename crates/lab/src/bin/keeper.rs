//! Holds the namespaces of a lab and is the parent of its daemons. Started by the lab library, not by hand.

use crosslane_lab::{Entry, Place, Preload, State, enter, keep, machine};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: crosslane-keeper keep FOLDER\n       \
                     crosslane-keeper enter|place FOLDER HOST on|off tied|free CMD..\n       \
                     crosslane-keeper machine FOLDER HOST\n\
                     This is started by `crosslane lab`; use that.";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is = |at: usize, word: &str| args.get(at).is_some_and(|arg| arg == word);
    if is(0, "keep") && args.len() == 2 {
        return match keep(Path::new(&args[1])) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), 1),
        };
    }
    if is(0, "machine") && args.len() == 3 {
        return match machine(Path::new(&args[1]), &args[2].to_string_lossy()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), 1),
        };
    }
    if !(is(0, "enter") || is(0, "place")) || args.len() < 6 {
        return fail(USAGE, 2);
    }
    let state = match State::read(Path::new(&args[1])) {
        Ok(state) => state,
        Err(error) => return fail(&error.to_string(), 125),
    };
    let entry = Entry {
        state,
        folder: Path::new(&args[1]).to_owned(),
        place: if is(0, "place") { Place::Beside } else { Place::Inside },
        host: args[2].to_string_lossy().into_owned(),
        preload: if is(3, "on") { Preload::On } else { Preload::Off },
        command: args[5..].to_vec(),
        tied: is(4, "tied"),
    };
    let (error, code) = enter(&entry);
    fail(&error.to_string(), code)
}

fn fail(text: &str, code: u8) -> ExitCode {
    eprintln!("crosslane-keeper: {text}");
    ExitCode::from(code)
}
