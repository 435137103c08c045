//! Whom a host of the lab reaches, and over how many cables.

use crate::PATIENCE;
use crate::program::run;
use crate::rig::Rig;
use anyhow::{Result, ensure};
use serde_json::Value;

/// How many cables lie between the host of `status` and another, by its link states; `None` if no way leads there.
pub fn cables(status: &Value, to: u64) -> Option<u64> {
    status["hosts"].as_array()?.iter().find(|host| host["id"] == to)?["hops"].as_u64()
}

impl Rig {
    /// Waits until a host knows of so many others.
    ///
    /// # Errors
    /// It does not in time.
    pub fn sees(&self, host: &str, others: usize) -> Result<()> {
        let all = |status: &Value| status["hosts"].as_array().map(Vec::len);
        self.lab.wait_until(host, PATIENCE, |status| all(status) == Some(others))?;
        Ok(())
    }

    /// Waits until so many cables lie between a host and another one (`None`: no way leads there).
    ///
    /// # Errors
    /// They do not in time.
    pub fn lies(&self, host: &str, to: u64, distance: Option<u64>) -> Result<()> {
        self.lab.wait_until(host, PATIENCE, |status| cables(status, to) == distance)?;
        Ok(())
    }

    /// One host reaches another by IP.
    ///
    /// # Errors
    /// No answer comes.
    pub fn ping(&self, from: &str, to: &str) -> Result<()> {
        let mut ping = self.plain(from, "ping")?;
        let answer = run(ping.args(["-c", "1", "-W", "5", &self.address(to)?.to_string()]), PATIENCE)?;
        ensure!(answer.text().contains("1 received"), "{from} to {to}: {}", answer.text());
        Ok(())
    }
}
