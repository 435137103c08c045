//! The memory behind one window: its length and the segments carved from it.

use crate::PortError;
use crosslane_wire::SegmentRange;
use std::collections::BTreeMap;

/// The memory behind one window; `T` is kept for each segment.
#[derive(Debug)]
pub(crate) struct Translation<T> {
    len: u64,
    segments: BTreeMap<u64, (u64, T)>,
}

impl<T> Translation<T> {
    /// A window of `len` bytes without segments; 0 = no memory behind it.
    pub(crate) fn new(len: u64) -> Self {
        Self { len, segments: BTreeMap::new() }
    }

    /// Bytes behind the window.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Number of segments.
    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    /// Whether `range` could be carved now.
    pub(crate) fn check(&self, range: SegmentRange) -> Result<(), PortError> {
        let SegmentRange { offset, len } = range;
        let (true, Some(end)) = (range.fits(self.len), range.end()) else {
            return Err(PortError::Range { offset, len, window: self.len });
        };
        match self.segments.range(..end).next_back() {
            Some((before, (its_len, _))) if before + its_len > offset => {
                Err(PortError::Overlap { offset, len })
            }
            _ => Ok(()),
        }
    }

    /// Carves `range`.
    pub(crate) fn insert(&mut self, range: SegmentRange, value: T) -> Result<(), PortError> {
        self.check(range)?;
        self.segments.insert(range.offset, (range.len, value));
        Ok(())
    }

    /// The segment of exactly this range.
    pub(crate) fn get(&self, range: SegmentRange) -> Option<&T> {
        self.segments.get(&range.offset).filter(|(len, _)| *len == range.len).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, range: SegmentRange) -> Option<&mut T> {
        let (len, value) = self.segments.get_mut(&range.offset)?;
        (*len == range.len).then_some(value)
    }

    /// Frees the segment of exactly this range.
    pub(crate) fn remove(&mut self, range: SegmentRange) -> Option<T> {
        self.get(range)?;
        self.segments.remove(&range.offset).map(|(_, value)| value)
    }

    /// Frees all segments.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
    }

    /// The values kept for the segments.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.segments.values().map(|(_, value)| value)
    }
}

/// Fails if a window of `window_bytes` cannot have this translation.
pub(crate) fn check_len(len: u64, window_bytes: u64) -> Result<(), PortError> {
    if len.is_multiple_of(crosslane_wire::segment::PAGE) && len <= window_bytes {
        Ok(())
    } else {
        Err(PortError::Range { offset: 0, len, window: window_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(offset: u64, len: u64) -> SegmentRange {
        SegmentRange { offset: offset * 4096, len: len * 4096 }
    }

    #[test]
    fn window_range_is_found_and_freed_exactly() {
        let mut window = Translation::new(16 * 4096);
        window.insert(pages(2, 2), 'a').unwrap();
        assert_eq!(window.get(pages(2, 2)), Some(&'a'));
        for other in [pages(2, 1), pages(3, 1), pages(1, 2), pages(2, 3)] {
            assert_eq!(window.get(other), None);
            assert_eq!(window.remove(other), None);
        }
        assert_eq!(window.remove(pages(2, 2)), Some('a'));
        window.insert(pages(1, 4), 'b').unwrap();
    }

    #[test]
    fn window_range_that_wraps_or_leaves_is_refused() {
        let window = Translation::<()>::new(4 * 4096);
        let wrap = SegmentRange { offset: u64::MAX - 4095, len: 8192 };
        for bad in [wrap, pages(4, 1), pages(0, 5), pages(0, 0), SegmentRange { offset: 1, len: 4096 }] {
            assert!(matches!(window.check(bad), Err(PortError::Range { .. })), "{bad:?}");
        }
    }

    proptest! {
        /// Compared with a plain map of pages.
        #[test]
        fn window_ranges_never_overlap(steps in prop::collection::vec((0u64..20, 0u64..6, any::<bool>()), 0..60)) {
            let mut window = Translation::new(16 * 4096);
            let mut used = [None; 16];
            for (id, (at, len, free)) in steps.into_iter().enumerate() {
                let range = pages(at, len);
                if free {
                    if let Some(id) = window.remove(range) {
                        used.iter_mut().filter(|page| **page == Some(id)).for_each(|page| *page = None);
                    }
                    continue;
                }
                let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + len).unwrap());
                let fits = len > 0 && to <= 16 && used[from..to].iter().all(Option::is_none);
                prop_assert_eq!(window.insert(range, id).is_ok(), fits);
                if fits {
                    used[from..to].fill(Some(id));
                }
            }
        }
    }
}
