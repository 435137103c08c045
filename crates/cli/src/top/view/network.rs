//! The network as a picture, with what this host's cables carry.

use super::Canvas;
use crate::picture::{Part, Picture, Row};
use crate::top::state::State;
use crate::top::theme::Theme;
use crate::top::units::bits;
use ratatui::style::Style;

/// The lines of the picture.
pub(super) fn picture(state: &State, width: usize, theme: Theme) -> Vec<Row> {
    let loads =
        state.cables().into_iter().map(|(peer, [tx, rx])| (peer.0, format!("{}/{}", bits(tx), bits(rx))));
    Picture::new(state.status(), state.seen()).with_loads(loads).rows(width.saturating_sub(2), theme.unicode)
}

/// Draws as much of it as there is room for.
pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, theme: Theme) {
    let rows = picture(state, canvas.width(), theme);
    let room = canvas.height();
    let shown = if rows.len() > room { room.saturating_sub(1) } else { rows.len() };
    for (line, row) in rows.iter().take(shown).enumerate() {
        let mut x = 1;
        for (part, text) in row {
            x = canvas.put(x, line, text, usize::MAX, style(*part, theme));
        }
    }
    if shown < rows.len() {
        let more = format!("and {} more lines: see `crosslane status`", rows.len() - shown);
        canvas.put(1, shown, &more, usize::MAX, theme.quiet());
    }
}

fn style(part: Part, theme: Theme) -> Style {
    match part {
        Part::Host => Style::new(),
        Part::Me => theme.value(),
        Part::Cable => theme.label(),
        Part::Lost => theme.bad(),
        Part::Load => theme.load(),
    }
}
