//! Which parts of a port's inbound memory are given out.

use crosslane_wire::SegmentRange;
use std::collections::BTreeMap;

/// First-fit allotment of page-aligned ranges.
#[derive(Debug)]
pub struct Window {
    start: u64,
    end: u64,
    /// Ranges in use: offset to length.
    used: BTreeMap<u64, u64>,
    used_bytes: u64,
    /// No gap lies before this offset.
    hint: u64,
}

impl Window {
    /// A window of `end` bytes, of which those before `start` are spoken for.
    pub fn new(start: u64, end: u64) -> Self {
        Self { start, end, used: BTreeMap::new(), used_bytes: 0, hint: start }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Bytes that can be given out in all.
    pub fn circuits_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes given out, and those spoken for.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes + self.start
    }

    /// Gives out `len` bytes (a multiple of a page), if there are as many in one piece.
    pub fn allot(&mut self, len: u64) -> Option<SegmentRange> {
        let mut offset = self.hint;
        for (&begin, &taken) in self.used.range(self.hint..) {
            if begin - offset >= len {
                break;
            }
            offset = begin + taken;
        }
        if offset.checked_add(len)? > self.end {
            return None;
        }
        self.used.insert(offset, len);
        self.used_bytes += len;
        if offset == self.hint {
            self.hint = offset + len;
        }
        Some(SegmentRange { offset, len })
    }

    /// Takes a range back. One that was not given out changes nothing.
    pub fn free(&mut self, range: SegmentRange) {
        if self.used.get(&range.offset) == Some(&range.len) {
            self.used.remove(&range.offset);
            self.used_bytes -= range.len;
            self.hint = self.hint.min(range.offset);
        }
    }

    /// Takes all ranges back and says which they were.
    pub fn clear(&mut self) -> Vec<SegmentRange> {
        self.used_bytes = 0;
        self.hint = self.start;
        std::mem::take(&mut self.used).into_iter().map(|(offset, len)| SegmentRange { offset, len }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_come_back() {
        let mut window = Window::new(100, 1000);
        let ranges: Vec<SegmentRange> = std::iter::from_fn(|| window.allot(200)).collect();
        assert_eq!(ranges.iter().map(|range| range.offset).collect::<Vec<_>>(), [100, 300, 500, 700]);
        assert_eq!(window.used_bytes(), 900);
        window.free(ranges[1]);
        window.free(ranges[2]);
        window.free(SegmentRange { offset: 0, len: 100 });
        assert_eq!(window.allot(400), Some(SegmentRange { offset: 300, len: 400 }));
        assert_eq!(window.allot(1), Some(SegmentRange { offset: 900, len: 1 }));
        assert_eq!(window.clear().len(), 4);
        assert_eq!((window.used_bytes(), window.allot(900).map(|range| range.offset)), (100, Some(100)));
    }

    #[test]
    fn window_keeps_its_books_in_any_order() {
        let mut window = Window::new(0, 1 << 20);
        let (mut held, mut random, mut bytes) = (Vec::new(), fastrand::Rng::with_seed(1), 0);
        for _ in 0..5000 {
            if random.bool() {
                if let Some(range) = window.allot(random.u64(1..=9) * 4096) {
                    assert!(held.iter().all(|other: &SegmentRange| {
                        range.offset + range.len <= other.offset || other.offset + other.len <= range.offset
                    }));
                    bytes += range.len;
                    held.push(range);
                }
            } else if !held.is_empty() {
                let range = held.swap_remove(random.usize(..held.len()));
                bytes -= range.len;
                window.free(range);
            }
            assert_eq!(window.used_bytes(), bytes);
        }
    }
}
