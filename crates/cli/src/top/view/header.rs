//! Host, bars of what goes out and in, counters.

use super::Canvas;
use crate::table::{bit_rate, list};
use crate::text;
use crate::top::state::State;
use crate::top::theme::Theme;
use crate::top::ui::Ui;
use crate::top::units::ago;
use ratatui::style::Style;
use std::time::Duration;

/// Draws the header.
pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, ui: &Ui, theme: Theme) {
    host(canvas, state, ui, theme);
    bars(canvas, state, theme);
    counters(canvas, state, theme);
}

fn host(canvas: &mut Canvas<'_>, state: &State, ui: &Ui, theme: Theme) {
    let status = state.status();
    let up = ago(Duration::try_from_secs_f64(status.uptime_s).unwrap_or_default());
    let (name, addresses) = (format!("h{}", status.host), format!("  {}", list(&status.addresses)));
    let every = format!("  every {} s", ui.delay.as_secs_f64());
    let version = format!("  crosslaned {}", text::harmless_ascii(&status.version));
    let plain = Style::new();
    let trouble = match &ui.trouble {
        Some(trouble) => format!("  {}", text::harmless_ascii(trouble)),
        None if ui.paused => "  PAUSED".to_owned(),
        None => String::new(),
    };
    canvas.line(
        0,
        &[
            (&name, theme.value()),
            (" up ", theme.label()),
            (&up, plain),
            (&every, theme.label()),
            (&trouble, theme.bad()),
            (&addresses, plain),
            (&version, theme.label()),
        ],
    );
}

/// Two bars, side by side.
fn bars(canvas: &mut Canvas<'_>, state: &State, theme: Theme) {
    let now = state.rates().map(|rates| {
        let [before, now] = [rates.before, rates.now].map(|it| crate::top::rates::of_host(&it.counters));
        rates.both(Some(before), now)
    });
    let half = canvas.width().saturating_sub(2) / 2;
    for (at, name) in ["Out", "In "].into_iter().enumerate() {
        let most = state.host_minute().map(|minute| minute.into_iter().fold(0.0, f64::max));
        let rate = now.map(|both| both[at]);
        bar(canvas, at * (half + 2), half, name, (rate, most[0].max(most[1])), theme);
    }
}

/// A bar as `Out[|||||||     9.8 Gb/s]`: full is the most of the last minute.
fn bar(canvas: &mut Canvas<'_>, x: usize, width: usize, name: &str, load: (Option<f64>, f64), theme: Theme) {
    let Some(inner) = width.checked_sub(name.len() + 2).filter(|inner| *inner > 0) else { return };
    let rate = load.0.unwrap_or(0.0);
    let full = load.1.max(rate);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share"
    )]
    let long = if full > 0.0 { (rate / full * inner as f64).round() as usize } else { 0 };
    let figure = load.0.map_or_else(|| "-".to_owned(), bit_rate);
    let begin = canvas.put(x, 1, name, width, theme.label());
    canvas.put(begin, 1, "[", 1, theme.value());
    canvas.put(begin + 1, 1, &"|".repeat(long.min(inner)), inner, theme.load());
    canvas.put(begin + 1 + inner, 1, "]", 1, theme.value());
    if figure.len() <= inner {
        canvas.put(begin + 1 + inner - figure.len(), 1, &figure, figure.len(), theme.value());
    }
}

fn counters(canvas: &mut Canvas<'_>, state: &State, theme: Theme) {
    let counters = &state.status().counters;
    let a_second = |read: fn(&crosslane_status::Counters) -> u64| {
        state.rates().map_or_else(|| "-".to_owned(), |rates| format!("{:.1}", rates.counter(read)))
    };
    let transit =
        state.rates().map_or_else(|| "-".to_owned(), |rates| bit_rate(rates.counter(|it| it.transit_bytes)));
    let all = [
        (
            "Streams ",
            format!("{} open, {} opened/s", counters.streams_open, a_second(|it| it.streams_opened)),
        ),
        ("  Wakes ", format!("{}/s", a_second(|it| it.wakes))),
        ("  Switch-overs ", counters.moves.to_string()),
        ("  Transit ", transit),
        (
            "  IP ",
            format!(
                "{} out, {} in packets/s",
                a_second(|it| it.ip_tx_packets),
                a_second(|it| it.ip_rx_packets)
            ),
        ),
    ];
    let width = canvas.width();
    let mut x = 0;
    for (name, value) in &all {
        // A half of one says nothing.
        if x + text::width(name) + text::width(value) > width && x > 0 {
            break;
        }
        x = canvas.put(x, 2, name, width, theme.label());
        x = canvas.put(x, 2, value, width, theme.value());
    }
}
