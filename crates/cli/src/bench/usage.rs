//! What a process takes: time of cores and memory.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};
use crate::process;

/// Of a whole process, all its threads together.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    /// Most bytes that were resident at a time since the last look, without shared memory: of that
    /// a system maps some that nobody has read.
    pub(super) peak_resident_bytes: u64,
}

impl Usage {
    /// Of this process; the peak counts anew from here.
    pub(super) fn take() -> Self {
        // What was mapped by now stays so, and was there at the peak but for what came after it.
        let peak = process::peak_resident_bytes();
        let peak_resident_bytes = peak.saturating_sub(process::shared_bytes());
        process::forget_peak();
        Self { cpu_s: cpu().as_secs_f64(), peak_resident_bytes }
    }
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// What one transfer took here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    /// Until the caller was free again, where somebody else does the rest.
    pub(super) posted: Option<Duration>,
}

impl Taken {
    /// By `run`.
    pub(super) fn by(run: impl FnOnce() -> Result<(), Failure>) -> Result<Self, Failure> {
        let (before, start) = (cpu(), Instant::now());
        run()?;
        let wall = start.elapsed();
        Ok(Self { wall, cpu: cpu().saturating_sub(before), posted: None })
    }
}

/// Refuses what this host has no memory for, before it is taken: no program is told so later.
pub(super) fn check_memory(what: &str, bytes: u64) -> Result<(), Failure> {
    let Some(available) = process::available_bytes() else { return Ok(()) };
    if bytes <= available {
        return Ok(());
    }
    let [bytes, available] = [bytes, available].map(crate::output::bytes);
    let why = format!("{what} needs {bytes} of memory, and {available} are available");
    Err(Failure::new(Code::Input, why)
        .hint("give --workload a smaller one, such as W3, or --case fewer cases"))
}
