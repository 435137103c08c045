//! Charts as SVG, by plotters. Widths and letters are chosen for a phone; wider screens show the same larger.

mod bars;
mod hosts;
mod legend;
mod lines;
mod scale;

use crate::plot::{Chart, Plot};
use maud::{PreEscaped, html};
use plotters::drawing::IntoDrawingArea;
use plotters::style::RGBColor;

/// Width of all plots, in units of which a small screen has as many pixels.
const WIDTH: u32 = 360;
/// Letters and lines.
const INK: RGBColor = RGBColor(0x20, 0x21, 0x24);
/// Lines that only guide the eye.
const GRID: RGBColor = RGBColor(0xD0, 0xD3, 0xD8);
/// Colours that people who see fewer colours can tell apart (Okabe and Ito, 2008), darkened until each stands out from white by
/// three to one. `style.css` has lighter ones for dark screens.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x5A, 0x9C),
    RGBColor(0xC4, 0x4E, 0x00),
    RGBColor(0x00, 0x7A, 0x5A),
    RGBColor(0xA8, 0x3E, 0x82),
    RGBColor(0x8A, 0x6D, 0x00),
    RGBColor(0x1B, 0x84, 0xB0),
    RGBColor(0x5B, 0x4B, 0xB5),
    RGBColor(0x60, 0x63, 0x68),
];

/// A plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be drawn: {0}")]
pub struct DrawError(String);

impl DrawError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// What is drawn on.
type Area<'a> = plotters::drawing::DrawingArea<plotters::backend::SVGBackend<'a>, plotters::coord::Shift>;

/// A drawing: what stands within `<svg>`, and how large it is.
struct Drawing {
    inside: String,
    height: u32,
}

/// The SVG of a chart's plot, to stand in a page under the id `id`, or as a file of its own if `alone`; `None` if it has no plot.
///
/// # Errors
/// It cannot be drawn.
pub fn svg(chart: &Chart, id: &str, alone: bool) -> Result<Option<String>, DrawError> {
    let Some(plot) = &chart.plot else { return Ok(None) };
    let Drawing { inside, height } = match plot {
        Plot::Lines(lines) => lines::draw(lines)?,
        Plot::Bars(bars) => bars::draw(bars)?,
        Plot::Hosts(hosts) => hosts::draw(hosts)?,
    };
    let (title, about) = (format!("{id}-title"), format!("{id}-about"));
    let wide = alone.then_some(2 * WIDTH);
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=[wide] role="img"
            style=[alone.then_some("background:#fff")] aria-labelledby=(title) aria-describedby=(about) {
            title id=(title) { (visible(&chart.title)) }
            desc id=(about) { (visible(&chart.says)) }
            (PreEscaped(inside))
        }
    };
    Ok(Some(svg.into_string()))
}

/// Draws on an area of this height, and takes what stands within `<svg>`.
fn drawn(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<(), DrawError>) -> Result<Drawing, DrawError> {
    let mut whole = String::new();
    {
        let area =
            plotters::backend::SVGBackend::with_string(&mut whole, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(DrawError::of)?;
    }
    let inside = whole.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</svg>"));
    let (inside, _) = inside.ok_or_else(|| DrawError("plotters made no SVG".to_owned()))?;
    Ok(Drawing { inside: inside.to_owned(), height })
}

/// The text without characters that no document may have.
pub(crate) fn visible(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

/// The same, cut to `most` characters.
fn cut(text: &str, most: usize) -> String {
    let text = visible(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
