//! Texts that others wrote, such as names of programs: made harmless for a terminal, measured, and cut.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands for a character that is not shown.
const HIDDEN: char = '?';

/// The text without anything that a terminal obeys, or that has no width of its own: control characters (and so escape sequences),
/// marks that turn the direction of writing, and characters that join or change others. Each becomes a `?`.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_harmless(c) { c } else { HIDDEN }).collect()
}

/// The same in ASCII alone.
pub(crate) fn harmless_ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && is_harmless(c) { c } else { HIDDEN }).collect()
}

fn is_harmless(c: char) -> bool {
    let turns =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}' | '\u{00ad}');
    !turns && !breaks && c.width().is_some_and(|width| width > 0)
}

/// How many columns of a terminal the text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text, in at most `columns`; `mark` is its last character if it was cut.
pub(crate) fn cut(text: &str, columns: usize, mark: char) -> String {
    shorten(text.chars(), text, columns, mark).into_iter().collect()
}

/// The end of a text, in at most `columns`; `mark` is its first character if it was cut.
pub(crate) fn cut_front(text: &str, columns: usize, mark: char) -> String {
    shorten(text.chars().rev(), text, columns, mark).into_iter().rev().collect()
}

fn shorten(chars: impl Iterator<Item = char>, text: &str, columns: usize, mark: char) -> Vec<char> {
    let wide = |c: char| c.width().unwrap_or(0);
    if text.chars().map(wide).sum::<usize>() <= columns {
        return chars.collect();
    }
    let Some(mut left) = columns.checked_sub(wide(mark)) else { return Vec::new() };
    let fits = |c: &char| {
        let rest = left.checked_sub(wide(*c));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let mut kept: Vec<char> = chars.take_while(fits).collect();
    kept.push(mark);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_keeps_nothing_that_a_terminal_obeys() {
        assert_eq!(harmless("nginx: worker"), "nginx: worker");
        assert_eq!(harmless("a\x1b]0;title\x07\r\n\tb"), "a?]0;title????b");
        assert_eq!(harmless("\u{9b}31mred\u{202e}der\u{200b}e\u{301}"), "?31mred?der?e?");
        assert_eq!(harmless("端末"), "端末");
        assert_eq!(harmless_ascii("端末 x\x7f"), "?? x?");
    }

    #[test]
    fn text_is_cut_by_columns_and_not_by_characters() {
        assert_eq!(cut("iperf3", 6, '~'), "iperf3");
        assert_eq!(cut("iperf3", 4, '~'), "ipe~");
        assert_eq!(cut("端末端末", 6, '~'), "端末~");
        assert_eq!(cut_front("[fd86::1]:51665", 8, '~'), "~]:51665");
        assert_eq!((cut("x", 0, '~'), cut("端", 1, '~')), (String::new(), "~".to_owned()));
        for columns in 0..9 {
            assert!(width(&cut("a端b末c端", columns, '~')) <= columns);
            assert!(width(&cut_front("a端b末c端", columns, '~')) <= columns);
        }
    }
}
