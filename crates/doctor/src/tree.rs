//! The files of a machine: of this one, or of a recorded one that lies in a folder.

use crate::finding::clean;
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most bytes that are read of a file: files of `/sys` and most of `/proc` are shorter. A kernel's configuration is longer.
const ATTRIBUTE: u64 = 16 << 10;
/// Most bytes of a kernel's configuration, or of a list of modules.
const LONG: u64 = 4 << 20;
/// Most entries of a folder that are looked at.
const ENTRIES: usize = 4096;

/// Why a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not there.
    Absent,
    /// Not without more rights.
    Denied,
    /// It is no regular file, or reading it fails.
    Odd,
}

impl From<Errno> for Unread {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::Absent,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            _ => Self::Odd,
        }
    }
}

/// A machine's files below a root. Paths are given without the leading `/`. No link leads out of the root: `..` stops there, and
/// absolute links begin there. Nothing but regular files and folders is opened, and what is read of them is bounded.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    folder: OwnedFd,
}

impl Tree {
    /// The files below `root`; `/` is this machine.
    ///
    /// # Errors
    /// `root` is no folder that can be opened.
    pub fn open(root: &Path) -> std::io::Result<Self> {
        let root = std::fs::canonicalize(root)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(&root, flags, Mode::empty())?;
        Ok(Self { root, folder })
    }

    /// Where it begins.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether these are this machine's own files.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether there is such a file or folder.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.stat(path).is_ok()
    }

    /// Type, owner and mode of a file, which is not opened.
    pub(crate) fn stat(&self, path: &str) -> Result<Stat, Unread> {
        Ok(fs::fstat(self.at(path, OFlags::PATH)?)?)
    }

    /// The first bytes of a regular file, at most `most`.
    pub(crate) fn bytes(&self, path: &str, most: u64) -> Result<Vec<u8>, Unread> {
        // Opening anything else may do something: a tape winds back, a pipe's writer goes on.
        if FileType::from_raw_mode(self.stat(path)?.st_mode) != FileType::RegularFile {
            return Err(Unread::Odd);
        }
        let file = File::from(self.at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?);
        if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Unread::Odd);
        }
        let mut bytes = Vec::new();
        match file.take(most).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Errno::from_io_error(&error).map_or(Unread::Odd, Unread::from)),
        }
    }

    /// A short text, without spaces around it.
    pub(crate) fn text(&self, path: &str) -> Result<String, Unread> {
        let bytes = self.bytes(path, ATTRIBUTE)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A text of up to 4 MB.
    pub(crate) fn long_text(&self, path: &str) -> Result<String, Unread> {
        Ok(String::from_utf8_lossy(&self.bytes(path, LONG)?).into_owned())
    }

    /// A decimal number; anything else is none.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.text(path).ok()?.parse().ok()
    }

    /// A number of 32 bits as PCI's files have them: `0x8086`.
    pub(crate) fn hex(&self, path: &str) -> Option<u32> {
        u32::from_str_radix(self.text(path).ok()?.strip_prefix("0x")?, 16).ok()
    }

    /// Names of the entries of a folder, sorted. Those that are no text are left out.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let folder = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&folder)?.take(ENTRIES).flatten() {
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The path of a file or folder with all links followed, below the root.
    pub(crate) fn real(&self, path: &str) -> Option<String> {
        let fd = self.at(path, OFlags::PATH).ok()?;
        let number = rustix::fd::AsRawFd::as_raw_fd(&fd);
        let real = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        let below = real.strip_prefix(&self.root).ok()?;
        std::str::from_utf8(below.as_os_str().as_bytes()).ok().map(str::to_owned)
    }

    /// The last part of the path that a link leads to: the name of a driver or a bus.
    pub(crate) fn target_name(&self, path: &str) -> Option<String> {
        let real = self.real(path)?;
        real.rsplit('/').next().filter(|name| !name.is_empty()).map(clean)
    }

    fn at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Unread> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(fs::openat2(&self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().join("root");
        create_dir(&root).expect("root");
        write(folder.path().join("secret"), "secret").expect("written");
        let tree = Tree::open(&root).expect("tree");
        (folder, tree)
    }

    #[test]
    fn tree_links_do_not_leave_the_root_or_go_in_circles() {
        let (folder, tree) = tree();
        let root = tree.root().to_owned();
        symlink("../secret", root.join("up")).expect("link");
        symlink(folder.path().join("secret"), root.join("away")).expect("link");
        symlink("circle", root.join("circle")).expect("link");
        write(root.join("in"), " 7 \n").expect("written");
        symlink("/in", root.join("absolute")).expect("link");
        assert_eq!(tree.text("up"), Err(Unread::Absent));
        assert_eq!(tree.text("../secret"), Err(Unread::Absent));
        assert_eq!(tree.text("away"), Err(Unread::Absent));
        assert_eq!(tree.text("circle"), Err(Unread::Odd));
        assert_eq!(tree.number("absolute"), Some(7));
        assert_eq!(tree.real("absolute").as_deref(), Some("in"));
    }

    #[test]
    fn tree_reads_regular_files_only_and_a_bounded_part_of_them() {
        let (_folder, tree) = tree();
        let root = tree.root().to_owned();
        fs::mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("pipe");
        assert_eq!(tree.bytes("pipe", 8), Err(Unread::Odd));
        assert_eq!(tree.bytes("", 8), Err(Unread::Absent));
        let huge = File::create(root.join("huge")).expect("file");
        huge.set_len(1 << 40).expect("sparse");
        assert_eq!(tree.bytes("huge", 8), Ok(vec![0; 8]));
        assert_eq!(tree.text("huge").map(|text| text.len() as u64), Ok(ATTRIBUTE));
        write(root.join("rubbish"), [0xff, 0xfe, 0]).expect("written");
        assert_eq!((tree.number("rubbish"), tree.hex("rubbish")), (None, None));
        write(root.join("large"), "0x1ffffffff").expect("written");
        assert_eq!(tree.hex("large"), None);
    }
}
