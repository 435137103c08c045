//! An append-only list that any thread may read without a lock while others append. Members stay until the list is dropped;
//! *marks* (cursors) move along it, and never back.

use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// One member of a [`List`].
#[derive(Debug)]
pub struct Node<T> {
    value: T,
    next: AtomicPtr<Node<T>>,
}

/// A list of at least one member, with `MARKS` marks.
#[derive(Debug)]
pub struct List<T, const MARKS: usize> {
    first: AtomicPtr<Node<T>>,
    marks: [AtomicPtr<Node<T>>; MARKS],
}

impl<T> Node<T> {
    fn make(value: T) -> *mut Self {
        Box::into_raw(Box::new(Self { value, next: AtomicPtr::new(null_mut()) }))
    }

    /// The next member.
    #[inline]
    pub fn next(&self) -> Option<&Self> {
        // SAFETY: null or a box that is dropped with the list, which cannot be before `self`.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// Appends a member behind this one; `false` if another thread has appended first.
    pub fn append(&self, value: T) -> bool {
        let made = Self::make(value);
        let appended = self.next.compare_exchange(null_mut(), made, AcqRel, Acquire).is_ok();
        if !appended {
            // SAFETY: just made; no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
        appended
    }
}

impl<T> Deref for Node<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const MARKS: usize> List<T, MARKS> {
    /// A list of one member, at which all marks are.
    pub fn new(value: T) -> Self {
        let first = Node::make(value);
        Self { first: AtomicPtr::new(first), marks: [(); MARKS].map(|()| AtomicPtr::new(first)) }
    }

    /// All members, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Node<T>> {
        // SAFETY: never null, and dropped with `self` only.
        core::iter::successors(unsafe { self.first.load(Acquire).as_ref() }, |node| node.next())
    }

    /// The member at a mark. Panics if there is no such mark.
    #[inline]
    pub fn at(&self, mark: usize) -> &Node<T> {
        // SAFETY: never null: a member of the list, see `advance`; dropped with `self` only.
        unsafe { &*self.marks[mark].load(Acquire) }
    }

    /// Moves a mark forward to the next member for which `wanted` returns `true`, if there is one.
    pub fn advance(&self, mark: usize, wanted: impl Fn(&T) -> bool) {
        loop {
            let seen = self.marks[mark].load(Acquire);
            // SAFETY: as in `at`.
            let from = core::iter::successors(Some(unsafe { &*seen }), |node| node.next());
            let Some(found) = from.into_iter().find(|node| wanted(node)) else { return };
            let target = core::ptr::from_ref(found).cast_mut();
            if self.marks[mark].compare_exchange(seen, target, AcqRel, Acquire).is_ok() {
                return;
            }
        }
    }
}

impl<T, const MARKS: usize> Drop for List<T, MARKS> {
    fn drop(&mut self) {
        let mut next = *self.first.get_mut();
        while !next.is_null() {
            // SAFETY: from `Box::into_raw`, in the list once; no reference to `self` exists any more.
            let mut node = unsafe { Box::from_raw(next) };
            next = *node.next.get_mut();
        }
    }
}

// SAFETY: the list owns its members, which are dropped on the thread that drops it.
unsafe impl<T: Send, const MARKS: usize> Send for List<T, MARKS> {}
// SAFETY: members are only given out by shared reference, and any thread may append members.
unsafe impl<T: Send + Sync, const MARKS: usize> Sync for List<T, MARKS> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn list_members_stay_and_marks_go_forward() {
        let counted = Arc::new(());
        let list: List<(u32, Arc<()>), 1> = List::new((0, counted.clone()));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(last) = list.all().last()
                        && last.0 < 100
                    {
                        last.append((last.0 + 1, counted.clone()));
                        list.advance(0, |member| member.0 == last.0);
                    }
                });
            }
        });
        assert!(list.all().map(|member| member.0).eq(0..=100));
        assert!(list.at(0).0 >= 97);
        list.advance(0, |member| member.0 == 100);
        list.advance(0, |member| member.0 == 5);
        assert_eq!(list.at(0).0, 100);
        assert_eq!(Arc::strong_count(&counted), 102);
        drop(list);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
