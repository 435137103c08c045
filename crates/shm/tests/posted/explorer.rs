//! Tries every sequence of choices, by doing the work anew for each; a state that was seen before is not followed again.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// States that a search may have, at most: it is to end in seconds and within some megabytes.
const MOST_STATES: usize = 2_000_000;

/// What was chosen so far, and of how many.
#[derive(Debug, Default)]
pub(crate) struct Chooser {
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Chooser {
    /// One of `count`, from 0 on.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        if self.at == self.path.len() {
            self.path.push((0, count));
        }
        let (taken, of) = self.path[self.at];
        assert_eq!(of, count, "the work is not the same each time");
        self.at += 1;
        taken
    }

    /// Whether all choices that were made before are made again.
    fn is_new(&self) -> bool {
        self.at == self.path.len()
    }

    /// The next sequence; `false`: there is none.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((taken, of)) = self.path.pop() {
            if taken + 1 < of {
                self.path.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}

/// Where a run stands.
pub(crate) enum Outcome {
    /// It goes on.
    Goes,
    /// It has ended well.
    Ended,
    /// It shows that something is wrong.
    Wrong(String),
}

/// A run, from its beginning.
pub(crate) trait Run: Hash {
    /// Whether there is more than one way to go on; what is chosen within a step does not count.
    fn has_choice(&self) -> bool;
    /// Makes the next choice and does it.
    fn step(&mut self) -> Outcome;
    /// Its chooser, before it is thrown away, or to be looked at.
    fn with_chooser<T>(&mut self, work: impl FnOnce(&mut Chooser) -> T) -> T;
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) wrong: Option<String>,
}

/// Follows all runs that `begin` may begin, until one goes wrong.
pub(crate) fn explore<R: Run>(begin: impl Fn(Chooser) -> R) -> Found {
    let (mut seen, mut chooser) = (HashSet::new(), Chooser::default());
    loop {
        let mut run = begin(chooser);
        let wrong = follow(&mut run, &mut seen);
        if wrong.is_some() {
            return Found { states: seen.len(), wrong };
        }
        assert!(seen.len() < MOST_STATES, "too many states");
        chooser = run.with_chooser(core::mem::take);
        if !chooser.advance() {
            return Found { states: seen.len(), wrong: None };
        }
    }
}

/// Does one run until it ends, or comes to where another one was.
fn follow<R: Run>(run: &mut R, seen: &mut HashSet<u64>) -> Option<String> {
    loop {
        let is_new = run.with_chooser(|chooser| chooser.is_new());
        if is_new && run.has_choice() && !seen.insert(key(run)) {
            return None;
        }
        match run.step() {
            Outcome::Goes => {}
            Outcome::Ended => return None,
            Outcome::Wrong(why) => return Some(why),
        }
    }
}

fn key(run: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    run.hash(&mut hasher);
    hasher.finish()
}
