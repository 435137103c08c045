//! Who waits for which text: sessions of one user that may see the same get the same, and users take turns.

use super::Text;
use crate::session_id::SessionId;
use crate::sight::Sight;
use crosslane_passing::Foreign;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A text, and the sessions that get it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) uid: u32,
    pub(super) text: Text,
    pub(super) sight: Sight,
    pub(super) sessions: Vec<(SessionId, Arc<Foreign>)>,
}

/// Texts that are to be made, by user; each session waits for one at most.
#[derive(Debug, Default)]
pub(super) struct Queue {
    users: BTreeMap<u32, VecDeque<Group>>,
    /// Whose text was made last: the next user comes now.
    last: u32,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub(super) fn add(&mut self, text: Text, (uid, sight): (u32, Sight), session: (SessionId, Arc<Foreign>)) {
        let groups = self.users.entry(uid).or_default();
        match groups.iter_mut().find(|group| (group.text, group.sight) == (text, sight)) {
            Some(group) => group.sessions.push(session),
            None => groups.push_back(Group { uid, text, sight, sessions: vec![session] }),
        }
    }

    pub(super) fn take(&mut self) -> Option<Group> {
        let next = self.users.range(self.last.saturating_add(1)..).chain(self.users.range(..)).next();
        let uid = *next?.0;
        self.last = uid;
        let groups = self.users.get_mut(&uid)?;
        let group = groups.pop_front();
        if groups.is_empty() {
            self.users.remove(&uid);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_passing::Owner;

    fn session(number: u64) -> (SessionId, Arc<Foreign>) {
        let file = std::fs::File::open("/dev/null").unwrap();
        (SessionId(number), Arc::new(Foreign::new(file.into(), Owner::NOBODY)))
    }

    fn turns(queue: &mut Queue) -> Vec<(Text, Sight, usize)> {
        let all = std::iter::from_fn(|| queue.take());
        all.map(|group| (group.text, group.sight, group.sessions.len())).collect()
    }

    #[test]
    fn texts_are_the_same_for_who_asks_the_same_and_users_take_turns() {
        let mut queue = Queue::default();
        for number in 0..100 {
            let pid = u32::try_from(number % 3).unwrap();
            queue.add(Text::Explain(pid), (7, Sight::Of(7)), session(number));
        }
        queue.add(Text::Status, (8, Sight::Of(8)), session(100));
        let explained = |pid, count| (Text::Explain(pid), Sight::Of(7), count);
        let status = (Text::Status, Sight::Of(8), 1);
        assert_eq!(turns(&mut queue), [explained(0, 34), status, explained(1, 33), explained(2, 33)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn sessions_of_one_user_that_may_see_different_things_get_different_texts() {
        let mut queue = Queue::default();
        // An operator's group is that of the process, not of its user.
        for (number, sight) in [Sight::Of(7), Sight::All, Sight::Of(7)].into_iter().enumerate() {
            queue.add(Text::Status, (7, sight), session(number as u64));
        }
        assert_eq!(turns(&mut queue), [(Text::Status, Sight::Of(7), 2), (Text::Status, Sight::All, 1)]);
    }
}
