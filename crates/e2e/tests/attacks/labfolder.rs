//! A lab's folder that somebody else has made: each command refuses it, says what to do, and touches nothing.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::attacks;
use crosslane_e2e::honest::public_copy;
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::{Rig, open_folder};
use crosslane_lab::Identity;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Users of no other test, one for each test here; the folder of a user's labs is in `/tmp`, where everybody may make it first.
const VICTIMS: [u32; 2] = [54_321, 54_322];
/// All that reads or writes a lab's files.
const COMMANDS: [&[&str]; 8] = [
    &["up", "--hosts", "1"],
    &["up", "--hosts", "1", "--force"],
    &["down"],
    &["down", "--name", "default"],
    &["list"],
    &["status"],
    &["exec", "h1", "--", "true"],
    &["kill", "h1"],
];
/// Times that a user's command shall meet one who races it, and how often that is tried.
const RACES: usize = 20;
const TRIES: usize = 400;

/// The victim, with a process and a folder of its own; all is gone when it is dropped.
struct Victim {
    rig: Rig,
    user: u32,
    folder: PathBuf,
    canary: PathBuf,
    process: Program,
}

impl Victim {
    fn new(user: u32) -> Result<Option<Self>> {
        let Some(rig) = Rig::pair()? else { return Ok(None) };
        let folder = PathBuf::from(format!("/tmp/crosslane-{user}"));
        remove(&folder);
        for name in ["crosslane", "crosslaned", "crosslane-keeper"] {
            public_copy(&rig, name)?;
        }
        let canary = rig.file("canary");
        fs::create_dir(&canary)?;
        open_folder(&canary)?;
        chown(&canary, Some(user), Some(user))?;
        let process = Program::start(run_as(user, "sleep").arg("600"))?;
        Ok(Some(Self { rig, user, folder, canary, process }))
    }

    fn attack(&self, way: &str, target: &Path) -> Result<Program> {
        let process = Identity::of(self.process.pid()).context("the victim's process")?;
        let (pid, start) = (process.pid.to_string(), process.start.to_string());
        let (folder, target) = (self.folder.display().to_string(), target.display().to_string());
        attacks::start(&self.rig, "h1", "labfolder", &[&folder, way, &target, &pid, &start])
    }

    fn command(&self, words: &[&str]) -> Result<Output> {
        let mut command = run_as(self.user, self.rig.file("crosslane"));
        command.arg("lab").args(words).env("CROSSLANE_BIN", self.rig.folder());
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        Ok(command.output()?)
    }

    fn refuses(&mut self, what: &str) -> Result<()> {
        let before = contents(&self.folder);
        for words in COMMANDS {
            let output = self.command(words)?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(!output.status.success(), "{what}, {words:?}: {output:?}");
            ensure!(said.contains("is not safe for a lab"), "{what}, {words:?}: {said}");
            ensure!(said.contains("remove it, or set XDG_RUNTIME_DIR"), "{what}, {words:?}: {said}");
            ensure!(output.stdout.is_empty(), "{what}, {words:?}: {output:?}");
        }
        ensure!(contents(&self.folder) == before, "{what}: the folder was changed");
        self.is_untouched(what)
    }

    fn is_untouched(&mut self, what: &str) -> Result<()> {
        ensure!(contents(&self.canary).is_empty(), "{what}: {:?}", contents(&self.canary));
        ensure!(!self.process.is_over(), "{what}: the victim's process was ended");
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // A lab that came up in spite of all ends first.
        let _ = self.command(&["down"]);
        remove(&self.folder);
    }
}

fn run_as(user: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command.arg(program);
    command
}

fn remove(folder: &Path) {
    let _ = fs::remove_file(folder);
    let _ = fs::remove_dir_all(folder);
}

/// All that is below a folder, with modes, owners and times.
fn contents(folder: &Path) -> Vec<(PathBuf, u32, u32, i64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| {
            let meta = entry.path().symlink_metadata();
            let own = meta.map(|meta| (entry.path(), meta.mode(), meta.uid(), meta.mtime_nsec())).ok();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let below = if is_folder { contents(&entry.path()) } else { Vec::new() };
            own.into_iter().chain(below)
        })
        .collect()
}

#[test]
fn lab_folder_of_another_user_is_refused_and_not_touched() -> Result<()> {
    let Some(mut victim) = Victim::new(VICTIMS[0])? else { return Ok(()) };
    let (canary, program) = (victim.canary.clone(), PathBuf::from("/bin/true"));
    for (way, target) in [("made", &program), ("link", &canary), ("link", &program)] {
        let attack = victim.attack(way, target)?;
        victim.refuses(way)?;
        drop(attack);
        remove(&victim.folder);
    }
    // Of the right owner, but open to others.
    let base = victim.folder.join("lab");
    fs::create_dir_all(&base)?;
    for part in [&victim.folder, &base] {
        chown(part, Some(victim.user), Some(victim.user))?;
    }
    fs::set_permissions(&victim.folder, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    victim.refuses("open to others")?;
    Ok(())
}

#[test]
fn lab_folder_race_makes_nothing_where_the_attacker_wants() -> Result<()> {
    let Some(mut victim) = Victim::new(VICTIMS[1])? else { return Ok(()) };
    let canary = victim.canary.clone();
    let mut attack = victim.attack("race", &canary)?;
    let (mut refused, mut won, mut tries) = (0, 0, 0);
    while refused < RACES && tries < TRIES {
        tries += 1;
        let output = victim.command(&["up", "--hosts", "1"])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        refused += usize::from(said.contains("is not safe for a lab"));
        if output.status.success() {
            won += 1;
            victim.command(&["down"])?;
        }
        victim.is_untouched("while it races")?;
    }
    println!("of {tries} tries {refused} refused, {won} won");
    ensure!(refused > 0, "it never met the other one");
    ensure!(!attack.is_over(), "the attack ended: {}", attack.tail());
    drop(attack);
    // One that it won is its own, and goes down.
    victim.command(&["down"])?;
    victim.is_untouched("at the end")
}
