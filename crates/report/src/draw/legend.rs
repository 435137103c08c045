//! Which line or bar is what.

use super::{Area, COLOURS, DrawError, INK, cut};
use plotters::element::{Circle, Cross, PathElement, Rectangle, Text, TriangleMarker};
use plotters::prelude::{IntoFont, ShapeStyle, TextStyle};
use plotters::style::{Color, RGBColor};

/// Height of a line of the legend.
pub(super) const LINE: u32 = 20;

/// The colour of the series of this number.
pub(super) fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// Letters of this size.
pub(super) fn letters(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Writes `text`, cut to `most` characters, with its upper left corner at `at`.
pub(super) fn write(
    area: &Area<'_>,
    text: &str,
    most: usize,
    at: (i32, i32),
    size: u32,
) -> Result<(), DrawError> {
    area.draw(&Text::new(cut(text, most), at, letters(size))).map_err(DrawError::of)
}

/// A mark of the series of this number, whose shape tells it from others too.
pub(super) fn mark(area: &Area<'_>, number: usize, (x, y): (i32, i32)) -> Result<(), DrawError> {
    let style: ShapeStyle = colour(number).filled();
    match number % 4 {
        0 => area.draw(&Circle::new((x, y), 3, style)),
        1 => area.draw(&TriangleMarker::new((x, y), 4, style)),
        2 => area.draw(&Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], style)),
        _ => area.draw(&Cross::new((x, y), 3, colour(number).stroke_width(2))),
    }
    .map_err(DrawError::of)
}

/// A straight line of the series of this number, dashed if it is a `reference`'s.
pub(super) fn stroke(
    area: &Area<'_>,
    number: usize,
    reference: bool,
    [from, to]: [(i32, i32); 2],
) -> Result<(), DrawError> {
    let style = colour(number).stroke_width(2);
    if !reference {
        return area.draw(&PathElement::new(vec![from, to], style)).map_err(DrawError::of);
    }
    for dash in dashes(from, to) {
        area.draw(&PathElement::new(dash.to_vec(), style)).map_err(DrawError::of)?;
    }
    Ok(())
}

/// Pieces of a line with gaps between them.
#[expect(clippy::cast_possible_truncation, reason = "places on a drawing")]
fn dashes(from: (i32, i32), to: (i32, i32)) -> Vec<[(i32, i32); 2]> {
    let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    let length = dx.hypot(dy);
    let at = |along: f64| {
        let part = (along / length).min(1.0);
        (from.0 + (dx * part).round() as i32, from.1 + (dy * part).round() as i32)
    };
    let mut dashes = Vec::new();
    let mut along = 0.0;
    while along < length {
        dashes.push([at(along), at(along + 6.0)]);
        along += 10.0;
    }
    dashes
}

/// A line for each series.
pub(super) fn draw(area: &Area<'_>, names: &[(&str, bool)], top: u32) -> Result<(), DrawError> {
    for (number, (name, reference)) in names.iter().enumerate() {
        let y = i32::try_from(top + LINE * u32::try_from(number).unwrap_or(0) + LINE / 2).unwrap_or(0);
        stroke(area, number, *reference, [(14, y), (44, y)])?;
        mark(area, number, (29, y))?;
        write(area, name, 44, (52, y - 8), 15)?;
    }
    Ok(())
}
