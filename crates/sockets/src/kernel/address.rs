//! Socket addresses as C has them, and the families of the Sockets Direct Protocol.

use crate::kernel::user;
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// `AF_INET_SDP` as OpenFabrics has it.
pub const AF_INET_SDP: c_int = 27;
/// `AF_INET_SDP` as the SDP study's programs have it.
pub const AF_INET_SDP_STUDY: c_int = 26;

/// Whether a family means "a stream of the Sockets Direct Protocol".
pub fn is_sdp(family: c_int) -> bool {
    family == AF_INET_SDP || family == AF_INET_SDP_STUDY
}

/// Whether an address of this length is possible and lies in the program's memory.
pub fn is_there(address: *const sockaddr, len: socklen_t) -> bool {
    let len = len as usize;
    len <= size_of::<sockaddr_storage>() && user::is_there(address.cast(), len)
}

/// Reads an Internet address; `None` for other families or a length that is too short.
///
/// # Safety
/// `address` must be valid for `len` bytes, or null.
pub unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: at least a family is there.
    let family = c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() });
    if family == libc::AF_INET6 && len >= size_of::<sockaddr_in6>() {
        // SAFETY: long enough, as just checked.
        let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
        let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
        return Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)));
    }
    if (family == libc::AF_INET || is_sdp(family)) && len >= size_of::<sockaddr_in>() {
        // SAFETY: long enough, as just checked.
        let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
        let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
        return Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)));
    }
    None
}

/// Whether the address is of no family, with which `connect` dissolves a connection.
///
/// # Safety
/// `address` must be valid for `len` bytes, or null.
pub unsafe fn is_none(address: *const sockaddr, len: socklen_t) -> bool {
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return false;
    }
    // SAFETY: at least a family is there.
    c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() }) == libc::AF_UNSPEC
}

/// The `AF_INET` form of an address of an SDP family. For a socket of such a family (`is_sdp_socket`) also of an IPv6
/// address that IPv4 can express, `::` or `::ffff:a.b.c.d`: the kernels that had the family took them, and programs for
/// it (qperf) listen on the first.
///
/// # Safety
/// `address` must be valid for `len` bytes, or null.
pub unsafe fn without_sdp(
    address: *const sockaddr,
    len: socklen_t,
    is_sdp_socket: impl FnOnce() -> bool,
) -> Option<sockaddr_in> {
    if address.is_null() || (len as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: long enough, as just checked.
    let mut v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    let family = c_int::from(v4.sin_family);
    if family == libc::AF_INET6 && is_sdp_socket() {
        // SAFETY: the caller's promise.
        let v6 = unsafe { read(address, len) }?;
        let ip = if v6.ip().is_unspecified() { Ipv4Addr::UNSPECIFIED.into() } else { v6.ip().to_canonical() };
        let IpAddr::V4(ip) = ip else { return None };
        v4.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
    } else if !is_sdp(family) {
        return None;
    }
    v4.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
    Some(v4)
}

/// The socket's own address.
pub fn local(fd: c_int) -> Option<SocketAddr> {
    // SAFETY: `getsockname` with a buffer of the given length.
    get(|address, len| unsafe { crate::kernel::real::getsockname(fd, address, len) })
}

/// The address that the socket is connected to.
pub fn remote(fd: c_int) -> Option<SocketAddr> {
    // SAFETY: `getpeername` with a buffer of the given length.
    get(|address, len| unsafe { crate::kernel::real::getpeername(fd, address, len) })
}

fn get(call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int) -> Option<SocketAddr> {
    // SAFETY: all-zero bytes are a valid address of no family.
    let mut storage: sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut len = socklen_t::try_from(size_of::<sockaddr_storage>()).ok()?;
    if call((&raw mut storage).cast(), &raw mut len) != 0 {
        return None;
    }
    // SAFETY: filled by the kernel up to `len`.
    unsafe { read((&raw const storage).cast(), len) }
}
