//! The work that a client reports.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Units of work in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// How many: requests, messages, megabytes.
    pub count: f64,
    /// In how long, s.
    pub seconds: f64,
    /// Processor time of all its processes, s, if the client reports it.
    pub processor: Option<f64>,
}

impl Work {
    /// Parses the last line of a script's output: `{"count": .., "seconds": ..}`, and `"processor"` if known.
    ///
    /// # Errors
    /// It printed something else, or did nothing.
    pub fn json(out: &str) -> Result<Self> {
        let line = out.lines().rfind(|line| line.starts_with('{')).context("no line of JSON was printed")?;
        let value: Value = serde_json::from_str(line)?;
        let number = |name: &str| value[name].as_f64().with_context(|| format!("no {name} in {line}"));
        let processor = value["processor"].as_f64();
        Self { count: number("count")?, seconds: number("seconds")?, processor }.checked()
    }

    /// `count` units at `rate` units a second.
    ///
    /// # Errors
    /// Nothing was done.
    pub fn at_rate(count: f64, rate: f64) -> Result<Self> {
        Self { count, seconds: count / rate, processor: None }.checked()
    }

    /// Units in a second.
    pub fn rate(&self) -> f64 {
        self.count / self.seconds
    }

    /// Checks that work was done.
    ///
    /// # Errors
    /// It is none.
    pub fn checked(self) -> Result<Self> {
        let Self { count, seconds, .. } = self;
        ensure!(
            count > 0.0 && seconds > 0.0 && seconds.is_finite(),
            "nothing was done: {count} in {seconds} s"
        );
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_done_is_read_from_the_last_line() {
        let work = Work::json("warning\n{\"count\": 300, \"seconds\": 1.5}\n").unwrap();
        assert_eq!((work.count, work.rate()), (300.0, 200.0));
        assert_eq!(work.processor, None);
        let work = Work::json("{\"count\": 1, \"seconds\": 1, \"processor\": 0.25}").unwrap();
        assert_eq!(work.processor, Some(0.25));
        assert!(Work::json("nothing").is_err());
        assert!(Work::json("{\"count\": 0, \"seconds\": 1.5}").is_err());
        assert_eq!(Work::at_rate(100.0, 50.0).unwrap().seconds, 2.0);
        assert!(Work::at_rate(0.0, 0.0).is_err());
    }
}
