use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::{Bounds, Time};
use crate::ids::{AgentEpoch, Rank, ReadToken};

/// One claim as P sees it, kept after its end so that it never begins again.
#[derive(Debug)]
pub(crate) struct Claim {
    readers: BTreeMap<Rank, Reader>,
    born: Time,
    /// When it lapses unless renewed.
    until: Time,
    ended: bool,
}

/// One reader of a claim.
#[derive(Debug)]
enum Reader {
    /// Named by another reader; has not claimed itself.
    Expected,
    Reading(AgentEpoch, ReadToken),
    Done(AgentEpoch),
}

/// What a notice of `done` turned out to be.
pub(crate) enum Notice {
    /// The first of its reader, whose token is to be revoked.
    Counted(ReadToken),
    /// One that was counted before.
    Again,
    /// One that does not count.
    Refused,
}

impl Claim {
    pub(crate) fn new(readers: &BTreeSet<Rank>, now: Time) -> Self {
        let readers = readers.iter().map(|rank| (*rank, Reader::Expected)).collect();
        Self { readers, born: now, until: now, ended: false }
    }

    /// A claim that was given up before it was made.
    pub(crate) fn ended(now: Time) -> Self {
        Self { readers: BTreeMap::new(), born: now, until: now, ended: true }
    }

    pub(crate) fn lives(&self) -> bool {
        !self.ended
    }

    /// When it lapses; `None` once it has ended.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.lives().then_some(self.until)
    }

    pub(crate) fn extend(&mut self, now: Time, bounds: &Bounds) {
        let oldest = self.born.saturating_add(bounds.oldest);
        self.until = now.saturating_add(bounds.claim_life).min(oldest);
    }

    /// The token that a worker reads under.
    pub(crate) fn token_of(&self, agent: AgentEpoch) -> Option<ReadToken> {
        self.readers.values().find_map(|reader| match reader {
            Reader::Reading(a, token) if *a == agent && self.lives() => Some(*token),
            _ => None,
        })
    }

    /// Whether `agent` may become the reader `rank`: all readers must name the same set, no
    /// rank has two workers and no worker two ranks.
    pub(crate) fn admits(&self, rank: Rank, agent: AgentEpoch, readers: &BTreeSet<Rank>) -> bool {
        self.lives()
            && self.readers.keys().eq(readers)
            && matches!(self.readers.get(&rank), Some(Reader::Expected))
            && !self.readers.values().any(|reader| reader.agent() == Some(agent))
    }

    pub(crate) fn seat(&mut self, rank: Rank, agent: AgentEpoch, token: ReadToken) {
        self.readers.insert(rank, Reader::Reading(agent, token));
    }

    pub(crate) fn done(&mut self, agent: AgentEpoch) -> Notice {
        let lives = self.lives();
        match self.readers.values_mut().find(|reader| reader.agent() == Some(agent)) {
            Some(Reader::Done(_)) => Notice::Again,
            Some(reader @ Reader::Reading(..)) if lives => reader.finish(),
            _ => Notice::Refused,
        }
    }

    pub(crate) fn all_done(&self) -> bool {
        self.readers.values().all(|reader| matches!(reader, Reader::Done(_)))
    }

    /// Ends the claim, whatever the reason; gives the tokens that are to be revoked.
    pub(crate) fn end(&mut self) -> Vec<ReadToken> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        self.readers.values().filter_map(Reader::token).collect()
    }
}

impl Reader {
    fn agent(&self) -> Option<AgentEpoch> {
        match self {
            Self::Expected => None,
            Self::Reading(agent, _) | Self::Done(agent) => Some(*agent),
        }
    }

    fn token(&self) -> Option<ReadToken> {
        match self {
            Self::Reading(_, token) => Some(*token),
            Self::Expected | Self::Done(_) => None,
        }
    }

    fn finish(&mut self) -> Notice {
        match *self {
            Self::Reading(agent, token) => {
                *self = Self::Done(agent);
                Notice::Counted(token)
            }
            Self::Expected | Self::Done(_) => Notice::Refused,
        }
    }
}
