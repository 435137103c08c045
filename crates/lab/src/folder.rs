//! Where a lab's files are, and where the programs that it needs are.

use crate::LabError;
use crate::state::State;
use crate::trust;
use serde::{Deserialize, Serialize};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File that the keeper holds locked as long as it lives.
pub(crate) const LOCK: &str = "lock";
/// What the keeper makes, JSON of [`crate::config::Order`].
pub(crate) const ORDER: &str = "order.json";
/// The lab's [`State`], JSON.
pub(crate) const STATE: &str = "state.json";
/// File name of the socket library.
const LIBRARY: &str = "libcrosslane_sockets.so";
/// File name of the library for large allocations.
const MALLOC: &str = "libcrosslane_malloc.so";
/// The keeper's control socket.
pub(crate) const KEEPER: &str = "keeper.sock";

/// The folder of all labs of this user: `/run/crosslane/lab` for root, else `crosslane/lab` in `$XDG_RUNTIME_DIR` if
/// only the user has access to that, else `/tmp/crosslane-UID/lab`. Using it is an error if other users could have made
/// it.
pub fn default_base() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/crosslane/lab");
    }
    match env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| trust::is_private(dir)) {
        Some(dir) => dir.join("crosslane/lab"),
        None => PathBuf::from(format!("/tmp/crosslane-{}/lab", uid.as_raw())),
    }
}

/// Names of the labs in `base` (running or left over), sorted.
///
/// # Errors
/// [`LabError::Untrusted`] if others could have put them there.
pub fn list(base: &Path) -> Result<Vec<String>, LabError> {
    trust::check(base)?;
    let Ok(entries) = std::fs::read_dir(base) else { return Ok(Vec::new()) };
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// The parts of Crosslane that a lab runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// `crosslaned`.
    pub daemon: PathBuf,
    /// `crosslane-keeper`.
    pub keeper: PathBuf,
    /// `libcrosslane_sockets.so`, if it is there.
    pub sockets: Option<PathBuf>,
}

impl Programs {
    /// Finds them in `bin`, if given; else in `$CROSSLANE_BIN`; else beside the running executable (of a test: in the folder above its
    /// own), the library also in `../lib/crosslane`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if daemon or keeper are in none of the places.
    pub fn find(bin: Option<&Path>) -> Result<Self, LabError> {
        let places = places_of(bin);
        let need = |what: &str| first(&places, what).ok_or_else(|| missing(what, &places));
        let (daemon, keeper) = (need("crosslaned")?, need("crosslane-keeper")?);
        Ok(Self { daemon, keeper, sockets: library(&places, LIBRARY) })
    }
}

/// The socket library, from the places of [`Programs::find`].
///
/// # Errors
/// [`LabError::Missing`].
pub fn socket_library(bin: Option<&Path>) -> Result<PathBuf, LabError> {
    found(bin, LIBRARY)
}

/// The library for large allocations, from the same places.
///
/// # Errors
/// [`LabError::Missing`].
pub fn malloc_library(bin: Option<&Path>) -> Result<PathBuf, LabError> {
    found(bin, MALLOC)
}

fn found(bin: Option<&Path>, file: &str) -> Result<PathBuf, LabError> {
    let places = places_of(bin);
    library(&places, file).ok_or_else(|| missing(file, &places))
}

fn missing(what: &str, places: &[PathBuf]) -> LabError {
    let places = places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
    LabError::Missing { what: what.to_owned(), places }
}

fn places_of(bin: Option<&Path>) -> Vec<PathBuf> {
    bin.map_or_else(places, |bin| vec![bin.to_owned()])
}

fn library(places: &[PathBuf], file: &str) -> Option<PathBuf> {
    let installed: Vec<PathBuf> = places.iter().map(|p| p.join("../lib/crosslane")).collect();
    first(places, file).or_else(|| first(&installed, file))
}

fn places() -> Vec<PathBuf> {
    if let Some(given) = env::var_os("CROSSLANE_BIN").map(PathBuf::from) {
        let folder = if given.is_file() { given.parent().map(Path::to_owned) } else { Some(given) };
        return folder.into_iter().collect();
    }
    let Some(own) = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)) else {
        return Vec::new();
    };
    match own.parent() {
        // A test's executable lies in `deps`, beside stale copies: the folder above has the current ones.
        Some(above) if own.ends_with("deps") => vec![above.to_owned()],
        _ => vec![own],
    }
}

fn first(places: &[PathBuf], file: &str) -> Option<PathBuf> {
    let found = places.iter().map(|place| place.join(file)).find(|path| path.is_file());
    found?.canonicalize().ok()
}

