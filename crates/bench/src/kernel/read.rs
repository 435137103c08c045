//! What the programs print, as numbers.

use crate::program::{iperf3, sockperf};
use anyhow::{Context, Result, ensure};

/// A figure, and how many bytes the client's host must have sent for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Read {
    /// The figure.
    pub(super) value: f64,
    /// Bytes.
    pub(super) sent: f64,
}

/// Rate of stock `ntb_perf`, MB/s (10^6): it prints one line for each of its threads, of which there is one, with a rate in whole numbers.
pub(super) fn ntb_perf(out: &str) -> Result<f64> {
    let line = out.lines().find(|line| line.contains(": copied "));
    let line = line.with_context(|| format!("ntb_perf has copied nothing: {}", out.trim()))?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [bytes, microseconds, ..] = numbers[..] else {
        anyhow::bail!("ntb_perf printed no bytes and no time: {line}");
    };
    ensure!(microseconds > 0.0, "ntb_perf took no time: {line}");
    Ok(bytes / microseconds)
}

/// The rate that iperf3's receiver saw, MB/s, in a run of so many seconds.
pub(super) fn iperf3(out: &str, seconds: f64) -> Result<Read> {
    let rate = iperf3::parse(out)? * 125.0;
    Ok(Read { value: rate, sent: rate * 1e6 * seconds })
}

/// The median time one way of sockperf's messages of `size` bytes, us.
pub(super) fn sockperf(out: &str, size: f64) -> Result<Read> {
    let value = sockperf::number(out, "percentile 50.000")?;
    Ok(Read { value, sent: size * sockperf::number(out, "ReceivedMessages")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntb_perf_rate_is_bytes_by_time() {
        let out = "    Peer 0 test statistics:\n0: copied 67108864 bytes in 1699922 usecs, 39 MBytes/s\n";
        assert!((ntb_perf(out).unwrap() - 39.477).abs() < 0.001);
        let failed = ntb_perf("    Peer 0 test statistics:\n0: error status -4\n").unwrap_err().to_string();
        assert!(failed.contains("error status -4"), "{failed}");
        assert!(ntb_perf("0: copied 0 bytes in 0 usecs, 0 MBytes/s").is_err());
        assert!(ntb_perf("0: copied much").is_err());
    }

    #[test]
    fn iperf3_rate_is_in_megabytes() {
        let read = iperf3(include_str!("../captured/iperf3.json"), 2.0).unwrap();
        assert!((read.value - 2791.1).abs() < 1.0 && (read.sent / read.value - 2e6).abs() < 1.0, "{read:?}");
    }

    #[test]
    fn sockperf_median_one_way_is_parsed() {
        let read = sockperf(include_str!("../captured/sockperf-one-way.txt"), 64.0).unwrap();
        assert_eq!(read, Read { value: 4008.967, sent: 348.0 * 64.0 });
    }
}
