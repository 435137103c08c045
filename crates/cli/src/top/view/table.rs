//! The table, the ports above it, and the line of tables between them.

use super::Canvas;
use crate::text;
use crate::top::columns::{self, Column, Kind, Place, Tab};
use crate::top::history;
use crate::top::rows::{Cell, Row, Tone};
use crate::top::state::State;
use crate::top::theme::Theme;
use crate::top::ui::{Order, Ui};
use crate::top::units::bits;
use ratatui::style::Style;

/// Columns before the table that show whether a row is tagged.
const MARGIN: usize = 1;

/// Draws the names of the tables, and what there is to say about the one that is shown.
pub(super) fn tabs(canvas: &mut Canvas<'_>, state: &State, ui: &Ui, rows: &[Row], theme: Theme) {
    let width = canvas.width();
    let mut x = 0;
    for tab in Tab::ALL {
        let style = if tab == ui.tab { theme.marked() } else { theme.label() };
        x = canvas.put(x, 0, &format!(" {} ", tab.name()), width, style);
    }
    let about = about(state, ui, rows);
    if x + 2 + about.len() <= width {
        canvas.put(x + 2, 0, &about, width, Style::new());
    }
}

fn about(state: &State, ui: &Ui, rows: &[Row]) -> String {
    let view = ui.view();
    if !view.tagged.is_empty() {
        let tagged = rows.iter().filter(|row| view.tagged.contains(&row.key));
        let [tx, rx] = tagged.fold([0.0; 2], |sum, row| [sum[0] + row.rates[0], sum[1] + row.rates[1]]);
        return format!("{} tagged: {} out, {} in", view.tagged.len(), bits(tx), bits(rx));
    }
    if !view.filter.is_empty() {
        return format!("{} rows that have `{}`", rows.len(), text::harmless_ascii(&view.filter));
    }
    let counters = &state.status().counters;
    match ui.tab {
        Tab::Streams => format!("{} ends", rows.len()),
        Tab::Ports => String::new(),
        Tab::Latency => "round trip, daemon to daemon".to_owned(),
        Tab::Events if counters.moves == 0 => "none so far".to_owned(),
        Tab::Events => format!(
            "{} found a way, last {} us, longest {} us",
            counters.moved, counters.move_last_us, counters.move_longest_us
        ),
    }
}

/// Draws the ports above the table.
pub(super) fn ports(canvas: &mut Canvas<'_>, rows: &[Row], theme: Theme) {
    let room = canvas.height();
    let columns = Tab::Ports.columns();
    let places = places(columns, rows, canvas.width());
    titles(canvas, columns, &places, None, theme);
    let shown = if rows.len() + 1 > room { room.saturating_sub(2) } else { rows.len() };
    for (line, row) in rows.iter().take(shown).enumerate() {
        cells(canvas, line + 1, (columns, &places), row, None, theme);
    }
    if shown < rows.len() && room > 1 {
        let more = format!(" and {} more: Tab shows them", rows.len() - shown);
        canvas.put(0, room - 1, &more, usize::MAX, theme.quiet());
    }
}

/// Draws the table: its titles, and the rows from the offset on.
pub(super) fn draw(canvas: &mut Canvas<'_>, ui: &Ui, rows: &[Row], theme: Theme) {
    let (columns, view) = (ui.tab.columns(), ui.view());
    let places = places(columns, rows, canvas.width());
    titles(canvas, columns, &places, Some(view.order), theme);
    let selected = ui.selected(rows);
    for (at, row) in rows.iter().enumerate().skip(view.offset).take(canvas.height().saturating_sub(1)) {
        let line = at - view.offset + 1;
        let tagged = view.tagged.contains(&row.key);
        let over = (at == selected).then(|| theme.selected()).or(tagged.then(|| theme.tagged()));
        if at == selected {
            canvas.paint(line, theme.selected());
        }
        if tagged {
            canvas.put(0, line, "*", MARGIN, over.unwrap_or_default());
        }
        cells(canvas, line, (columns, &places), row, over, theme);
    }
    if rows.is_empty() {
        canvas.put(MARGIN, 1, empty(ui), usize::MAX, theme.quiet());
    }
}

/// What stands in a table without rows.
fn empty(ui: &Ui) -> &'static str {
    match ui.tab {
        _ if !ui.view().filter.is_empty() => "no row has that; Esc ends the filter",
        Tab::Streams => "no streams: start programs by `crosslane run`",
        Tab::Ports => "this host has no ports",
        Tab::Latency => "no answer from another host yet",
        Tab::Events => "nothing has changed since this began",
    }
}

fn places(columns: &[Column], rows: &[Row], width: usize) -> Vec<Place> {
    let wanted = |at: usize| {
        let most = rows.iter().map(|row| row.cells[at].width()).max().unwrap_or(0);
        let column = &columns[at];
        // A column that says nothing, and that may go, goes.
        let is_silent = most == 0 && column.rank > 0 && column.kind == Kind::Text;
        if is_silent { 0 } else { most.max(column.title.len()) }
    };
    let wanted: Vec<usize> = (0..columns.len()).map(wanted).collect();
    let mut places = columns::fit(columns, &wanted, width.saturating_sub(MARGIN));
    places.iter_mut().for_each(|place| place.x += MARGIN);
    places
}

fn titles(canvas: &mut Canvas<'_>, columns: &[Column], places: &[Place], order: Option<Order>, theme: Theme) {
    canvas.paint(0, theme.titles());
    for place in places {
        let column = &columns[place.column];
        let is_order = order.is_some_and(|order| order.column == place.column);
        let style = if is_order { theme.marked() } else { theme.titles() };
        let mut title = column.title.to_owned();
        if is_order && title.len() < place.width {
            title.push(if order.is_some_and(|order| order.inverted) { '-' } else { '+' });
        }
        aligned(canvas, 0, place, &title, is_right(column), style);
    }
}

fn is_right(column: &Column) -> bool {
    matches!(column.kind, Kind::Number | Kind::Rising)
}

fn cells(
    canvas: &mut Canvas<'_>,
    line: usize,
    (columns, places): (&[Column], &[Place]),
    row: &Row,
    over: Option<Style>,
    theme: Theme,
) {
    let tone = match row.tone {
        Tone::Plain => Style::new(),
        Tone::Bad => theme.bad(),
        Tone::Quiet => theme.quiet(),
    };
    for place in places {
        let column = &columns[place.column];
        match &row.cells[place.column] {
            Cell::Curve(values, full) => {
                let curve = theme.curve(&history::columns(values, place.width), *full);
                canvas.put(place.x, line, &curve, place.width, over.unwrap_or(theme.load()));
            }
            cell => {
                let text =
                    if theme.unicode { cell.text().to_owned() } else { text::harmless_ascii(cell.text()) };
                let text = match column.kind {
                    Kind::Tail => text::cut_front(&text, place.width, theme.cut()),
                    _ => text::cut(&text, place.width, theme.cut()),
                };
                aligned(canvas, line, place, &text, is_right(column), over.unwrap_or(tone));
            }
        }
    }
}

fn aligned(canvas: &mut Canvas<'_>, line: usize, place: &Place, text: &str, right: bool, style: Style) {
    let gap = if right { place.width.saturating_sub(text::width(text)) } else { 0 };
    canvas.put(place.x + gap, line, text, place.width - gap, style);
}
