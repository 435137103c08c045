//! A send that meets the ring's end becomes two records: one up to the end, and one from the next offset on. The second one is
//! published first, so that no reader sees a part of the send without the rest: programs expect that of one call that is short.
//!
//! The receiver looks for the second record only behind the first one, whose mark comes last. Where stores land out of order the
//! fence before that mark has all of the second record landed by then.

use super::{Credits, Offer, Producer, Violation, place};
use crate::Store;
use core::ops::Range;
use crosslane_wire::record::{FLAG_GROW, Header, Kind, span};
use crosslane_wire::segment::LINE;

/// Longest send that is published as a whole, bytes. Of a longer one the receiver takes the first part while the second is copied.
const SPLIT: usize = 16 * 1024;

impl Producer {
    /// Pushes a record of the first bytes of `part` into `offer`, which ends at the ring's end, and one of the rest, and publishes
    /// them together. `Ok(false)`: this is no such case, there is no room for both, or `fill` failed; nothing was pushed.
    #[inline(never)]
    pub(super) fn push_split<F>(
        &self,
        ring: &impl Store,
        credits: &impl Credits,
        (kind, offer): (Kind, Offer),
        part: Range<usize>,
        cpu: u16,
        fill: impl Fn(usize, Range<usize>) -> Result<(), F>,
    ) -> Result<bool, Violation> {
        let cut = part.start + offer.len;
        if part.len() > SPLIT || self.to_end() != span(offer.len as u64) {
            return Ok(false);
        }
        let [mut first, mut second] = [offer.len, part.end - cut].map(|len| Header {
            len: u32::try_from(len).unwrap_or(u32::MAX),
            kind,
            flags: 0,
            cpu,
        });
        if self.grows_now() {
            first.flags = FLAG_GROW;
        }
        let begin = self.begin();
        let behind = begin.behind(first);
        let wanted = first.span() + second.span() + LINE;
        // A record that ends at the ring's end would have to say whether the ring grows.
        if behind.offset + second.span() >= behind.cap || self.room(credits, wanted)? < wanted {
            return Ok(false);
        }
        let at_first = place(ring.len(), begin.offset, first.span())?;
        let at_second = place(ring.len(), behind.offset, second.span())?;
        self.close(ring)?;
        let payload_at = |at: usize, header: Header| at + usize::try_from(header.payload_at()).unwrap_or(0);
        if fill(payload_at(at_first, first), part.start..cut).is_err()
            || fill(payload_at(at_second, second), cut..part.end).is_err()
        {
            return Ok(false);
        }
        self.carry_credit(ring, credits, &mut first, (at_first, begin));
        self.carry_credit(ring, credits, &mut second, (at_second, behind));
        let words = [first, second].map(|header| self.stamp_word(header.to_word()));
        self.note.take_two(begin, words);
        self.publish_two(ring, (first, begin, at_first), words)?;
        self.note.take_back();
        Ok(true)
    }
}
