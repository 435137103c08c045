//! Copies at every alignment and length, with unmapped pages at every place.

use super::*;
use core::ffi::{c_int, c_void};
use std::sync::Mutex;

/// The ways of copying are one setting for the process.
static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn on_fault(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's context of this handler.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let ip = &mut registers[libc::REG_RIP as usize];
    match landing(usize::try_from(*ip).unwrap_or(0)) {
        Some(landing) => *ip = landing.cast_signed() as i64,
        None => std::process::abort(),
    }
}

fn catch() {
    // SAFETY: a handler that touches the context only.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            assert_eq!(libc::sigaction(signal, &raw const action, core::ptr::null_mut()), 0);
        }
    }
}

/// Pages between two unmapped ones.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(pages: usize, protection: c_int) -> Self {
        let len = pages * PAGE;
        // SAFETY: fresh mappings.
        unsafe {
            let none = libc::PROT_NONE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(core::ptr::null_mut(), len + 2 * PAGE, none, flags, -1, 0).cast::<u8>();
            assert_ne!(base.cast(), libc::MAP_FAILED);
            let first = base.add(PAGE);
            assert_eq!(libc::mprotect(first.cast(), len, libc::PROT_READ | libc::PROT_WRITE), 0);
            (0..len).for_each(|at| first.add(at).write(u8::try_from(at % 251).unwrap()));
            assert_eq!(libc::mprotect(first.cast(), len, protection), 0);
            Self(first, len)
        }
    }

    /// The place `at` bytes from the end; negative: behind it.
    fn end(&self, at: isize) -> *mut u8 {
        self.0.wrapping_add(self.1).wrapping_offset(-at)
    }
}

fn each_way(mut test: impl FnMut()) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    catch();
    for (avx, rep) in [(false, false), (true, false), (false, true), (true, true)] {
        native::limit(avx, rep);
        test();
    }
}

#[test]
fn guarded_copy_stays_in_its_place() {
    each_way(|| {
        let source: Vec<u8> = (0..20_000).map(|i| u8::try_from(i % 253).unwrap()).collect();
        let lengths = (0..300).chain((300..4000).step_by(61)).chain([4095, 4096, 4097, 8192, 12_345]);
        for len in lengths {
            for to in [0, 1, 15, 31, 63, 64] {
                for from in [0, 1, 33] {
                    let mut target = vec![0xee; 64 + to + len + 64];
                    let place = target[64 + to..].as_mut_ptr();
                    // SAFETY: both are in range.
                    unsafe { copy(place, source[from..].as_ptr(), len) }.unwrap();
                    let (before, rest) = target.split_at(64 + to);
                    assert_eq!(&rest[..len], &source[from..from + len], "{len} bytes from {from} to {to}");
                    assert!(before.iter().chain(&rest[len..]).all(|&byte| byte == 0xee), "{len} bytes, {to}");
                }
            }
        }
    });
}

#[test]
fn guarded_copy_of_unmapped_memory_is_a_fault() {
    each_way(|| {
        let source = Pages::new(4, libc::PROT_READ);
        let target = Pages::new(4, libc::PROT_READ | libc::PROT_WRITE);
        let lengths = (1_isize..200).chain([255, 256, 1000, 4095, 4096, 4097, 5000, 8192, 12_000]);
        for len in lengths {
            let bytes = len.unsigned_abs();
            for missing in
                [1, 2, 7, 8, 63, 64, len / 2, len].into_iter().filter(|missing| (1..=len).contains(missing))
            {
                let at = source.end(len - missing);
                // SAFETY: the target is in range, or the source is.
                unsafe {
                    assert_eq!(copy(target.0, at, bytes), Err(Fault), "{len} bytes, {missing} missing");
                    assert_eq!(copy(target.end(len - missing), source.0, bytes), Err(Fault));
                    assert_eq!(copy(source.end(len).cast(), target.0, bytes), Err(Fault), "read only");
                }
            }
            // SAFETY: all of it is mapped.
            unsafe {
                copy(target.end(len), source.end(len), bytes).unwrap();
                assert_eq!(*target.end(1), *source.end(1));
            }
            assert!(is_there(source.end(len), bytes) && !is_there(source.end(len - 1), bytes));
        }
    });
}

#[test]
fn guarded_copy_past_a_file_or_of_bad_addresses_is_a_fault() {
    each_way(|| {
        let mut target = [0_u8; 16];
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE as u64).unwrap();
        // SAFETY: a fresh mapping of one page.
        let mapped = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            libc::mmap(core::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        // SAFETY: the target is in range.
        let from = |at: *const u8, target: &mut [u8; 16]| unsafe { copy(target.as_mut_ptr(), at, 16) };
        assert_eq!(from(mapped.cast(), &mut target), Ok(()));
        file.set_len(0).unwrap();
        assert_eq!(from(mapped.cast(), &mut target), Err(Fault));
        for address in [0, 1, 1 << 47, 1 << 62, usize::MAX - 15, usize::MAX] {
            assert_eq!(from(core::ptr::without_provenance(address), &mut target), Err(Fault), "{address:x}");
        }
        // SAFETY: any bytes are a number.
        assert_eq!(unsafe { load::<u64>(core::ptr::without_provenance(8)) }, Err(Fault));
        // SAFETY: our own number.
        unsafe { store(&raw mut target, &[7; 16]) }.unwrap();
        assert_eq!(std::hint::black_box(target), [7; 16]);
        // SAFETY: this test's own mapping.
        unsafe { libc::munmap(mapped, PAGE) };
    });
}

#[test]
fn guarded_copy_of_single_values() {
    let (pages, constant) =
        (Pages::new(1, libc::PROT_READ | libc::PROT_WRITE), Pages::new(1, libc::PROT_READ));
    each_way(|| {
        // SAFETY: the tests' own pages, or unmapped ones.
        unsafe {
            for missing in 0..5 {
                let at = pages.end(4 - missing).cast::<u32>();
                assert_eq!(store(at, &0x0403_0201), if missing == 0 { Ok(()) } else { Err(Fault) });
                assert_eq!(load(at), if missing == 0 { Ok(0x0403_0201) } else { Err(Fault) });
            }
            for missing in 0..13 {
                let (at, value) = (pages.end(12 - missing).cast::<[u32; 3]>(), [1, 2, 3]);
                assert_eq!(store(at, &value), if missing == 0 { Ok(()) } else { Err(Fault) });
                assert_eq!(load(at), if missing == 0 { Ok(value) } else { Err(Fault) });
            }
            assert_eq!(store(constant.end(4).cast::<u32>(), &1), Err(Fault));
            assert_eq!(store(constant.end(12).cast::<[u32; 3]>(), &[1; 3]), Err(Fault));
        }
    });
}
