//! Numbers with their units, short enough for narrow columns.

use std::time::{Duration, SystemTime};

/// Bytes a second as bits a second, powers of 1000: `9.8G`, `250M`.
pub(crate) fn bits(bytes_per_second: f64) -> String {
    short(bytes_per_second * 8.0, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Bytes, powers of 1024: `1.2G`, `64K`.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn size(bytes: u64) -> String {
    short(bytes as f64, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
}

fn short(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    // What would be rounded to a whole step is the next unit's.
    while value >= step - 0.5 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    if at == 0 || value >= 9.95 {
        format!("{value:.0}{}", units[at])
    } else {
        format!("{value:.1}{}", units[at])
    }
}

/// A time that has passed: `12s`, `5:03`, `3h12`, `5d03h`.
pub(crate) fn ago(time: Duration) -> String {
    let all = time.as_secs();
    let (days, hours, minutes, seconds) = (all / 86400, all / 3600 % 24, all / 60 % 60, all % 60);
    match all {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}:{seconds:02}"),
        3600..86400 => format!("{hours}h{minutes:02}"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// The time of day, UTC.
pub(crate) fn clock(time: SystemTime) -> String {
    let day = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() % 86400);
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_short() {
        let all = [0.0, 12.0, 124.9, 124.99, 1.25e9, 1.23e8, 124_990.0].map(bits);
        assert_eq!(all, ["0", "96", "999", "1.0k", "10G", "984M", "1.0M"]);
        assert_eq!([0, 1023, 1024, 10 << 20, 1_500_000_000].map(size), ["0", "1023", "1.0K", "10M", "1.4G"]);
        assert!(bits(f64::from(u32::MAX) * 1e9).len() <= 6 && size(u64::MAX).len() <= 6);
    }

    #[test]
    fn units_of_time_are_short() {
        let all = [9, 65, 3725, 90_061].map(|seconds| ago(Duration::from_secs(seconds)));
        assert_eq!(all, ["9s", "1:05", "1h02", "1d01h"]);
        assert_eq!(clock(SystemTime::UNIX_EPOCH + Duration::from_secs(86400 + 3661)), "01:01:01");
    }
}
