//! What a run comes to.

use std::collections::BTreeMap;
use std::fmt;

use super::oracle::Oracle;
use super::setup::Setup;
use super::timeline::Timeline;

/// What became of the requests of a run that kept all rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many ended in which way.
    pub ends: BTreeMap<&'static str, u64>,
    /// The most of some things that there was at a time.
    pub peaks: BTreeMap<&'static str, usize>,
    /// Things that happened.
    pub events: u64,
    /// When the world came to rest, in seconds of its own time.
    pub seconds: u64,
    /// Everything that happened, if it was to be written down.
    pub timeline: String,
}

/// A rule that was broken, and how to see it again.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The run.
    pub setup: Setup,
    /// The rule.
    pub oracle: Oracle,
    /// By what.
    pub what: String,
    /// The request that it concerns, if it is one.
    pub request: Option<u32>,
    /// What happened to that request, or to all.
    pub timeline: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setup, oracle, what, request, timeline } = self;
        writeln!(f, "{timeline}")?;
        writeln!(f, "seed {}: {oracle}: {what}", setup.seed)?;
        if let Some(request) = request {
            writeln!(f, "request {request}")?;
        }
        write!(f, "again: {}", setup.command())
    }
}

impl std::error::Error for Violation {}

/// What is written down while the world goes on.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) tally: Tally,
    pub(crate) timeline: Timeline,
    /// Owners of blocks so far.
    pub(crate) owners: u32,
    pub(crate) violated: Option<(Oracle, Option<u32>, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) ends: BTreeMap<&'static str, u64>,
    pub(crate) peaks: BTreeMap<&'static str, usize>,
}

impl Tally {
    pub(crate) fn count(&mut self, how: &'static str) {
        self.add(how, 1);
    }

    /// Remembers the largest.
    pub(crate) fn peak(&mut self, of: &'static str, size: usize) {
        let peak = self.peaks.entry(of).or_default();
        *peak = size.max(*peak);
    }

    pub(crate) fn add(&mut self, how: &'static str, many: u64) {
        *self.ends.entry(how).or_default() += many;
    }
}
