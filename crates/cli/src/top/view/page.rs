//! What covers the table for a while: the page of keys, and the choice of a column.

use super::Canvas;
use crate::top::help::LINES;
use crate::top::theme::Theme;
use crate::top::ui::Ui;
use ratatui::style::Style;

/// Draws the page of keys, from a line on.
pub(super) fn help(canvas: &mut Canvas<'_>, from: usize, theme: Theme) {
    canvas.paint(0, theme.titles());
    canvas.put(1, 0, "KEYS   up and down move this page, any other key ends it", usize::MAX, theme.titles());
    for (at, (key, what)) in LINES.iter().skip(from).take(canvas.height().saturating_sub(1)).enumerate() {
        let x = if key.is_empty() { 1 } else { 10 };
        canvas.put(1, at + 1, key, 8, theme.label());
        canvas.put(x, at + 1, what, usize::MAX, Style::new());
    }
}

/// Draws the columns of the table; the one at `at` is marked.
pub(super) fn columns(canvas: &mut Canvas<'_>, ui: &Ui, at: usize, theme: Theme) {
    let room = canvas.height().saturating_sub(1).max(1);
    let first = (at + 1).saturating_sub(room);
    canvas.paint(0, theme.titles());
    canvas.put(1, 0, "SORT BY", usize::MAX, theme.titles());
    for (line, (index, column)) in ui.tab.columns().iter().enumerate().skip(first).take(room).enumerate() {
        let style = if index == at { theme.selected() } else { Style::new() };
        canvas.put(1, line + 1, &format!(" {:<10}", column.title), usize::MAX, style);
    }
}
