//! Which processors a measurement runs on.

use anyhow::{Context, Result, bail};
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
    /// Two processors that this process may use, not the ones most likely to serve interrupts; the same one twice if
    /// there is only one.
    pub fn pick() -> Result<Self> {
        let set = sched_getaffinity(None).context("cannot ask which processors may be used")?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
        let Some(&last) = usable.last() else { bail!("no processor may be used") };
        Ok(Self { near: usable[usable.len().saturating_sub(2)], far: last })
    }

    /// The first two processors that may be used.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn pick_close() -> Result<Self> {
        let set = sched_getaffinity(None).context("cannot ask which processors may be used")?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        let near = usable.next().context("no processor may be used")?;
        Ok(Self { near, far: usable.next().unwrap_or(near) })
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

/// Keeps the calling thread on one processor until dropped.
#[derive(Debug)]
pub struct Pin(CpuSet);

impl Pin {
    /// Moves the calling thread to processor `cpu`.
    pub fn to(cpu: usize) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        if cpu >= CpuSet::MAX_CPU {
            bail!("there is no processor {cpu}");
        }
        only.set(cpu);
        sched_setaffinity(None, &only).with_context(|| format!("cannot run on processor {cpu}"))?;
        Ok(Self(before))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Keeps the calling thread, and all that it starts, on two processors until dropped.
#[derive(Debug)]
pub struct Confined(CpuSet);

impl Confined {
    /// Stays on `cores`.
    ///
    /// # Errors
    /// They may not be used.
    pub fn to(cores: Cores) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut both = CpuSet::new();
        for cpu in [cores.near, cores.far] {
            if !before.is_set(cpu) {
                bail!("processor {cpu} may not be used");
            }
            both.set(cpu);
        }
        sched_setaffinity(None, &both)?;
        Ok(Self(before))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// The processor that the calling thread runs on, as records bear it.
pub fn current() -> u16 {
    u16::try_from(sched_getcpu()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_two_numbers() {
        assert_eq!("0, 3".parse::<Cores>().unwrap(), Cores { near: 0, far: 3 });
        assert!("1".parse::<Cores>().is_err());
        assert!("a,b".parse::<Cores>().is_err());
    }

    #[test]
    fn a_pin_is_undone() {
        let before = sched_getaffinity(None).unwrap();
        let far = Cores::pick().unwrap().far;
        let pin = Pin::to(far).unwrap();
        assert_eq!(usize::from(current()), far);
        drop(pin);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
