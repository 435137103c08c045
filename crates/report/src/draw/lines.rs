//! Lines over an axis.

use super::legend::{self, LINE, letters};
use super::scale::Scale;
use super::{Area, DrawError, Drawing, GRID, INK, drawn};
use crate::plot::{Lines, Series};
use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::style::Color;
use std::ops::Range;

/// Height without the legend.
const HEIGHT: u32 = 300;
/// Most names of marks beside each other.
const NAMES: usize = 5;

/// Draws `lines`.
pub(super) fn draw(lines: &Lines) -> Result<Drawing, DrawError> {
    let names: Vec<(&str, bool)> = lines.series.iter().map(|one| (&*one.name, one.reference)).collect();
    let height = HEIGHT + LINE * u32::try_from(names.len()).unwrap_or(0) + 6;
    drawn(height, |area| {
        let (above, _) = area.split_vertically(HEIGHT);
        plot(lines, area, &above)?;
        legend::draw(area, &names, HEIGHT)
    })
}

/// An axis with marks at these places and no others.
struct Marked {
    ends: (f64, f64),
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "places on a drawing")]
    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// Where a place is drawn.
fn across(lines: &Lines, at: f64) -> f64 {
    if lines.logarithmic { at.log2() } else { at }
}

fn plot(lines: &Lines, area: &Area<'_>, above: &Area<'_>) -> Result<(), DrawError> {
    let values = lines.series.iter().flat_map(|one| one.points.iter().map(|point| point.1));
    let scale = Scale::new(values, lines.logarithmic_values);
    let marks: Vec<(f64, &str)> =
        lines.marks.iter().map(|(at, name)| (across(lines, *at), &**name)).collect();
    let ends = ends(marks.iter().map(|mark| mark.0));
    let every = marks.len().div_ceil(NAMES);
    let shown: Vec<f64> = marks.iter().step_by(every.max(1)).map(|mark| mark.0).collect();
    let below = |at: &f64| nearest(marks.iter().map(|(mark, name)| (*mark, *name)), *at);
    let beside = |at: &f64| nearest(scale.marks.iter().map(|(mark, name)| (*mark, &**name)), *at);
    let mut chart = ChartBuilder::on(above)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(
            Marked { ends, marks: shown },
            Marked { ends: scale.ends, marks: scale.marks.iter().map(|mark| mark.0).collect() },
        )
        .map_err(DrawError::of)?;
    chart
        .configure_mesh()
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID.stroke_width(1))
        .axis_style(INK.stroke_width(1))
        .label_style(letters(14))
        .axis_desc_style(letters(15))
        .x_desc(&lines.below)
        .y_desc(&lines.beside)
        .x_label_formatter(&below)
        .y_label_formatter(&beside)
        .draw()
        .map_err(DrawError::of)?;
    for (number, one) in lines.series.iter().enumerate() {
        let place = |point: &(f64, f64)| {
            let place = (across(lines, point.0), scale.place(point.1)?);
            place.0.is_finite().then(|| chart.backend_coord(&place))
        };
        line(area, number, one, &one.points.iter().filter_map(place).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn line(area: &Area<'_>, number: usize, series: &Series, places: &[(i32, i32)]) -> Result<(), DrawError> {
    for pair in places.windows(2) {
        legend::stroke(area, number, series.reference, [pair[0], pair[1]])?;
    }
    places.iter().try_for_each(|place| legend::mark(area, number, *place))
}

/// The ends of the axis: a single place stands in the middle.
fn ends(marks: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        marks.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), at| (least.min(at), most.max(at)));
    match most - least {
        span if span.is_finite() && span > 0.0 => (least, most),
        _ if least.is_finite() => (least - 1.0, least + 1.0),
        _ => (0.0, 1.0),
    }
}

/// The name of the mark that stands at `at`.
fn nearest<'a>(marks: impl Iterator<Item = (f64, &'a str)>, at: f64) -> String {
    let distance = |mark: f64| (mark - at).abs();
    let found = marks.min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
    found.map_or_else(String::new, |(_, name)| name.to_owned())
}