/// The paths of one lab.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new(base: Option<&Path>, name: &str) -> Self {
        Self { path: base.map_or_else(default_base, Path::to_owned).join(name) }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Checks that other users cannot put files there, and have not.
    ///
    /// # Errors
    /// [`LabError::Untrusted`].
    pub(crate) fn check(&self) -> Result<(), LabError> {
        trust::check(&self.path)
    }

    /// Whether a keeper lives: it holds the lock.
    pub(crate) fn kept(&self) -> bool {
        use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
        let Ok(lock) = open(self.file(LOCK), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        let tried = flock(&lock, FlockOperation::NonBlockingLockShared);
        // Not by closing it: a process that another thread is starting may hold a copy until its exec.
        let _ = flock(&lock, FlockOperation::Unlock);
        tried == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Whether no keeper lives, and none was starting for `beginning`.
    pub(crate) fn is_left_over(&self, beginning: Duration) -> bool {
        let changed = std::fs::metadata(&self.path).and_then(|it| it.modified()).ok();
        let age = changed.and_then(|changed| changed.elapsed().ok());
        age.is_some_and(|age| age >= beginning) && !self.kept()
    }

    /// The state that the keeper wrote last, if there is one.
    pub(crate) fn state(&self) -> Option<State> {
        serde_json::from_slice(&std::fs::read(self.file(STATE)).ok()?).ok()
    }

    /// Whether its daemons have been started.
    pub(crate) fn ready(&self) -> bool {
        self.state().is_some_and(|state| state.ready)
    }

    /// Makes the folder, and those above it. The last of the other labs may be removing those at the same time.
    ///
    /// # Errors
    /// [`LabError::Untrusted`], before anything is made where others can put files; [`LabError::Io`], also if it is there already.
    pub(crate) fn create(&self) -> Result<(), LabError> {
        const TRIES: u32 = 100;
        let mut tried = 0;
        loop {
            match trust::create(&self.path) {
                Err(LabError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && tried < TRIES =>
                {
                    tried += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Removes the folder; it may be gone already. Those above it go too, if they are the labs' own and empty.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LabError::io(format!("remove {}", self.path.display()))(error));
            }
            _ => {}
        }
        if let Some(base) = self.path.parent().filter(|base| is_own(base)) {
            // Not empty: another lab, or a daemon, is there.
            let _ = base.ancestors().take(2).try_for_each(std::fs::remove_dir);
        }
        Ok(())
    }
}

/// Whether [`default_base`] returns `base` for some user. The function itself cannot tell: a keeper is root in a user namespace.
fn is_own(base: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let above = base.parent().and_then(name).unwrap_or_default();
    name(base).as_deref() == Some("lab") && (above == "crosslane" || above.starts_with("crosslane-"))
}

impl State {
    /// Reads the state of the lab whose files lie in `folder`.
    ///
    /// # Errors
    /// [`LabError::NotUp`] if there is none.
    pub fn read(folder: &Path) -> Result<Self, LabError> {
        Folder { path: folder.to_owned() }.state().ok_or_else(|| LabError::NotUp {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            folder: folder.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_the_last_lab_takes_its_parents_and_no_others() {
        let root = tempfile::tempdir().expect("folder");
        let base = root.path().join("crosslane/lab");
        let (one, two) = (Folder::new(Some(&base), "one"), Folder::new(Some(&base), "two"));
        one.create().expect("create");
        two.create().expect("create");
        let there = one.create().expect_err("it is there");
        assert!(
            matches!(there, LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
        );
        one.remove().expect("removed");
        assert!(two.path.is_dir());
        two.remove().expect("removed");
        assert!(!root.path().join("crosslane").exists() && root.path().is_dir());
        let chosen = Folder::new(Some(&root.path().join("chosen")), "three");
        chosen.create().expect("create");
        chosen.remove().expect("removed");
        assert!(root.path().join("chosen").is_dir());
    }

    #[test]
    fn lock_shows_a_living_keeper() {
        use rustix::fs::{FlockOperation, flock};
        let base = tempfile::tempdir().expect("folder");
        let folder = Folder::new(Some(base.path()), "one");
        assert!(!folder.kept());
        std::fs::create_dir(&folder.path).expect("create");
        let lock = std::fs::File::create(folder.file(LOCK)).expect("lock file");
        assert!(!folder.kept());
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("lock");
        assert!(folder.kept() && !folder.is_left_over(Duration::ZERO));
        // Not by closing it: a process that another test is starting may hold a copy until its exec.
        flock(&lock, FlockOperation::Unlock).expect("unlock");
        assert!(!folder.kept());
        assert!(folder.is_left_over(Duration::ZERO) && !folder.is_left_over(Duration::from_secs(600)));
        assert_eq!(list(base.path()).expect("names"), ["one"]);
        folder.remove().expect("removed");
        folder.remove().expect("twice is fine");
    }
}
