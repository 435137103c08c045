//! Keys, out of the bytes that a terminal sends.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// A letter with Ctrl.
    Ctrl(char),
    /// F1 to F12.
    F(u8),
    /// Return.
    Enter,
    /// Escape, alone.
    Esc,
    /// The key that removes the last character.
    Backspace,
    /// Tab.
    Tab,
    /// Tab with Shift.
    BackTab,
    /// An arrow.
    Up,
    /// An arrow.
    Down,
    /// A page back.
    PageUp,
    /// A page on.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
}

const ESC: u8 = 0x1b;
/// A longer sequence is not one of a key.
const LONGEST: usize = 32;

/// Bytes that are yet to become a key.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
}

/// What the bytes begin with.
enum Next {
    /// A key, or none that is known, of so many bytes.
    Key(Option<Key>, usize),
    /// More bytes are to come.
    More,
}

impl Keys {
    /// Takes in what the terminal sent, and gives the keys that are complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.bytes.extend_from_slice(bytes);
        self.take()
    }

    fn take(&mut self) -> Vec<Key> {
        let mut keys = Vec::new();
        while let Some(Next::Key(key, length)) = (!self.bytes.is_empty()).then(|| next(&self.bytes)) {
            keys.extend(key);
            self.bytes.drain(..length.clamp(1, self.bytes.len()));
        }
        keys
    }

    /// Whether bytes of a sequence are there that may be keys by themselves, if nothing follows soon.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Nothing followed: the bytes are keys by themselves.
    pub(crate) fn give_up(&mut self) -> Vec<Key> {
        let begun = std::mem::take(&mut self.bytes);
        let Some(rest) = begun.strip_prefix(&[ESC]) else { return Vec::new() };
        let mut keys = vec![Key::Esc];
        keys.extend(self.feed(rest));
        self.bytes.clear();
        keys
    }
}

fn next(bytes: &[u8]) -> Next {
    match bytes {
        [ESC, b'[', rest @ ..] => csi(rest),
        [ESC, b'O'] | [ESC] => Next::More,
        [ESC, b'O', last, ..] => Next::Key(by_letter(*last), 3),
        // Alt with a key: the key alone has no such meaning.
        [ESC, ESC, ..] => Next::Key(Some(Key::Esc), 1),
        [ESC, _, ..] => Next::Key(None, 2),
        [b'\r' | b'\n', ..] => Next::Key(Some(Key::Enter), 1),
        [b'\t', ..] => Next::Key(Some(Key::Tab), 1),
        [0x7f | 0x08, ..] => Next::Key(Some(Key::Backspace), 1),
        [byte @ 1..0x20, ..] => Next::Key(Some(Key::Ctrl(char::from(byte + b'`'))), 1),
        [0, ..] => Next::Key(None, 1),
        _ => character(bytes),
    }
}

/// What follows `ESC [`.
fn csi(rest: &[u8]) -> Next {
    // The Linux console's F1 to F5.
    if let [b'[', tail @ ..] = rest {
        return match tail {
            [] => Next::More,
            [letter @ b'A'..=b'E', ..] => Next::Key(Some(Key::F(letter - b'A' + 1)), 4),
            _ => Next::Key(None, 4),
        };
    }
    let Some(end) = rest.iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        return if rest.len() < LONGEST { Next::More } else { Next::Key(None, rest.len() + 2) };
    };
    let first = rest[..end].split(|byte| *byte == b';').next().unwrap_or_default();
    let number = std::str::from_utf8(first).ok().and_then(|text| text.parse::<u8>().ok());
    let key = match (rest[end], number) {
        (b'~', Some(number)) => by_number(number),
        (b'Z', _) => Some(Key::BackTab),
        // The mouse, which is not asked for.
        (b'M', _) => None,
        (letter, _) => by_letter(letter),
    };
    Next::Key(key, end + 3)
}

fn by_letter(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'P'..=b'S' => Key::F(letter - b'P' + 1),
        b'M' => Key::Enter,
        _ => return None,
    })
}

fn by_number(number: u8) -> Option<Key> {
    Some(match number {
        1 | 7 => Key::Home,
        4 | 8 => Key::End,
        5 => Key::PageUp,
        6 => Key::PageDown,
        11..=15 => Key::F(number - 10),
        17..=21 => Key::F(number - 11),
        23 | 24 => Key::F(number - 12),
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Next {
    let some = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(some) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return Next::More,
        Err(error) if error.valid_up_to() == 0 => return Next::Key(None, 1),
        Err(error) => std::str::from_utf8(&some[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(c) => Next::Key((!c.is_control()).then_some(Key::Char(c)), c.len_utf8()),
        None => Next::Key(None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        let mut all = keys.feed(bytes);
        all.extend(keys.give_up());
        all
    }

    #[test]
    fn keys_of_usual_terminals_are_known() {
        let sequences: [(&[u8], Key); 20] = [
            (b"q", Key::Char('q')),
            ("é".as_bytes(), Key::Char('é')),
            (b"\x03", Key::Ctrl('c')),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            (b"\t", Key::Tab),
            (b"\x1b", Key::Esc),
            (b"\x1b[Z", Key::BackTab),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5A", Key::Up),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1bOH", Key::Home),
            (b"\x1b[4~", Key::End),
            (b"\x1bOP", Key::F(1)),
            (b"\x1b[[C", Key::F(3)),
            (b"\x1b[14~", Key::F(4)),
            (b"\x1b[17~", Key::F(6)),
            (b"\x1b[21~", Key::F(10)),
        ];
        for (bytes, key) in sequences {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
        assert_eq!(keys(b"/ab\x1b[A"), [Key::Char('/'), Key::Char('a'), Key::Char('b'), Key::Up]);
    }

    #[test]
    fn keys_may_come_in_pieces() {
        let mut all = Keys::default();
        assert!(all.feed(b"\x1b").is_empty() && all.is_waiting());
        assert!(all.feed(b"[2").is_empty());
        assert_eq!(all.feed(b"1~x"), [Key::F(10), Key::Char('x')]);
        assert!(!all.is_waiting());
        assert!(all.feed(&"é".as_bytes()[..1]).is_empty());
        assert_eq!(all.feed(&"é".as_bytes()[1..]), [Key::Char('é')]);
        assert!(all.feed(b"\x1b").is_empty());
        assert_eq!(all.give_up(), [Key::Esc]);
    }

    #[test]
    fn keys_that_are_not_known_do_nothing() {
        assert_eq!(keys(b"\x1b[<0;1;1Mq"), [Key::Char('q')]);
        assert_eq!(keys(b"\x1b[3~\x1b[200~q"), [Key::Char('q')]);
        assert_eq!(keys(b"\xff\0q"), [Key::Char('q')]);
    }

    proptest! {
        #[test]
        fn keys_of_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut all = Keys::default();
            prop_assert!(all.feed(&bytes).len() <= bytes.len());
            prop_assert!(all.bytes.len() <= LONGEST + 2);
            all.give_up();
            prop_assert!(!all.is_waiting());
        }
    }
}
