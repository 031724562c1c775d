//! How many cases were planned, and how many refused for which reason.

use std::collections::BTreeMap;
use std::fmt;

use kv_layout::PlanError;

use super::judge::{Done, Fault};

/// Counts of cases.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub planned: u64,
    pub copies: u64,
    pub bytes: u64,
    pub refused: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a case; panics, with `case` in the message, where it is wrong, or refused for a
    /// reason that is none of the limits.
    pub fn count(&mut self, outcome: Result<Done, Fault>, case: impl FnOnce() -> String) {
        match outcome {
            Ok(done) => {
                self.planned += 1;
                self.copies += done.copies as u64;
                self.bytes += done.bytes;
            }
            Err(Fault::Refused(why)) => match limit(&why) {
                Some(reason) => self.refuse(reason, 1),
                None => panic!("refused: {why}\n{}", case()),
            },
            Err(Fault::Wrong(why)) => panic!("{why}\n{}", case()),
        }
    }

    pub fn refuse(&mut self, reason: &str, cases: u64) {
        *self.refused.entry(reason.to_owned()).or_default() += cases;
    }

    pub fn add(&mut self, other: &Self) {
        self.planned += other.planned;
        self.copies += other.copies;
        self.bytes += other.bytes;
        for (reason, cases) in &other.refused {
            self.refuse(reason, *cases);
        }
    }

    pub fn cases(&self) -> u64 {
        self.planned + self.refused.values().sum::<u64>()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planned, copies, bytes, refused } = self;
        write!(f, "{} cases: {planned} planned ({copies} copies, {bytes} bytes)", self.cases())?;
        for (reason, cases) in refused {
            write!(f, "; {cases} refused: {reason}")?;
        }
        Ok(())
    }
}

/// The limits of the planner; anything else must be planned.
fn limit(why: &PlanError) -> Option<&'static str> {
    match why {
        PlanError::Opaque { .. } => Some("opaque packing with unequal shapes"),
        PlanError::StatePosition { .. } => Some("recurrent state at another position"),
        PlanError::Interleave { .. } => Some("context parallelism of unequal interleave"),
        _ => None,
    }
}
