//! Messages that wait for room in a channel, in a lane for each destination: a slow one keeps no other waiting.
//!
//! ```text
//!   lane 2:  [64 KB] [64 KB] [64 KB]          turn --> 2, 5, 9: each may send QUANTUM bytes, then the next;
//!   lane 5:  [100 B]                          what a lane did not use of its turn is kept while it waits
//!   lane 9:  [9 KB] [9 KB]
//! ```

use std::collections::{BTreeMap, VecDeque};

/// Bytes that a lane may send in one turn.
const QUANTUM: usize = 64 * 1024;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages of one lane.
    pub messages: usize,
    /// Bytes of one lane.
    pub lane_bytes: usize,
    /// Bytes in all.
    pub bytes: usize,
}

#[derive(Debug, Default)]
struct Lane {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// What it may still send in this turn, bytes.
    allowance: usize,
}

/// The lanes.
#[derive(Debug)]
pub struct Waiting {
    limits: Limits,
    lanes: BTreeMap<u16, Lane>,
    /// Lanes that hold something, each once; the first one's turn it is.
    turn: VecDeque<u16>,
    bytes: usize,
}

impl Waiting {
    /// Nothing waits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, lanes: BTreeMap::new(), turn: VecDeque::new(), bytes: 0 }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turn.is_empty()
    }

    /// Lets a message wait; `false` if there are too many already: then it is dropped.
    pub fn push(&mut self, lane: u16, message: &[u8]) -> bool {
        let len = message.len();
        let (messages, bytes) =
            self.lanes.get(&lane).map_or((0, 0), |held| (held.messages.len(), held.bytes));
        let Limits { messages: most, lane_bytes, bytes: all_bytes } = self.limits;
        if messages >= most || bytes + len > lane_bytes || self.bytes + len > all_bytes {
            return false;
        }
        let held = self.lanes.entry(lane).or_default();
        if held.messages.is_empty() {
            self.turn.push_back(lane);
        }
        held.messages.push_back(message.to_vec());
        held.bytes += len;
        self.bytes += len;
        true
    }

    /// The message whose turn it is.
    pub fn front(&mut self) -> Option<&[u8]> {
        loop {
            let number = *self.turn.front()?;
            let lane = self.lanes.get_mut(&number)?;
            let len = lane.messages.front()?.len();
            if lane.allowance >= len {
                break;
            }
            // Its turn begins, or is over: the others come first, unless there are none.
            lane.allowance += QUANTUM;
            self.turn.rotate_left(1);
        }
        self.lanes.get(self.turn.front()?)?.messages.front().map(Vec::as_slice)
    }

    /// Takes away what [`Self::front`] returned.
    pub fn pop(&mut self) {
        let Some(number) = self.turn.front().copied() else { return };
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(message) = lane.messages.pop_front() else { return };
        lane.allowance = lane.allowance.saturating_sub(message.len());
        lane.bytes -= message.len();
        self.bytes -= message.len();
        if lane.messages.is_empty() {
            self.lanes.remove(&number);
            self.turn.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { messages: 10_000, lane_bytes: 1 << 20, bytes: 2 << 20 };

    fn take(waiting: &mut Waiting) -> Option<Vec<u8>> {
        let message = waiting.front().map(<[u8]>::to_vec);
        waiting.pop();
        message
    }

    #[test]
    fn lane_is_a_queue() {
        let mut waiting = Waiting::new(LIMITS);
        for number in 0..100 {
            assert!(waiting.push(3, &[number; 5000]));
        }
        for number in 0..100 {
            assert_eq!(take(&mut waiting), Some(vec![number; 5000]));
        }
        assert_eq!((waiting.is_empty(), take(&mut waiting), waiting.bytes), (true, None, 0));
    }

    #[test]
    fn lanes_share_by_bytes_whatever_the_size_of_their_messages() {
        let mut waiting = Waiting::new(LIMITS);
        while waiting.push(1, &[1; 65_000]) {}
        for _ in 0..800 {
            assert!(waiting.push(2, &[2; 1000]));
        }
        let mut sent = [0; 3];
        while sent[1] + sent[2] < 1_000_000 {
            let message = take(&mut waiting).unwrap();
            sent[usize::from(message[0])] += message.len();
        }
        assert!(sent[1].abs_diff(sent[2]) <= 2 * QUANTUM, "{sent:?}");
    }

    #[test]
    fn full_lane_keeps_no_other_out() {
        let mut waiting = Waiting::new(LIMITS);
        while waiting.push(1, &[0; 60_000]) {}
        assert!(waiting.push(2, &[0; 60_000]) && !waiting.push(1, &[0; 60_000]));
        for lane in 3..100 {
            while waiting.push(lane, &[0; 60_000]) {}
        }
        assert!(waiting.bytes <= LIMITS.bytes);
        while take(&mut waiting).is_some() {}
        assert_eq!((waiting.lanes.len(), waiting.bytes), (0, 0));
    }

    #[test]
    fn messages_are_counted_too() {
        let mut waiting = Waiting::new(Limits { messages: 3, ..LIMITS });
        assert_eq!((0..9).filter(|_| waiting.push(0, &[])).count(), 3);
        assert_eq!(waiting.front(), Some(&[][..]));
    }
}
