//! The screen: a pure function of what is known, what the keys have changed, and the size.

mod footer;
mod header;
mod network;
mod page;
mod table;

use super::layout::{Layout, Wishes};
use super::rows;
use super::state::State;
use super::theme::Theme;
use super::ui::{Mode, Ui};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The parts of a screen of this size.
pub(crate) fn layout(area: Rect, state: &State, theme: Theme) -> Layout {
    let picture = network::picture(state, usize::from(area.width), theme).len();
    Layout::of(area, Wishes { picture, ports: state.status().ports.len() })
}

/// Draws the whole screen.
pub(crate) fn draw(buffer: &mut Buffer, state: &State, ui: &Ui, theme: Theme) {
    let area = buffer.area;
    let parts = layout(area, state, theme);
    header::draw(&mut Canvas::new(buffer, parts.header), state, ui, theme);
    network::draw(&mut Canvas::new(buffer, parts.picture), state, theme);
    let ports = rows::ports(state);
    table::ports(&mut Canvas::new(buffer, parts.ports), &ports, theme);
    let all = ui.rows(state);
    table::tabs(&mut Canvas::new(buffer, parts.tabs), state, ui, &all, theme);
    let mut canvas = Canvas::new(buffer, parts.table);
    match ui.mode {
        Mode::Help(from) => page::help(&mut canvas, from, theme),
        Mode::Sort(at) => page::columns(&mut canvas, ui, at, theme),
        _ => table::draw(&mut canvas, ui, &all, theme),
    }
    footer::draw(&mut Canvas::new(buffer, parts.footer), ui, theme);
}

/// A part of the screen, which nothing leaves.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl<'a> Canvas<'a> {
    fn new(buffer: &'a mut Buffer, area: Rect) -> Self {
        let area = area.intersection(buffer.area);
        Self { buffer, area }
    }

    fn width(&self) -> usize {
        self.area.width.into()
    }

    fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Writes a text at a column and line of the part, in at most `width` columns; returns the column behind it.
    fn put(&mut self, x: usize, line: usize, text: &str, width: usize, style: Style) -> usize {
        let (Ok(dx), Ok(dy)) = (u16::try_from(x), u16::try_from(line)) else { return x };
        if dx >= self.area.width || dy >= self.area.height {
            return x;
        }
        let width = width.min(usize::from(self.area.width - dx));
        let (end, _) = self.buffer.set_stringn(self.area.x + dx, self.area.y + dy, text, width, style);
        usize::from(end - self.area.x)
    }

    /// Writes texts one behind the other.
    fn line(&mut self, line: usize, parts: &[(&str, Style)]) -> usize {
        let width = self.width();
        parts.iter().fold(0, |x, (text, style)| self.put(x, line, text, width, *style))
    }

    /// Gives a whole line a style.
    fn paint(&mut self, line: usize, style: Style) {
        if let Ok(dy) = u16::try_from(line)
            && dy < self.area.height
        {
            let row = Rect { y: self.area.y + dy, height: 1, ..self.area };
            self.buffer.set_style(row, style);
        }
    }
}

#[cfg(test)]
mod tests;
