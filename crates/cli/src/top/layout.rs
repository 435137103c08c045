//! Which part of the screen shows what. Where there is little room the less important parts go.

use ratatui::layout::Rect;

/// Lines of the header at most.
const HEADER: u16 = 3;
/// Lines of the picture at most.
const PICTURE: u16 = 6;
/// Rows of ports above the table at most.
const PORTS: u16 = 4;
/// Rows that the table has before the parts above it have more.
const TABLE: u16 = 5;

/// The parts, from top to bottom; those of no height are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Host, bars, counters.
    pub(crate) header: Rect,
    /// The network.
    pub(crate) picture: Rect,
    /// Ports: titles and rows.
    pub(crate) ports: Rect,
    /// Names of the tables.
    pub(crate) tabs: Rect,
    /// The table: titles and rows.
    pub(crate) table: Rect,
    /// Keys.
    pub(crate) footer: Rect,
}

/// What the parts would like to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// Lines of the picture.
    pub(crate) picture: usize,
    /// Ports.
    pub(crate) ports: usize,
}

impl Layout {
    /// The parts of a screen.
    pub(crate) fn of(screen: Rect, wishes: Wishes) -> Self {
        let wish = |lines: usize, most: u16| u16::try_from(lines).unwrap_or(most).min(most);
        let mut left = screen.height;
        let mut take = |lines: u16, least: u16| {
            let lines = lines.min(left);
            let lines = if lines < least { 0 } else { lines };
            left -= lines;
            lines
        };
        let footer = take(1, 1);
        let titles_and_row = take(2, 1);
        let tabs = take(1, 1);
        let host = take(1, 1);
        let rows = take(TABLE - 1, 1);
        let bars = take(HEADER - 1, 1);
        let ports = wish(wishes.ports, PORTS);
        let ports = if ports > 0 { take(ports + 1, ports.min(2) + 1) } else { 0 };
        let picture = wish(wishes.picture, PICTURE);
        // Half a picture says nothing.
        let picture = if picture > 0 { take(picture, picture) } else { 0 };
        let table = titles_and_row + rows + left;
        let mut y = screen.y;
        let mut part = |height: u16| {
            let part = Rect { y, height, ..screen };
            y += height;
            part
        };
        Self {
            header: part(host + bars),
            picture: part(picture),
            ports: part(ports),
            tabs: part(tabs),
            table: part(table),
            footer: part(footer),
        }
    }

    /// How many rows of the table fit.
    pub(crate) fn page(&self) -> usize {
        usize::from(self.table.height.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heights(height: u16, picture: usize, ports: usize) -> [u16; 6] {
        let all = Layout::of(Rect::new(0, 0, 80, height), Wishes { picture, ports });
        [all.header, all.picture, all.ports, all.tabs, all.table, all.footer].map(|part| part.height)
    }

    #[test]
    fn layout_of_a_usual_terminal_has_all_parts() {
        assert_eq!(heights(24, 3, 2), [3, 3, 3, 1, 13, 1]);
        assert_eq!(heights(24, 0, 0), [3, 0, 0, 1, 19, 1]);
    }

    #[test]
    fn layout_of_a_small_terminal_keeps_the_table() {
        assert_eq!(heights(12, 3, 2), [3, 0, 0, 1, 7, 1]);
        assert_eq!(heights(4, 3, 2), [0, 0, 0, 1, 2, 1]);
        assert_eq!(heights(1, 3, 2), [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn layout_fills_the_screen_and_no_more() {
        for height in 0..70 {
            for (picture, ports) in [(0, 0), (3, 2), (64, 1), (2, 300)] {
                assert_eq!(heights(height, picture, ports).iter().sum::<u16>(), height);
            }
        }
    }
}
