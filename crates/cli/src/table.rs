//! Plain tables of text.

use crate::text;
use anyhow::Result;
use std::fmt::Display;
use std::io::Write;

/// A table that grows by rows; columns are as wide as their widest cell. What others wrote into a cell does no harm to a terminal.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with the columns `names`, as in `host|>hops`; a name that starts with `>` is of a column of numbers.
    pub(crate) fn new(names: &str) -> Self {
        let right = names.split('|').map(|name| name.starts_with('>')).collect();
        let head = names.split('|').map(|name| name.trim_start_matches('>').to_uppercase()).collect();
        Self { rows: vec![head], right }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| text::harmless(cell)).collect());
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Prints it.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn print(&self, out: &mut impl Write) -> Result<()> {
        let width = |column: usize| self.rows.iter().map(|row| text::width(&row[column])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let cell = |(at, text): (usize, &String)| {
                let gap = " ".repeat(widths[at].saturating_sub(text::width(text)));
                if self.right[at] { gap + text } else { format!("{text}{gap}") }
            };
            let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A count with its noun: `1 cable`, `2 cables`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A value as a cell; nothing as `-`.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Values as one cell.
pub(crate) fn list(values: &[impl Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A whole number of bytes with a unit.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn size(value: u64) -> String {
    bytes(value as f64)
}

/// A number of bytes with a unit, powers of 1024.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A rate of bytes as bits a second, powers of 1000.
pub(crate) fn bit_rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second * 8.0, 1000.0, &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    while value >= step && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    if at == 0 { format!("{value:.0} {}", units[at]) } else { format!("{value:.1} {}", units[at]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_line_up() {
        let mut table = Table::new("name|>bytes");
        table.row(["right".into(), "7".into()]);
        table.row(["l".into(), "1234567".into()]);
        let mut out = Vec::new();
        table.print(&mut out).expect("printed");
        assert_eq!(String::from_utf8(out).expect("text"), "NAME     BYTES\nright        7\nl      1234567\n");
    }

    #[test]
    fn table_cells_of_others_are_harmless_and_stay_in_their_columns() {
        let mut table = Table::new("program|>pid");
        table.row(["\x1b[2J".into(), "7".into()]);
        table.row(["端末".into(), "12".into()]);
        let mut out = Vec::new();
        table.print(&mut out).expect("printed");
        assert_eq!(String::from_utf8(out).expect("text"), "PROGRAM  PID\n?[2J       7\n端末      12\n");
    }

    #[test]
    fn table_cells_are_rounded_with_units() {
        assert_eq!(or_dash(None::<u8>), "-");
        assert_eq!(list(&["a", "1"]), "a 1");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(16.0 * 1024.0 * 1024.0), "16.0 MiB");
        assert_eq!(bit_rate(1.25e9), "10.0 Gb/s");
    }
}
