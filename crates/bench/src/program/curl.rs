//! curl: one large file from nginx.

use super::process::{Server, run};
use super::{Effort, LIMIT, Metric, Program, web};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result, bail};

#[derive(Debug)]
pub(super) struct LargeFile;

impl Program for LargeFile {
    fn name(&self) -> &'static str {
        "curl"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["nginx", "curl"]
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("256 MB from nginx", Unit::GigabitsPerSecond)]
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        web::serve(place, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, _: Effort) -> Result<Vec<f64>> {
        let mut command = place.client("curl")?;
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "/dev/null"]);
        command.args(["--write-out", "%{size_download} %{speed_download}\n"]);
        command.arg(web::url(place, port, "large"));
        Ok(vec![parse(&run(command, LIMIT)?)?])
    }
}

/// Gb/s, if all bytes have come.
fn parse(out: &str) -> Result<f64> {
    let (size, speed) = out.trim().split_once(' ').context("curl printed no figures")?;
    if size.parse() != Ok(web::LARGE) {
        bail!("curl got {size} bytes of {}", web::LARGE);
    }
    Ok(speed.parse::<f64>().context("curl printed no speed")? * 8e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_counts_only_if_all_bytes_came() {
        assert_eq!(parse("268435456 1000000000\n").unwrap(), 8.0);
        assert!(parse("268435455 1000000000\n").is_err());
        assert!(parse("").is_err());
    }
}
