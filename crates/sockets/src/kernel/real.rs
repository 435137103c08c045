//! The C library's own functions behind ours, found once by `dlsym(RTLD_NEXT)`.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// A function that is looked up at its first use.
pub struct Symbol(AtomicPtr<c_void>, &'static CStr);

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()), name)
    }

    /// Its address; ends the program if the C library has no such function, since the program could not have been
    /// linked then.
    #[inline]
    fn address(&self) -> *mut c_void {
        let known = self.0.load(Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: `1` is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
        if found.is_null() {
            // SAFETY: ends the process.
            unsafe { libc::abort() }
        }
        self.0.store(found, Relaxed);
        found
    }
}

macro_rules! real {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {$(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// As the C library asks.
        #[inline]
        #[allow(non_snake_case, reason = "the C library's names")]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static SYMBOL: Symbol = Symbol::new(NAME);
            // SAFETY: the symbol of this name has this signature in every C library that we run on.
            let function: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { core::mem::transmute(SYMBOL.address()) };
            // SAFETY: the caller's promise.
            unsafe { function($($arg),*) }
        }
    )*};
}

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;

    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, fromlen: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, tolen: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(input: c_int, input_offset: *mut i64, out: c_int, out_offset: *mut i64, len: size_t, flags: c_uint) -> ssize_t;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int;
    fn fork() -> pid_t;
    fn _Fork() -> pid_t;
    fn clone(begin: unsafe extern "C" fn(*mut c_void) -> c_int, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execveat(at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fn prctl(option: c_int, a: libc::c_ulong, b: libc::c_ulong, c: libc::c_ulong, d: libc::c_ulong) -> c_int;

    fn chroot(path: *const c_char) -> c_int;
    fn setrlimit(resource: libc::__rlimit_resource_t, limit: *const libc::rlimit) -> c_int;

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fn sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn sigset(signal: c_int, disposition: libc::sighandler_t) -> libc::sighandler_t;
    fn sigignore(signal: c_int) -> c_int;
    fn siginterrupt(signal: c_int, flag: c_int) -> c_int;

    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}

/// The last call's error number.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: the C library's own pointer to this thread's word.
    unsafe { *libc::__errno_location() }
}

/// Sets the error number that the program will see.
#[inline]
pub fn set_errno(number: c_int) {
    // SAFETY: the C library's own pointer to this thread's word.
    unsafe { *libc::__errno_location() = number }
}

/// What a hooked call gives its program.
pub trait Answer {
    /// Whether it says that the call failed, and `errno` why.
    #[inline]
    fn failed(&self) -> bool {
        false
    }
}

impl Answer for usize {}
impl Answer for () {}

macro_rules! negative_if_failed {
    ($($number:ty)*) => {$(
        impl Answer for $number {
            #[inline]
            fn failed(&self) -> bool {
                *self < 0
            }
        }
    )*};
}
negative_if_failed! { c_int isize c_long }

impl<T> Answer for *mut T {
    #[inline]
    fn failed(&self) -> bool {
        self.is_null()
    }
}

/// Does the work of a hooked call: `errno` stays what it was, but for a call that fails.
#[inline]
pub fn keeping_errno<T: Answer>(call: impl FnOnce() -> T) -> T {
    // SAFETY: only asks where this thread's word is.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own, as long as it runs.
    let before = unsafe { errno.read() };
    let answer = call();
    // SAFETY: as above.
    unsafe {
        if !answer.failed() && errno.read() != before {
            errno.write(before);
        }
    }
    answer
}

/// Ends a hooked call with an error.
#[inline]
pub fn fail<T: From<i8>>(number: c_int) -> T {
    set_errno(number);
    T::from(-1)
}
