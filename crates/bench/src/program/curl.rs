//! curl: one large file from nginx.

use super::process::run;
use super::{LIMIT, Metric, Program, web};
use crate::figure::Unit;
use anyhow::{Context, Result, ensure};

pub(super) const LARGE_FILE: Program = Program {
    name: "curl",
    needs: &["nginx", "curl"],
    metrics: &[Metric::new("256 MB from nginx", Unit::GigabitsPerSecond)],
    serve: web::serve,
    measure: |place, port, _| {
        let mut command = place.client("curl")?;
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "/dev/null"]);
        command.args(["--write-out", "%{size_download} %{speed_download}\n"]);
        command.arg(web::url(place, port, "large"));
        Ok(vec![parse(&run(command, LIMIT)?)?])
    },
};

/// Gb/s, if all bytes have come.
fn parse(out: &str) -> Result<f64> {
    let (size, speed) = out.trim().split_once(' ').context("curl printed no figures")?;
    ensure!(size.parse() == Ok(web::LARGE), "curl got {size} bytes of {}", web::LARGE);
    Ok(speed.parse::<f64>().context("curl printed no speed")? * 8e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curl_speed_counts_only_if_all_bytes_came() {
        assert_eq!(parse("268435456 1000000000\n").unwrap(), 8.0);
        assert!(parse("268435455 1000000000\n").is_err());
        assert!(parse("").is_err());
    }
}
