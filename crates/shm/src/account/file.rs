//! The file of counts: programs that count make and map it, a tool reads it.

use super::{Count, Counts, Function, LEN, Line, Lines, MAGIC, TABLE, Table, Way};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, Release};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Environment variable that names the file, for programs and the daemon.
pub const VARIABLE: &str = "CROSSLANE_ACCOUNT";

impl Counts {
    /// The counts in the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not of this form.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut words = [[0_u8; 8]; LEN / 8];
        File::open(path)?.read_exact(words.as_flattened_mut())?;
        let word = |offset: usize| u64::from_ne_bytes(words[offset / 8]);
        if word(0) != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no account of cycles"));
        }
        let mut counts = Self::default();
        for (way, lines) in counts.0.iter_mut().enumerate() {
            let begin = offset_of!(Table, ways) + way * size_of::<Lines>();
            for (number, count) in lines.iter_mut().enumerate() {
                let at = begin + number * size_of::<Line>();
                *count = Count { ticks: word(at), calls: word(at + 8) };
            }
        }
        Ok(counts)
    }

    /// The counts of one function.
    pub fn of(&self, way: Way, function: Function) -> Count {
        self.0[way as usize][function as usize]
    }

    /// The sum of these counts and those of another file.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (count, other) in self.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            count.ticks = count.ticks.wrapping_add(other.ticks);
            count.calls = count.calls.wrapping_add(other.calls);
        }
        self
    }

    /// The counts since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (count, before) in self.0.as_flattened_mut().iter_mut().zip(before.0.as_flattened()) {
            count.ticks = count.ticks.wrapping_sub(before.ticks);
            count.calls = count.calls.wrapping_sub(before.calls);
        }
        self
    }
}

/// Counts into the file that [`VARIABLE`] names, if it is set. To be called at the start of a process that has no more rights
/// than the user who set the variable. If the file cannot be used, an error on standard error names it and nothing is counted.
pub fn begin_if_asked() {
    if let Some(path) = std::env::var_os(VARIABLE)
        && let Err(error) = begin(Path::new(&path))
    {
        eprintln!("crosslane: cannot count cycles in {}: {error}", Path::new(&path).display());
    }
}

/// Counts into the file at `path` from now on; makes it if it does not exist. Several processes may do so at a time. The
/// file must not be shortened while it is used.
///
/// # Errors
/// The file cannot be made or mapped, or is of another form.
pub fn begin(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    match usize::try_from(stat.st_size) {
        Ok(0) => rustix::fs::ftruncate(&file, LEN as u64)?,
        Ok(LEN) => {}
        _ => return Err(Errno::INVAL),
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh shared mapping at an address of the kernel's choice, kept for the life of the process.
    let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), LEN, access, MapFlags::SHARED, &file, 0)? };
    let table = base.cast::<Table>();
    // SAFETY: mapped, aligned to a page, all of it atomics, which may be shared with other processes.
    let magic = unsafe { &(*table).magic };
    let found = magic.compare_exchange(0, MAGIC, Relaxed, Relaxed).unwrap_or_else(|found| found);
    if found != 0 && found != MAGIC {
        // SAFETY: no other code has used the mapping yet.
        unsafe { rustix::mm::munmap(base, LEN)? };
        return Err(Errno::INVAL);
    }
    TABLE.store(table, Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account;

    /// All in one test: counting begins for the whole process.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn account_file_has_what_was_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        std::fs::write(&path, [7; LEN]).unwrap();
        assert_eq!(begin(&path), Err(Errno::INVAL), "something else");
        assert!(Counts::read(&path).is_err());
        std::fs::write(&path, MAGIC.to_ne_bytes()).unwrap();
        assert_eq!(begin(&path), Err(Errno::INVAL), "too short");
        assert_eq!(begin(folder.path()), Err(Errno::ISDIR));
        assert_eq!(std::fs::read(&path).unwrap(), MAGIC.to_ne_bytes(), "what is not ours is left alone");

        std::fs::remove_file(&path).unwrap();
        drop(account::sending(Function::CopyIn));
        begin(&path).unwrap();
        let before = Counts::read(&path).unwrap();
        assert_eq!(before, Counts::default());
        assert!(account::idle().is_none());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| drop(account::receiving(Function::Free))));
            }
        });
        let counts = Counts::read(&path).unwrap().since(&before);
        assert_eq!(counts.of(Way::Receive, Function::Free).calls, 2000);
        assert!(counts.of(Way::Receive, Function::Free).ticks > 0);
        assert_eq!(counts.of(Way::Send, Function::CopyIn), Count::default(), "it had not begun");
        assert_eq!(counts.plus(&counts).of(Way::Receive, Function::Free).calls, 4000);
    }
}
