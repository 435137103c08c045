//! Hosts in a circle, and their cables.

use super::legend::letters;
use super::{COLOURS, DrawError, Drawing, INK, WIDTH, drawn};
use crate::plot::Hosts;
use plotters::element::{Circle, PathElement, Text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::f64::consts::TAU;

const HEIGHT: u32 = 240;
const RADIUS: f64 = 95.0;

/// Draws `hosts`.
pub(super) fn draw(Hosts { hosts, cables }: &Hosts) -> Result<Drawing, DrawError> {
    let size = if *hosts > 16 { 9 } else { 20 };
    drawn(HEIGHT, |area| {
        for (one, other) in cables {
            let ends = [place(*one, *hosts), place(*other, *hosts)];
            area.draw(&PathElement::new(ends.to_vec(), COLOURS[0].stroke_width(4))).map_err(DrawError::of)?;
        }
        for host in 1..=*hosts {
            let (at, words) = (place(host, *hosts), letters(if size > 10 { 17 } else { 8 }));
            area.draw(&Circle::new(at, size, plotters::style::WHITE.filled())).map_err(DrawError::of)?;
            area.draw(&Circle::new(at, size, INK.stroke_width(2))).map_err(DrawError::of)?;
            let words = words.pos(Pos::new(HPos::Center, VPos::Center));
            area.draw(&Text::new(format!("h{host}"), at, words)).map_err(DrawError::of)?;
        }
        Ok(())
    })
}

/// Where a host stands: the first one on top.
#[expect(clippy::cast_possible_truncation, reason = "within the drawing")]
fn place(host: u16, hosts: u16) -> (i32, i32) {
    let angle = TAU * (f64::from(host) - 1.0) / f64::from(hosts.max(1));
    let (x, y) = (f64::from(WIDTH) / 2.0 + RADIUS * angle.sin(), 122.0 - RADIUS * angle.cos());
    (x.round() as i32, y.round() as i32)
}
