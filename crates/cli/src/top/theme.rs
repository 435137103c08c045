//! Colours, and the characters that stand in for them.

use crate::screen;
use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Colours; without them rows are told apart by reverse, bold and signs.
    pub(crate) colour: bool,
    /// More than ASCII.
    pub(crate) unicode: bool,
}

impl Theme {
    /// As the environment has it: `NO_COLOR`, and the locale.
    pub(crate) fn of_environment() -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour, unicode: screen::unicode() }
    }

    fn style(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn bar(self, ground: Color) -> Style {
        if self.colour {
            Style::new().fg(Color::Black).bg(ground)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    /// Names of things.
    pub(crate) fn label(self) -> Style {
        self.style(Color::Cyan)
    }

    /// Values.
    pub(crate) fn value(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What moves: bars, curves, loads.
    pub(crate) fn load(self) -> Style {
        self.style(Color::Green)
    }

    /// What was lost.
    pub(crate) fn bad(self) -> Style {
        self.style(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What does not matter now.
    pub(crate) fn quiet(self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    /// The line of titles.
    pub(crate) fn titles(self) -> Style {
        self.bar(Color::Green)
    }

    /// The title of the column that the table is sorted by, and the table that is shown.
    pub(crate) fn marked(self) -> Style {
        self.bar(Color::Cyan)
    }

    /// The selected row.
    pub(crate) fn selected(self) -> Style {
        self.bar(Color::Cyan)
    }

    /// A tagged row.
    pub(crate) fn tagged(self) -> Style {
        self.style(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// The character at the end of a text that was cut.
    pub(crate) fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    /// A curve, one character for each value; `full` is as high as a character.
    pub(crate) fn curve(self, values: &[f64], full: f64) -> String {
        const UNICODE: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
        let steps = if self.unicode { UNICODE } else { ASCII };
        let step = |value: &f64| {
            // What is above nothing is seen.
            let height =
                if *value > 0.0 && full > 0.0 { (value / full * 8.0).ceil().clamp(1.0, 8.0) } else { 0.0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
            steps[height as usize]
        };
        values.iter().map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theme_curves_are_as_high_as_their_values() {
        let [unicode, ascii] = [true, false].map(|unicode| Theme { colour: true, unicode });
        assert_eq!(unicode.curve(&[0.0, 0.1, 4.0, 8.0, 99.0, f64::NAN], 8.0), " ▁▄██ ");
        assert_eq!(ascii.curve(&[0.0, 0.1, 4.0, 8.0], 8.0), " .=@");
        assert_eq!(ascii.curve(&[1.0], 0.0), " ");
    }

    #[test]
    fn theme_without_colour_has_none() {
        let theme = Theme { colour: false, unicode: false };
        let all = [theme.label(), theme.load(), theme.bad(), theme.quiet(), theme.titles(), theme.selected()];
        assert!(all.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}
