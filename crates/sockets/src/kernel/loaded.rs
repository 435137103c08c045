//! The program and its libraries as the loader has them in memory.

use core::ffi::{CStr, c_int, c_void};
use libc::{PF_R, PF_X, PT_LOAD, dl_phdr_info, iovec, size_t};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;

/// The program, or a library.
pub struct Object {
    /// Where its file is; empty for the program.
    pub path: String,
    /// Where its code is: addresses and bytes.
    code: Vec<(usize, usize)>,
    /// The same for what else can be read.
    data: Vec<(usize, usize)>,
}

impl Object {
    /// Its file's name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Where its code begins, by which it is known again.
    pub fn place(&self) -> Option<(usize, usize)> {
        self.code.first().copied()
    }

    /// Whether the function at this address is its.
    pub fn has(&self, address: usize) -> bool {
        self.code.iter().any(|&(from, len)| (from..from + len).contains(&address))
    }

    /// Calls `look` with its code, piece by piece, and with the bytes that overlap the piece before, until it returns `false`.
    pub fn code(&self, overlap: usize, mut look: impl FnMut(&[u8], usize) -> bool) {
        let _ = self.code.iter().all(|&segment| read(segment, overlap, &mut look));
    }

    /// Whether its constant data holds `text`.
    pub fn says(&self, text: &[u8]) -> bool {
        let mut look = |bytes: &[u8], _| !bytes.windows(text.len()).any(|part| part == text);
        !self.data.iter().all(|&segment| read(segment, text.len(), &mut look))
    }
}

/// Whether there is a function of this name.
pub fn has_function(name: &CStr) -> bool {
    // SAFETY: a C string.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

/// How many objects the loader has loaded since the program began.
pub fn count() -> u64 {
    let mut count = 0_u64;
    // SAFETY: `first` takes such a pointer.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// All objects.
pub fn all() -> Vec<Object> {
    let mut all = Vec::new();
    // SAFETY: `each` takes such a pointer.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    all
}

unsafe extern "C" fn first(info: *mut dl_phdr_info, _: size_t, count: *mut c_void) -> c_int {
    // SAFETY: the loader's record, and the caller's word.
    unsafe { count.cast::<u64>().write((*info).dlpi_adds) };
    1
}

unsafe extern "C" fn each(info: *mut dl_phdr_info, _: size_t, all: *mut c_void) -> c_int {
    // SAFETY: the loader's record, valid during this call, and the caller's list.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Object>>()) };
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's text.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let mut object = Object { path, code: Vec::new(), data: Vec::new() };
    // SAFETY: as many headers as the record says.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_R != 0) {
        let at = usize::try_from(info.dlpi_addr.wrapping_add(header.p_vaddr)).unwrap_or(0);
        let segment = (at, usize::try_from(header.p_memsz).unwrap_or(0));
        if header.p_flags & PF_X != 0 {
            object.code.push(segment);
        } else if header.p_flags & libc::PF_W == 0 {
            object.data.push(segment);
        }
    }
    all.push(object);
    0
}

/// Calls `look` with a segment's bytes, piece by piece, and with the bytes that overlap the piece before, until it returns
/// `false`; returns its last value. Unreadable memory is left out: other threads may change the program's mappings.
fn read((at, len): (usize, usize), overlap: usize, look: &mut impl FnMut(&[u8], usize) -> bool) -> bool {
    let mut buffer = vec![0; overlap + PIECE.min(len)];
    let (mut done, mut kept) = (0, 0);
    while done < len {
        let wanted = PIECE.min(len - done);
        let Some(count @ 1..) = copy(at + done, &mut buffer[kept..kept + wanted]) else { return true };
        if !look(&buffer[..kept + count], kept) {
            return false;
        }
        let end = kept + count;
        kept = overlap.min(end);
        buffer.copy_within(end - kept..end, 0);
        done += count;
    }
    true
}

/// Copies what lies at this address of ours, as far as it can be read; its length.
fn copy(at: usize, place: &mut [u8]) -> Option<usize> {
    let to = iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
    let from = iovec { iov_base: core::ptr::without_provenance_mut(at), iov_len: place.len() };
    // SAFETY: `to` is our own buffer; the kernel looks whether `from` is there.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    // Some containers do not allow that call.
    let by_file = || File::open("/proc/self/mem").and_then(|file| file.read_at(place, at as u64)).ok();
    usize::try_from(count).ok().or_else(by_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_text_is_found_across_pieces() {
        let all = all();
        let this = program_text_is_found_across_pieces as fn();
        let object = all.iter().find(|object| object.has(this as usize)).unwrap();
        assert!(object.says(b"texts_of_a_program_are_found"));
        let absent: Vec<u8> = b"esrever ni txet on".iter().rev().copied().collect();
        assert!(!object.says(&absent));
        let bytes: Vec<u8> = (0..PIECE + 10).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let mut seen = Vec::new();
        let whole = read((bytes.as_ptr() as usize, bytes.len()), 7, &mut |piece: &[u8], known: usize| {
            seen.extend_from_slice(&piece[known..]);
            true
        });
        assert!(whole && seen == bytes);
        assert!(read((8, 100), 7, &mut |_: &[u8], _: usize| panic!("nothing can be read there")));
    }
}
