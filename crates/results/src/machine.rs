//! Where a result was measured.

use serde::{Deserialize, Serialize};

/// The machine, as far as it explains figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model name of the first processor.
    pub processor: String,
    /// Processors of the machine.
    pub processors: usize,
    /// Kernel name and version.
    pub kernel: String,
    /// Load average of the last minute when the run began; other work makes figures noisy.
    pub load: f64,
    /// What the hypervisor gave to others during the run, percent of all processors' time; 0 until the run has ended.
    #[serde(default)]
    pub steal_percent: f64,
    /// Whether idle processors were kept from sleep states.
    #[serde(default)]
    pub awake: bool,
    /// Half a cache line's round trip between two processors, the median of those behind turns, ns; `None` if that is not known.
    #[serde(default)]
    pub distance_ns: Option<f64>,
    /// Turns behind which a processor did not have all its speed, as beside another machine on its core, percent; `None` where that is not looked at.
    #[serde(default)]
    pub slowed_percent: Option<f64>,
}

impl Machine {
    /// What idle processors did, in words.
    pub fn idle(&self) -> &'static str {
        if self.awake { "kept awake" } else { "allowed to sleep" }
    }

    /// Looks at this machine. What cannot be read is empty or zero.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let uname = rustix::system::uname();
        Self {
            processor: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            processors: info.lines().filter(|line| line.starts_with("processor\t")).count(),
            kernel: uname.release().to_string_lossy().into_owned(),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            steal_percent: 0.0,
            awake: false,
            distance_ns: None,
            slowed_percent: None,
        }
    }
}
