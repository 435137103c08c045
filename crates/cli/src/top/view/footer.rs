//! The line of keys.

use super::Canvas;
use crate::text;
use crate::top::theme::Theme;
use crate::top::ui::{Mode, Ui};
use ratatui::style::Style;

const TABLE: &[(&str, &str)] = &[
    ("F1", "Help "),
    ("Tab", "Tables "),
    ("F3", "Search "),
    ("F4", "Filter "),
    ("F6", "SortBy "),
    ("I", "Invert "),
    ("Spc", "Tag "),
    ("p", "Pause "),
    ("+-", "Delay "),
    ("F10", "Quit "),
];

/// Draws the keys that mean something now, or what is being typed.
pub(super) fn draw(canvas: &mut Canvas<'_>, ui: &Ui, theme: Theme) {
    let all: &[(&str, &str)] = match ui.mode {
        Mode::Table => TABLE,
        Mode::Help(_) => &[("Up/Down", "Move "), ("Esc", "Back "), ("F10", "Quit ")],
        Mode::Sort(_) => &[("Up/Down", "Choose "), ("Enter", "Sort "), ("Esc", "Cancel ")],
        Mode::Search => &[("F3", "Next "), ("Enter", "Done ")],
        Mode::Filter => &[("Enter", "Done "), ("Esc", "Clear ")],
    };
    let end = keys(canvas, theme, all);
    match ui.mode {
        Mode::Search => typed(canvas, end, "Search: ", &ui.search, theme),
        Mode::Filter => typed(canvas, end, "Filter: ", &ui.view().filter, theme),
        Mode::Table | Mode::Help(_) | Mode::Sort(_) => {}
    }
}

/// Keys and what they do; those that do not fit are left out, all but the last.
fn keys(canvas: &mut Canvas<'_>, theme: Theme, all: &[(&str, &str)]) -> usize {
    let width = canvas.width();
    let size = |(key, what): &(&str, &str)| key.len() + what.len();
    let last = all.last().map_or(0, size);
    let mut x = 0;
    for (at, pair) in all.iter().enumerate() {
        let is_last = at + 1 == all.len();
        if !is_last && x + size(pair) + last > width {
            continue;
        }
        x = canvas.put(x, 0, pair.0, width, theme.value());
        x = canvas.put(x, 0, pair.1, width, theme.marked());
    }
    x
}

/// The end of what is typed is seen, and where the next character comes.
fn typed(canvas: &mut Canvas<'_>, x: usize, name: &str, text: &str, theme: Theme) {
    let width = canvas.width();
    let x = canvas.put(x + 1, 0, name, width, theme.label());
    let text = if theme.unicode { text::harmless(text) } else { text::harmless_ascii(text) };
    let shown = text::cut_front(&text, width.saturating_sub(x + 1), theme.cut());
    let x = canvas.put(x, 0, &shown, width, Style::new());
    canvas.put(x, 0, "_", 1, theme.value());
}
