use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

/// What a worker finds that claims.
pub(crate) enum Place {
    /// It claimed before and reads under this token.
    Held(ReadToken),
    Free,
    Refused,
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
    pub(crate) fn given_up(now: Time) -> Self {
        Self { readers: BTreeMap::new(), born: now, until: now, ended: true }
    }

    pub(crate) fn lives(&self) -> bool {
        !self.ended
    }

    /// When it lapses; `None` once it has ended.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.lives().then_some(self.until)
    }

    /// Time until it lapses unless extended.
    pub(crate) fn left(&self, now: Time) -> Duration {
        self.until.saturating_sub(now)
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

    /// Whether `agent` is or may become the reader `rank`: all readers must name the same set,
    /// no rank has two workers and no worker two ranks.
    pub(crate) fn place(&self, rank: Rank, agent: AgentEpoch, readers: &BTreeSet<Rank>) -> Place {
        if self.ended || !self.readers.keys().eq(readers) {
            return Place::Refused;
        }
        let has_another = || self.readers.values().any(|reader| reader.agent() == Some(agent));
        match self.readers.get(&rank) {
            Some(Reader::Reading(a, token)) if *a == agent => Place::Held(*token),
            Some(Reader::Expected) if !has_another() => Place::Free,
            _ => Place::Refused,
        }
    }

    pub(crate) fn seat(&mut self, rank: Rank, agent: AgentEpoch, token: ReadToken) {
        self.readers.insert(rank, Reader::Reading(agent, token));
    }

    /// Whether the blocks were intact until now, or until this reader was done.
    pub(crate) fn is_intact_for(&self, agent: AgentEpoch) -> bool {
        self.readers.values().any(|reader| match reader {
            Reader::Reading(a, _) => *a == agent && self.lives(),
            Reader::Done(a) => *a == agent,
            Reader::Expected => false,
        })
    }

    pub(crate) fn done(&mut self, agent: AgentEpoch) -> Notice {
        let lives = self.lives();
        let mut readers = self.readers.values_mut();
        let Some(reader) = readers.find(|reader| reader.agent() == Some(agent)) else {
            return Notice::Refused;
        };
        match *reader {
            Reader::Done(_) => Notice::Again,
            Reader::Reading(_, token) if lives => {
                *reader = Reader::Done(agent);
                Notice::Counted(token)
            }
            Reader::Reading(..) | Reader::Expected => Notice::Refused,
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
}
