//! A buffer of each thread's own, for bytes on their way between a stream and a file or a pipe. It stays in the processor's
//! cache, and is neither made nor cleared for each call.

use std::cell::Cell;

/// Its length, bytes.
pub const LEN: usize = 128 * 1024;

thread_local! {
    static BUFFER: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Runs `work` with `len` bytes of the buffer, or with all if it is shorter. They hold whatever was there before.
pub fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    // A signal handler that comes in between gets another one.
    let kept = BUFFER.try_with(Cell::take).ok().flatten();
    let mut buffer = kept.unwrap_or_else(|| vec![0; LEN].into_boxed_slice());
    let outcome = work(&mut buffer[..len.min(LEN)]);
    let _ = BUFFER.try_with(|cell| cell.set(Some(buffer)));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_reused_but_not_when_nested() {
        let place = |bytes: &mut [u8]| bytes.as_ptr().addr();
        let first = with(LEN, place);
        let (outer, inner) = with(10, |outer| {
            assert_eq!(outer.len(), 10);
            (place(outer), with(2 * LEN, |inner| (place(inner), inner.len())))
        });
        assert_eq!(outer, first);
        assert_ne!(inner.0, first);
        assert_eq!(inner.1, LEN);
    }
}
