//! Bandwidth between this host's memory and its GPU, which the study measured over copper and fibre as well: by CUDA's driver, where there is one.

use crate::figure::{Figure, Sample, Unit};
use crate::frame::Taken;
use crate::program::process::run;
use anyhow::{Context, Result, bail};
use crosslane_apps::need::PYTHON;
use crosslane_pcie::{Cable, Limits};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The program that calls the driver.
const PROGRAM: &str = include_str!("gpu/measure.py");
/// Where the kernel describes devices of PCI.
const DEVICES: &str = "/sys/bus/pci/devices";
/// The limit's name.
const SLOT: &str = "limit of the slot";
/// The group of a figure that is missing.
const GROUP: &str = "GPU";
/// Copies measured: each way by three sizes, and by one without pinned memory.
const CASES: u32 = 8;
/// How long the driver may take to begin.
const BESIDE: Duration = Duration::from_secs(30);

/// What the program says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    None { none: String },
    Failed { failed: String },
    Rates { name: String, rates: Vec<Rates>, slot: Slot },
}

/// MB (10^6) a second of one kind of copy, by runs.
#[derive(Debug, Deserialize)]
struct Rates {
    way: String,
    bytes: u64,
    pinned: bool,
    mb_s: Vec<f64>,
}

/// The GPU's slot in the kernel's words, as `8.0 GT/s PCIe` and `16`; empty if it does not say.
#[derive(Debug, Deserialize)]
struct Slot {
    speed: String,
    width: String,
}

/// Figures of the first GPU, each run of each copy `time` long; without a GPU one that says so.
///
/// # Errors
/// Python is missing, or CUDA's driver fails.
pub(super) fn measure(runs: usize, time: Duration) -> Result<Taken> {
    by(Command::new(PYTHON), Path::new(DEVICES), runs, time)
}

fn by(mut python: Command, devices: &Path, runs: usize, time: Duration) -> Result<Taken> {
    python.args(["-c", PROGRAM, &runs.to_string(), &time.as_secs_f64().to_string()]).arg(devices);
    let limit = BESIDE + 2 * time * CASES * u32::try_from(runs).unwrap_or(1);
    let said = run(python, limit).context("a GPU's bandwidth (python3)")?;
    match serde_json::from_str(said.trim()).context("the words of gpu/measure.py")? {
        Said::None { none } => {
            let figure = Figure::new(GROUP, "all", Unit::MegabytesPerSecond, None).without(Some(none));
            Ok(vec![figure].into())
        }
        Said::Failed { failed } => bail!("{failed}"),
        Said::Rates { name, rates, slot } => {
            let limit = slot.limit();
            let figures = rates.into_iter().map(|rates| rates.figure(limit.clone())).collect();
            Ok(Taken { figures, notes: vec![format!("GPU: {name}, {}", slot.words())] })
        }
    }
}

impl Rates {
    fn figure(self, limit: Option<Sample>) -> Figure {
        let size = if self.bytes < 1 << 20 { self.bytes >> 10 } else { self.bytes >> 20 };
        let unit = if self.bytes < 1 << 20 { "KB" } else { "MB" };
        let memory = if self.pinned { "pinned" } else { "pageable" };
        let (group, case) = (format!("GPU: {}", self.way), format!("{size} {unit}, {memory}"));
        Figure::new(&group, case, Unit::MegabytesPerSecond, Sample::new(self.mb_s)).against(SLOT, limit)
    }
}

impl Slot {
    /// MB (10^6) a second that an engine has at most there; `None` if the kernel does not say what the slot is.
    fn limit(&self) -> Option<Sample> {
        let speed = self.speed.split(' ').next()?;
        let generation =
            ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"].iter().position(|it| *it == speed)? + 1;
        let cable: Cable = format!("gen{generation} x{}, dma", self.width).parse().ok()?;
        Sample::new(vec![Limits(&cable).payload(false) / 1e6])
    }

    fn words(&self) -> String {
        if self.speed.is_empty() {
            return "in a slot of which the kernel says nothing".to_owned();
        }
        format!("{} x{}", self.speed, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A folder with a stand-in for CUDA's driver, and a description of its slot.
    fn driver() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/media/gpu/fake_cuda.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(folder.path().join("libcuda.so.1"));
        assert!(compiler.arg(source).status().unwrap().success());
        let slot = folder.path().join("devices/0000:0a:00.0");
        std::fs::create_dir_all(&slot).unwrap();
        std::fs::write(slot.join("current_link_speed"), "8.0 GT/s PCIe\n").unwrap();
        std::fs::write(slot.join("current_link_width"), "16\n").unwrap();
        folder
    }

    /// What is measured with it.
    fn measured(folder: &Path, environment: &[(&str, &str)]) -> Result<Taken> {
        let said = folder.join("said");
        let mut python = Command::new(PYTHON);
        python.env("LD_LIBRARY_PATH", folder).envs(environment.iter().copied());
        python.env("FAKE_CUDA_SAYS", &said);
        let taken = by(python, &folder.join("devices"), 2, Duration::from_millis(5));
        let said = std::fs::read_to_string(said)?;
        assert!(said.contains("left: 0 contexts, 0 of the device, 0 of the host"), "{said}");
        taken
    }

    #[test]
    fn media_gpu_is_measured_beside_its_slot() {
        let folder = driver();
        let taken = measured(folder.path(), &[]).unwrap();
        assert_eq!(taken.notes, ["GPU: Fake GPU 7, 8.0 GT/s PCIe x16"]);
        let names: Vec<_> = taken.figures.iter().map(|it| format!("{}, {}", it.group, it.case)).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[0], "GPU: host to device, 64 KB, pinned");
        assert_eq!(names[7], "GPU: device to host, 32 MB, pageable");
        for figure in &taken.figures {
            let runs = figure.sample.as_ref().unwrap();
            assert!(runs.median > 0.0 && figure.references[0].name == SLOT, "{figure:?}");
            assert!((14_000.0..15_000.0).contains(&figure.references[0].sample.median), "{figure:?}");
        }
    }

    #[test]
    fn media_gpu_that_fails_says_what_and_leaves_nothing() {
        let folder = driver();
        for call in ["cuMemAllocHost_v2", "cuMemcpyDtoH_v2"] {
            let error = measured(folder.path(), &[("FAKE_CUDA_FAILS", call)]).unwrap_err();
            assert_eq!(error.to_string(), format!("{call}: error 2 of CUDA's driver"));
        }
    }

    #[test]
    fn media_without_a_gpu_says_so() {
        let folder = driver();
        let taken = measured(folder.path(), &[("FAKE_CUDA_NO_DEVICE", "1")]).unwrap();
        assert_eq!(taken.figures[0].missing.as_deref(), Some("no GPU"));
        let empty = tempfile::tempdir().unwrap();
        let mut python = Command::new(PYTHON);
        python.env("LD_LIBRARY_PATH", empty.path());
        let taken = by(python, empty.path(), 1, Duration::from_millis(1)).unwrap();
        if !Path::new("/dev/nvidia0").exists() {
            assert!(taken.figures[0].missing.as_deref().unwrap().starts_with("no GPU"));
        }
    }
}
