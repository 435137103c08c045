//! Sizes of messages as the studies have them: 1 B, 1.4 KB, 140 KB, 8 MB.

use crate::figure::bytes;
use anyhow::{Context, Result, ensure};
use std::str::FromStr;

/// Longest message, bytes.
const MESSAGE_MAX: usize = 64 << 20;

/// A number of bytes, 1 to 64 MB, as in `1`, `1.4K`, `8M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub usize);

impl FromStr for Length {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, unit) = match text.strip_suffix(['K', 'k']) {
            Some(digits) => (digits, 1024.0),
            None => text.strip_suffix(['M', 'm']).map_or((text, 1.0), |digits| (digits, 1_048_576.0)),
        };
        let number: f64 = digits.parse().with_context(|| format!("{text:?} is no size: 64, 1.4K, 8M"))?;
        // Nonsense and numbers out of range end at the bounds of the integer.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked below")]
        let bytes = (number * unit).round() as usize;
        ensure!((1..=MESSAGE_MAX).contains(&bytes), "sizes from 1 to 64M bytes can be measured");
        Ok(Self(bytes))
    }
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "at most 64 MB")]
        let kilobytes = self.0 as f64 / 1024.0;
        let exact = self.0 < 1 << 10 || self.0.is_multiple_of(1 << 10);
        f.pad(&if exact { bytes(self.0) } else { format!("{kilobytes:.1} KB") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_read_and_written_as_in_the_studies() {
        for (text, bytes, name) in
            [("1", 1, "1 B"), ("1.4K", 1434, "1.4 KB"), ("140K", 143_360, "140 KB"), ("8m", 8 << 20, "8 MB")]
        {
            let length: Length = text.parse().unwrap();
            assert_eq!((length.0, &*length.to_string()), (bytes, name));
        }
        for text in ["0", "65M", "-1", "nan", "x", ""] {
            assert!(text.parse::<Length>().is_err(), "{text}");
        }
    }
}
