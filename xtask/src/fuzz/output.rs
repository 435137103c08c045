//! The output of libFuzzer while it runs.

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Inputs that earlier rounds ran.
    earlier: u64,
    /// Inputs that this round has run.
    inputs: u64,
    /// Branches that any input has taken.
    pub(crate) coverage: u64,
    /// The same after the inputs that were known before the first round.
    pub(crate) known: u64,
    /// Inputs that are worth keeping.
    pub(crate) corpus: u64,
}

impl Progress {
    /// Inputs that were run.
    pub(crate) fn inputs(&self) -> u64 {
        self.earlier + self.inputs
    }

    /// The program begins anew.
    pub(crate) fn begin(&mut self) {
        self.earlier += std::mem::take(&mut self.inputs);
    }

    /// Parses a line.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.inputs = count.trim().parse().unwrap_or(self.inputs);
        }
        let Some((count, rest)) =
            line.strip_prefix('#').and_then(|line| line.split_once(char::is_whitespace))
        else {
            return;
        };
        self.inputs = count.parse().unwrap_or(self.inputs);
        self.coverage = number_behind(rest, "cov: ").unwrap_or(self.coverage);
        self.corpus = number_behind(rest, "corp: ").unwrap_or(self.corpus);
        if rest.starts_with("INITED") && self.earlier == 0 {
            self.known = self.coverage;
        }
    }
}

fn number_behind(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_output_lines() {
        let mut progress = Progress::default();
        for line in [
            "INFO: Seed: 3",
            "#2\tINITED cov: 100 ft: 101 corp: 1/1b exec/s: 0 rss: 27Mb",
            "#1024\tNEW    cov: 140 ft: 300 corp: 12/345b lim: 4 exec/s: 0 rss: 27Mb L: 4/4 MS: 1 CopyPart-",
            "stat::number_of_executed_units: 2000",
        ] {
            progress.read(line);
        }
        let first = Progress { earlier: 0, inputs: 2000, coverage: 140, known: 100, corpus: 12 };
        assert_eq!(progress, first);
        progress.begin();
        progress.read("#50\tINITED cov: 150 ft: 101 corp: 13/1b exec/s: 0 rss: 27Mb");
        assert_eq!((progress.inputs(), progress.known, progress.coverage), (2050, 100, 150));
    }
}
