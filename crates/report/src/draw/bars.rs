//! Rows of bars, each row's name above its bars, so that there is room for both on a small screen.

use super::legend::{LINE, colour, write};
use super::scale::Scale;
use super::{Area, DrawError, Drawing, GRID, INK, WIDTH, drawn};
use crate::plot::Bars;
use crosslane_results::export::number;
use plotters::element::{PathElement, Rectangle};
use plotters::style::Color;

/// Where bars begin and end; values stand behind them.
const LEFT: i32 = 12;
const RIGHT: i32 = 296;
/// Height of a row's name, of a bar, and between rows.
const NAME: u32 = 19;
const BAR: u32 = 15;
const GAP: u32 = 8;

/// Draws `bars`.
pub(super) fn draw(bars: &Bars) -> Result<Drawing, DrawError> {
    let names: Vec<(&str, bool)> = bars.series.iter().map(|name| (&**name, false)).collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let heights =
        bars.rows.iter().map(|(_, values)| NAME + GAP + BAR * count(values.iter().flatten().count()));
    let top = LINE * count(names.len()) + NAME + 2 * GAP;
    let height = top + heights.sum::<u32>() + GAP;
    drawn(height, |area| {
        heads(area, &bars.series)?;
        let unit = if bars.logarithmic { format!("{} (logarithmic)", bars.unit) } else { bars.unit.clone() };
        write(area, &unit, 30, (LEFT, pixels(LINE * count(names.len()) + GAP)), 14)?;
        let scale = Scale::new(
            bars.rows
                .iter()
                .flat_map(|(_, values)| values.iter().copied().flatten())
                .chain(bars.line.iter().map(|line| line.0)),
            bars.logarithmic,
        );
        guide(area, bars, &scale, top, height)?;
        let mut y = top;
        for (name, values) in &bars.rows {
            write(area, name, 46, (LEFT, pixels(y)), 15)?;
            y += NAME;
            for (series, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                bar(area, series, *value, &scale, pixels(y))?;
                y += BAR;
            }
            y += GAP;
        }
        Ok(())
    })
}

/// A square of its colour and the name of each series.
fn heads(area: &Area<'_>, series: &[String]) -> Result<(), DrawError> {
    for (number, name) in series.iter().enumerate() {
        let y = pixels(LINE * u32::try_from(number).unwrap_or(0) + 4);
        let square = Rectangle::new([(LEFT, y), (LEFT + 12, y + 12)], colour(number).filled());
        area.draw(&square).map_err(DrawError::of)?;
        write(area, name, 44, (LEFT + 20, y - 2), 15)?;
    }
    Ok(())
}

/// Lines at the marks of the scale, and the one that bars are held against.
fn guide(area: &Area<'_>, bars: &Bars, scale: &Scale, top: u32, bottom: u32) -> Result<(), DrawError> {
    let upright = |x: i32| vec![(x, pixels(top)), (x, pixels(bottom))];
    for (at, _) in &scale.marks {
        area.draw(&PathElement::new(upright(across(scale, *at)), GRID.stroke_width(1)))
            .map_err(DrawError::of)?;
    }
    let Some((value, name)) = &bars.line else { return Ok(()) };
    let Some(at) = scale.place(*value) else { return Ok(()) };
    let x = across(scale, at);
    area.draw(&PathElement::new(upright(x), INK.stroke_width(1))).map_err(DrawError::of)?;
    write(area, &format!("| {name}"), 20, (RIGHT, pixels(top - NAME)), 14)
}

fn bar(area: &Area<'_>, series: usize, value: f64, scale: &Scale, y: i32) -> Result<(), DrawError> {
    let Some(at) = scale.place(value) else { return Ok(()) };
    let (one, other) = (
        across(scale, scale.place(if scale.is_logarithmic() { 1.0 } else { 0.0 }).unwrap_or(0.0)),
        across(scale, at),
    );
    let (from, to) = (one.min(other), one.max(other).max(one.min(other) + 1));
    let height = i32::try_from(BAR).unwrap_or(1) - 2;
    area.draw(&Rectangle::new([(from, y), (to, y + height)], colour(series).filled()))
        .map_err(DrawError::of)?;
    write(area, &number(value), 12, (to.max(one) + 4, y - 1), 14)
}

/// Where a place of the scale is on the drawing.
#[expect(clippy::cast_possible_truncation, reason = "within the drawing's width")]
fn across(scale: &Scale, at: f64) -> i32 {
    let (first, last) = scale.ends;
    let part = ((at - first) / (last - first)).clamp(0.0, 1.0);
    LEFT + (part * f64::from(RIGHT.min(WIDTH.cast_signed()) - LEFT)).round() as i32
}

fn pixels(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
