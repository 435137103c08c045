//! Which hosts a host of the lab reaches, and over how many cables.

use crate::PATIENCE;
use crate::program::run;
use crate::rig::Rig;
use anyhow::{Result, ensure};
use crosslane_status::Status;
use crosslane_wire::HostId;

/// How many cables lie between the host of `status` and another, by its link states; `None` if no way leads there.
pub fn cables(status: &Status, to: u16) -> Option<u8> {
    status.other_host(HostId(to))?.hops
}

impl Rig {
    /// Waits until a host knows of so many others.
    ///
    /// # Errors
    /// It does not in time.
    pub fn sees(&self, host: &str, others: usize) -> Result<()> {
        self.lab.wait_until(host, PATIENCE, |status| status.hosts.len() == others)?;
        Ok(())
    }

    /// Waits until so many cables lie between a host and another one (`None`: no way leads there).
    ///
    /// # Errors
    /// They do not in time.
    pub fn lies(&self, host: &str, to: u16, distance: Option<u8>) -> Result<()> {
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
