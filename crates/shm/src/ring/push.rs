//! Pushing payload as records: from this process's own memory, from another ring, or from a program's memory, whose pages
//! may be unmapped.

use super::open::GATHERED;
use super::{Credits, Producer, Source, Violation};
use crate::account::{self, Function};
use crate::guarded::Fault;
use crate::{Inbound, Outbound, Store};
use core::convert::Infallible;
use core::ops::Range;
use crosslane_wire::record::Kind;

impl Producer {
    /// Pushes as many of `bytes` as there is room for, as records of `kind`, and returns how many. Leaves one line free for
    /// [`Self::push_control`].
    pub fn push(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        bytes: &[u8],
        cpu: u16,
    ) -> Result<usize, Violation> {
        let Ok(pushed) = self.push_by(ring, credits, kind, bytes.len(), cpu, |at, part: Range<usize>| {
            ring.write(at, &bytes[part]);
            Ok::<(), Infallible>(())
        })?;
        Ok(pushed)
    }

    /// As [`Self::push`], from a program's memory, whose pages may be unmapped. A record of which a page is missing is
    /// not pushed: the call returns the bytes of the records before it, or [`Fault`] if it is the first.
    #[inline(always)]
    pub fn push_guarded<'a>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        bytes: impl Source<'a>,
        cpu: u16,
    ) -> Result<Result<usize, Fault>, Violation> {
        let fill = |mut at, part: Range<usize>| {
            for slice in bytes.range(part).slices() {
                ring.write_guarded(at, slice)?;
                at += slice.len();
            }
            Ok(())
        };
        self.push_by(ring, credits, kind, bytes.length(), cpu, fill)
    }

    /// Pushes as many of `len` bytes as there is room for; `fill` copies a range of them to a byte of the segment, or fails.
    #[inline(always)]
    fn push_by<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        kind: Kind,
        len: usize,
        cpu: u16,
        fill: impl Fn(usize, Range<usize>) -> Result<(), F>,
    ) -> Result<Result<usize, F>, Violation> {
        if len == 0 {
            // An empty buffer may be at any address, mapped or not.
            return Ok(Ok(0));
        }
        if len as u64 <= GATHERED && self.is_behind() && kind == Kind::Data {
            return self.push_behind(ring, credits, len, cpu, fill);
        }
        self.push_parts(ring, credits, (kind, false), len, cpu, fill)
    }

    /// As [`Self::push`], of at most [`GATHERED`] bytes to a receiver that seems to be behind: appends them to the open
    /// record, or begins an open record.
    #[inline(never)]
    fn push_behind<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        len: usize,
        cpu: u16,
        fill: impl Fn(usize, Range<usize>) -> Result<(), F>,
    ) -> Result<Result<usize, F>, Violation> {
        let gathers = self.may_gather(credits)?;
        if gathers {
            match self.append(ring, credits, len, |at| fill(at, 0..len))? {
                Ok(true) => return Ok(Ok(len)),
                Ok(false) => {}
                Err(failed) => return Ok(Err(failed)),
            }
        }
        self.push_parts(ring, credits, (Kind::Data, gathers), len, cpu, fill)
    }

    /// As [`Self::push`], of the `len` bytes at byte `from_offset` of another segment, in whose ring they arrived.
    pub fn forward(
        &self,
        ring: &Outbound,
        credits: &impl Credits,
        (from, from_offset): (&Inbound, usize),
        len: usize,
        cpu: u16,
    ) -> Result<usize, Violation> {
        let Ok(pushed) = self.push_parts(ring, credits, (Kind::Data, false), len, cpu, |at, part| {
            ring.copy_from(at, from, from_offset + part.start, part.len());
            Ok::<(), Infallible>(())
        })?;
        Ok(pushed)
    }

    /// Pushes records of up to [`MAX_PAYLOAD`](crosslane_wire::record::MAX_PAYLOAD) bytes each for as many of `len` bytes as
    /// there is room for; with `gathers` the last one stays open. If `fill` fails, the records before that one stay pushed.
    #[inline(always)]
    fn push_parts<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        (kind, gathers): (Kind, bool),
        len: usize,
        cpu: u16,
        fill: impl Fn(usize, Range<usize>) -> Result<(), F>,
    ) -> Result<Result<usize, F>, Violation> {
        if account::is_on() {
            account::aside(|| self.push_counted::<true, F>(ring, credits, (kind, gathers), len, cpu, fill))
        } else {
            self.push_counted::<false, F>(ring, credits, (kind, gathers), len, cpu, fill)
        }
    }

    #[inline(always)]
    fn push_counted<const COUNTED: bool, F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        (kind, gathers): (Kind, bool),
        len: usize,
        cpu: u16,
        fill: impl Fn(usize, Range<usize>) -> Result<(), F>,
    ) -> Result<Result<usize, F>, Violation> {
        let _span = COUNTED.then(|| account::sending(Function::Allot));
        let mut done = 0;
        while done < len
            && let Some(offer) = self.offer(ring, credits, len - done, cpu)?
        {
            let copy = |at, part| {
                let _span = COUNTED.then(|| account::sending(Function::CopyIn));
                fill(at, part)
            };
            if offer.len < len - done
                && self.push_split(ring, credits, (kind, offer), done..len, cpu, copy)?
            {
                return Ok(Ok(len));
            }
            let part = done..done + offer.len;
            let put =
                self.put_by(ring, credits, (kind, gathers), offer.len as u64, cpu, |at| copy(at, part))?;
            match put {
                Ok(()) => done += offer.len,
                Err(failed) if done == 0 => return Ok(Err(failed)),
                Err(_) => break,
            }
        }
        Ok(Ok(done))
    }
}
