//! Copies between a ring and a buffer that the engine has mapped.

use crosslane_shm::remote::Span;
use crosslane_shm::submission::Way;
use crosslane_shm::{FarBuffer, Inbound, Outbound};
use crosslane_wire::Reach;

/// Whether the engine may copy from, or to, these places of a buffer.
pub(super) fn may_lie_in(registered: &FarBuffer, way: Way, spans: &[Span]) -> bool {
    (way == Way::Out || registered.reach() == Reach::Store)
        && spans.iter().all(|span| registered.has(span.address, span.len as u64))
}

/// Copies parts of a buffer to places of a ring; both have as many bytes.
pub(super) fn send(from: &FarBuffer, parts: &[Span], to: &Outbound, places: &[(usize, usize)]) {
    each(parts, places, |offset, at, len| from.send(offset, to, at, len));
}

/// Copies places of a ring to parts of a buffer.
pub(super) fn receive(from: &Inbound, places: &[(usize, usize)], to: &FarBuffer, parts: &[Span]) {
    each(parts, places, |offset, at, len| to.receive(offset, from, at, len));
}

/// Walks through both lists; calls `copy` with an offset in the buffer, one in the ring, and a number of bytes.
fn each(parts: &[Span], places: &[(usize, usize)], mut copy: impl FnMut(usize, usize, usize)) {
    let mut parts = parts.iter().map(|part| (usize::try_from(part.address).unwrap_or(usize::MAX), part.len));
    let (mut offset, mut left) = (0, 0);
    for &(mut at, mut wanted) in places {
        while wanted > 0 {
            if left == 0 {
                let Some(part) = parts.next() else { return };
                (offset, left) = part;
            }
            let len = wanted.min(left);
            copy(offset, at, len);
            (offset, left, at, wanted) = (offset + len, left - len, at + len, wanted - len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::buffer::{Buffer, OpenBuffer, locate};

    #[test]
    fn places_outside_of_a_buffer_are_refused_and_so_are_stores_where_only_loads_may_be() {
        let (own, open) = (Buffer::new(8192).unwrap(), OpenBuffer::new(8192).unwrap());
        let map = |at, reach| {
            let located = locate(at, 8192).unwrap();
            located.share(|fd| FarBuffer::map(fd, located.len, reach).unwrap()).unwrap()
        };
        let load = map(own.as_ptr(), Reach::Load);
        let store = map(open.pointer().as_ptr().cast_const(), Reach::Store);
        let may = |buffer, way, address, len| may_lie_in(buffer, way, &[Span { address, len }]);
        assert!(may(&load, Way::Out, 0, 8192) && !may(&load, Way::In, 0, 8192));
        for way in [Way::Out, Way::In] {
            assert!(may(&store, way, 0, 8192) && may(&store, way, 8191, 1));
            for (address, len) in [(0, 8193), (8192, 1), (8187, 6), (u64::MAX, 2), (1 << 63, 1)] {
                assert!(!may(&store, way, address, len), "{way:?} {address} {len}");
            }
        }
    }

    #[test]
    fn mapped_lists_are_gone_through_together() {
        let span = |address, len| Span { address, len };
        let mut copied = Vec::new();
        each(&[span(10, 5), span(100, 2)], &[(1000, 3), (2000, 4)], |offset, at, len| {
            copied.push((offset, at, len));
        });
        assert_eq!(copied, [(10, 1000, 3), (13, 2000, 2), (100, 2002, 2)]);
    }

    #[test]
    fn mapped_copy_leaves_out_what_has_no_end_in_the_buffer() {
        let mut copied = 0;
        each(&[Span { address: 0, len: 4 }], &[(0, 9)], |_, _, len| copied += len);
        assert_eq!(copied, 4);
    }
}
