//! Makes text that strangers may have chosen one harmless line.

use std::fmt::Write as _;

/// Longest line, bytes.
pub(super) const MOST: usize = 2048;

/// The line for the log: control characters are written as `\u{..}`, and what is too long is cut off.
pub(super) fn clean(raw: &[u8]) -> String {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    let mut line = String::with_capacity(raw.len() + 1);
    for c in String::from_utf8_lossy(&raw[..raw.len().min(MOST)]).chars() {
        // The controls that change the direction of writing are no control characters to `char`, but hide text as well.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            let _ = write!(line, "{}", c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    if raw.len() > MOST {
        let _ = write!(line, "... ({} bytes)", raw.len());
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_stays_one_line_and_says_what_is_in_it() {
        assert_eq!(clean(b"plain \xc3\xa4\n"), "plain \u{e4}\n");
        assert_eq!(clean(b"a\nERROR forged\x1b[2J\r"), "a\\u{a}ERROR forged\\u{1b}[2J\\u{d}\n");
        assert_eq!(clean("\u{202e}turned".as_bytes()), "\\u{202e}turned\n");
        assert_eq!(clean(b"\xff\n"), "\u{fffd}\n");
    }

    #[test]
    fn line_has_an_end() {
        let long = clean(&[b'x'; 100_000]);
        assert!(long.len() < MOST + 30 && long.ends_with("x... (100000 bytes)\n"), "{}", long.len());
    }
}
