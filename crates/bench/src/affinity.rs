//! Which processors a measurement runs on.

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::str::FromStr;

/// Two processors: one for each side of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Cores {
    /// The side that measures.
    pub near: usize,
    /// The side that answers.
    pub far: usize,
}

impl Cores {
    /// Two processors that this process may use, rather not those that serve interrupts; the same one twice if there is
    /// only one.
    pub fn pick() -> Result<Self> {
        let usable = usable()?;
        Ok(Self { near: usable[usable.len().saturating_sub(2)], far: usable[usable.len() - 1] })
    }

    /// The first two processors that may be used.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn pick_close() -> Result<Self> {
        let usable = usable()?;
        Ok(Self { near: usable[0], far: usable[1.min(usable.len() - 1)] })
    }

    /// Whether both sides share one processor, so that spinning only keeps the other side from running.
    pub fn is_shared(self) -> bool {
        self.near == self.far
    }
}

impl FromStr for Cores {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (near, far) = text.split_once(',').context("two processors are wanted, as in 0,1")?;
        let number = |part: &str| part.trim().parse().with_context(|| format!("{part:?} is no processor"));
        Ok(Self { near: number(near)?, far: number(far)? })
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.near, self.far)
    }
}

/// The processors that this process may use: one at least.
fn usable() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask which processors may be used")?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    ensure!(!usable.is_empty(), "no processor may be used");
    Ok(usable)
}

/// Keeps the calling thread, and all that it starts, on some processors until dropped.
#[derive(Debug)]
pub struct Pin(CpuSet);

impl Pin {
    /// Moves the calling thread to processor `cpu`.
    pub fn to(cpu: usize) -> Result<Self> {
        ensure!(cpu < CpuSet::MAX_CPU, "there is no processor {cpu}");
        Self::set(&[cpu]).with_context(|| format!("cannot run on processor {cpu}"))
    }

    /// Stays on both of `cores`.
    ///
    /// # Errors
    /// They may not be used.
    pub fn both(cores: Cores) -> Result<Self> {
        let usable = sched_getaffinity(None)?;
        let both = [cores.near, cores.far];
        if let Some(cpu) = both.into_iter().find(|&cpu| !usable.is_set(cpu)) {
            bail!("processor {cpu} may not be used");
        }
        Self::set(&both)
    }

    fn set(cpus: &[usize]) -> Result<Self> {
        let (before, mut wanted) = (sched_getaffinity(None)?, CpuSet::new());
        cpus.iter().for_each(|&cpu| wanted.set(cpu));
        sched_setaffinity(None, &wanted)?;
        Ok(Self(before))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Keeps the calling thread on two processors, if `two` asks for that.
///
/// # Errors
/// They may not be used.
pub(crate) fn confined(two: bool) -> Result<Option<Pin>> {
    let pin = two.then(|| Cores::pick_close().and_then(Pin::both)).transpose();
    pin.context("two processors were wanted (--all-processors uses all)")
}

/// Whether that is so, for a title.
pub(crate) fn on(two: bool) -> &'static str {
    if two { ", on two processors" } else { "" }
}

/// The processor that the calling thread runs on, for records.
pub fn current() -> u16 {
    u16::try_from(sched_getcpu()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_cores_are_two_numbers() {
        assert_eq!("0, 3".parse::<Cores>().unwrap(), Cores { near: 0, far: 3 });
        assert!("1".parse::<Cores>().is_err());
        assert!("a,b".parse::<Cores>().is_err());
    }

    #[test]
    fn affinity_pin_is_undone() {
        let before = sched_getaffinity(None).unwrap();
        let far = Cores::pick().unwrap().far;
        let pin = Pin::to(far).unwrap();
        assert_eq!(usize::from(current()), far);
        drop(pin);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
