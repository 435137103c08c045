//! The allocator that the program would have without this library, found by `dlsym(RTLD_NEXT)`. During that lookup,
//! memory that `dlsym` itself requests comes from a small static array and is never freed.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering::Relaxed};
use libc::size_t;

/// Bytes of the static array.
const FIRST_LEN: usize = 32 * 1024;
/// Bytes in front of each piece of the array, which contain its length.
const HEAD: usize = 16;

#[repr(C, align(16))]
struct First(core::cell::UnsafeCell<[u8; FIRST_LEN]>);

// SAFETY: each piece is given out once.
unsafe impl Sync for First {}

static FIRST: First = First(core::cell::UnsafeCell::new([0; FIRST_LEN]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// Id of the thread that is looking a function up, 0 if none.
static LOOKING: AtomicI32 = AtomicI32::new(0);

/// A function of the next allocator.
struct Symbol(AtomicPtr<c_void>, &'static CStr);

impl Symbol {
    /// Its address; null while this thread is looking a function up.
    #[inline]
    fn address(&self) -> *mut c_void {
        let known = self.0.load(Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let tid = tid();
        if LOOKING.load(Relaxed) == tid {
            return core::ptr::null_mut();
        }
        LOOKING.store(tid, Relaxed);
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
        LOOKING.store(0, Relaxed);
        if found.is_null() {
            // Without it the program could not have been linked.
            // SAFETY: ends the process.
            unsafe { libc::abort() }
        }
        self.0.store(found, Relaxed);
        found
    }
}

macro_rules! real {
    ($($place:ident = fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, else $early:expr;)*) => {
        $(
            static $place: Symbol = Symbol(
                AtomicPtr::new(core::ptr::null_mut()),
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                },
            );

            /// The next allocator's function of this name.
            ///
            /// # Safety
            /// Those of the C library's function.
            #[inline]
            pub unsafe fn $name($($arg: $ty),*) -> $ret {
                let address = $place.address();
                if address.is_null() {
                    return $early;
                }
                // SAFETY: the symbol of this name has this signature in every allocator.
                let function: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { core::mem::transmute(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*

        /// Looks all functions up.
        pub fn prepare() {
            for symbol in [$(&$place),*] {
                symbol.address();
            }
        }
    };
}

real! {
    MALLOC = fn malloc(size: size_t) -> *mut c_void, else first(size);
    CALLOC = fn calloc(count: size_t, size: size_t) -> *mut c_void, else count.checked_mul(size).map_or(core::ptr::null_mut(), first);
    REALLOC = fn realloc(at: *mut c_void, size: size_t) -> *mut c_void, else again(at, size);
    FREE = fn free(at: *mut c_void) -> (), else Default::default();
    MEMALIGN = fn memalign(alignment: size_t, size: size_t) -> *mut c_void, else core::ptr::null_mut();
    ALIGNED_ALLOC = fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void, else core::ptr::null_mut();
    POSIX_MEMALIGN = fn posix_memalign(place: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int, else libc::ENOMEM;
    VALLOC = fn valloc(size: size_t) -> *mut c_void, else core::ptr::null_mut();
    PVALLOC = fn pvalloc(size: size_t) -> *mut c_void, else core::ptr::null_mut();
    USABLE = fn malloc_usable_size(at: *mut c_void) -> size_t, else first_len(at);
}

/// Whether `at` came from the static array.
#[inline]
pub fn is_first(at: *const c_void) -> bool {
    at.addr().wrapping_sub(FIRST.0.get().addr()) < FIRST_LEN
}

/// Length, bytes, of a piece of the static array.
pub fn first_len(at: *const c_void) -> usize {
    // SAFETY: a piece of the array, with its length before it.
    unsafe { at.byte_sub(HEAD).cast::<usize>().read() }
}

/// A zeroed piece of the static array; null if it is used up.
fn first(size: usize) -> *mut c_void {
    let Some(len) = size.checked_add(HEAD).and_then(|len| len.checked_next_multiple_of(HEAD)) else {
        return core::ptr::null_mut();
    };
    let taken =
        USED.fetch_update(Relaxed, Relaxed, |used| used.checked_add(len).filter(|end| *end <= FIRST_LEN));
    let Ok(start) = taken else { return core::ptr::null_mut() };
    let at: *mut u8 = FIRST.0.get().cast();
    // SAFETY: the `len` bytes from `start` on belong to this call alone, and are aligned to 16.
    unsafe {
        at.add(start).cast::<usize>().write(size);
        at.add(start + HEAD).cast()
    }
}

/// A new piece of the static array with the bytes of an old one.
fn again(at: *mut c_void, size: usize) -> *mut c_void {
    let new = first(size);
    if !new.is_null() && is_first(at) {
        // SAFETY: both pieces are at least so long, and do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast(), size.min(first_len(at))) }
    }
    new
}

/// `errno` of the last call.
pub fn errno() -> c_int {
    // SAFETY: the C library's own pointer to this thread's word.
    unsafe { *libc::__errno_location() }
}

/// Sets the `errno` that the program will see.
pub fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

fn tid() -> i32 {
    // SAFETY: plain number.
    i32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(-1)
}
