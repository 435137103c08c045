//! The kernel's part of an interest: what the inner set is asked about the carrier socket, and what it says.

use super::bits::{ALWAYS, ET, HUP, IN, OUT, PRI, QUIET, RDHUP, bit};
use super::interest::Interest;
use crate::descriptors::internal_fds;
use crate::kernel::{fd, polling};
use crate::socket::carrier;
use crate::waiting::wait;
use core::ffi::{c_int, c_short};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use libc::epoll_event;
use rustix::event::PollFlags;
use rustix::fd::RawFd;

impl Interest {
    /// Adds the carrier socket to the inner set.
    pub fn enlist(&mut self, inner: RawFd) -> Result<(), c_int> {
        self.asked = self.registration();
        if inner < 0 {
            return Ok(());
        }
        match self.control(inner, libc::EPOLL_CTL_ADD) {
            // An interest of a descriptor that is closed by now goes by this number.
            Err(libc::EEXIST) => {
                self.duplicate()?;
                self.control(inner, libc::EPOLL_CTL_ADD)
            }
            outcome => outcome,
        }
    }

    /// Removes the carrier socket from the inner set, and cancels its wake. Returns whether the inner set had it, so
    /// that it surely has it no more.
    pub fn delist(&mut self, inner: RawFd, waiter: Option<WaiterId>) -> bool {
        let clean = inner < 0 || self.control(inner, libc::EPOLL_CTL_DEL).is_ok();
        self.close_duplicate();
        if let Some(waiter) = waiter {
            self.disarm(waiter);
        }
        clean
    }

    /// The program's descriptor by which the carrier socket is known is closed; `other`, of the same stream, replaces it.
    pub fn rename(&mut self, other: c_int, inner: RawFd) {
        if inner >= 0 {
            let _ = self.control(inner, libc::EPOLL_CTL_DEL);
        }
        self.carrier = other;
        let _ = self.enlist(inner);
    }

    /// Registers the carrier socket by a descriptor of ours, which is closed before the program's last one.
    fn duplicate(&mut self) -> Result<(), c_int> {
        let copy = fd::duplicate(self.carrier).map_err(rustix::io::Errno::raw_os_error)?;
        self.carrier = internal_fds::hide(copy);
        self.is_duplicate = true;
        Ok(())
    }

    fn close_duplicate(&mut self) {
        if core::mem::take(&mut self.is_duplicate) {
            internal_fds::close(self.carrier);
        }
    }

    /// Handles the events that the inner set has of the carrier socket.
    pub fn news(&mut self, bits: u32) {
        if self.is_connecting() {
            if wait::is_connected(self.carrier, &self.held) {
                self.fresh = true;
            } else {
                self.kernel = bits;
            }
            return;
        }
        let by_ring = self.held.rx() != Direction::Tcp;
        if by_ring || bits & ALWAYS != 0 {
            let flags = PollFlags::from_bits_retain(u16::try_from(bits & 0xffff).unwrap_or(0));
            carrier::news(self.carrier, &self.held, flags);
        }
        let mut own = PRI | HUP | if by_ring { 0 } else { IN | RDHUP };
        if self.held.tx() == Direction::Tcp {
            own |= OUT;
        }
        self.kernel |= bits & own;
    }

    /// A direction has just gone back to TCP: the kernel's readiness of it is reported together with the rings', as of
    /// one socket.
    pub fn look_at_kernel(&mut self) {
        let asked = c_short::try_from(self.asked & (IN | OUT | PRI | RDHUP)).unwrap_or(0);
        let mut carrier = libc::pollfd { fd: self.carrier, events: asked, revents: 0 };
        if polling::poll_one(&mut carrier, 0) == Ok(true) {
            self.news(u32::from(carrier.revents.cast_unsigned()));
        }
    }

    /// The events that the inner set has to be asked for now.
    pub fn registration(&self) -> u32 {
        let wanted = if self.asleep { 0 } else { self.wanted & (IN | OUT | PRI | RDHUP) };
        let edge = self.wanted & ET;
        if self.is_connecting() {
            // The kernel reports a completed connection by room only, whatever is wanted.
            return if wanted & (IN | RDHUP) != 0 { wanted | OUT | edge } else { wanted | edge };
        }
        let (rx, tx) = (self.held.rx(), self.held.tx());
        if rx != Direction::Tcp && tx != Direction::Tcp {
            return QUIET | wanted & PRI;
        }
        let mut asked = wanted & PRI;
        if rx == Direction::Tcp {
            asked |= wanted & (IN | RDHUP);
        } else if edge != 0 || self.held.shared().status.fin.load(Relaxed) == 0 {
            asked |= bit(libc::EPOLLIN) | RDHUP;
        }
        if tx == Direction::Tcp {
            asked |= wanted & OUT;
        }
        // A one-shot that has fired must not report errors either, and a level would never end.
        asked | if self.asleep { ET } else { edge }
    }

    /// Asks the inner set for them, unless it is asked already.
    pub fn ask_kernel(&mut self, inner: RawFd) {
        let asked = self.registration();
        if asked & !QUIET != 0 || asked != self.asked {
            self.asked = asked;
            if inner >= 0 {
                let _ = self.control(inner, libc::EPOLL_CTL_MOD);
            }
        }
    }

    fn control(&self, inner: RawFd, operation: c_int) -> Result<(), c_int> {
        let event = epoll_event { events: self.asked, u64: self.key };
        polling::control(inner, operation, self.carrier, event)
    }
}
