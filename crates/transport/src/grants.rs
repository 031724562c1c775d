//! Who may read what: the table that every provider asks before it sends.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use strided::{Blocks, Pattern, RegionId};

use crate::events::Events;
use crate::registry::{Bound, Registry};
use crate::scatter::Scatter;
use crate::sync::lock;
use crate::{AgentId, Event, GrantError, GrantToken, Registration};

/// The grants of one endpoint, and how many sends go on under each.
pub(crate) struct Grants {
    table: Mutex<HashMap<GrantToken, Entry>>,
    events: Arc<Events>,
}

struct Entry {
    grant: Arc<Grant>,
    sends: usize,
}

struct Grant {
    reader: AgentId,
    rules: HashMap<RegionId, Vec<Rule>>,
    revoked: OnceLock<Instant>,
}

/// Bytes of one region that may be read.
struct Rule {
    bound: Arc<Bound>,
    /// Sorted; one for all regions that were granted with the same list.
    ids: Arc<[u32]>,
    pattern: Pattern,
}

impl Rule {
    /// A pattern is allowed if it is the granted one, or if it lies within granted bytes that
    /// are contiguous.
    fn admits(&self, asked: &Pattern) -> bool {
        let granted = &self.pattern;
        let inside = asked.offset() >= granted.offset() && asked.end() <= granted.end();
        granted == asked || (granted.dims().is_empty() && inside)
    }
}

impl Grants {
    pub(crate) fn new(events: Arc<Events>) -> Self {
        Self { table: Mutex::default(), events }
    }

    pub(crate) fn grant(
        &self,
        registry: &Registry,
        reader: AgentId,
        token: GrantToken,
        blocks: &[Blocks],
    ) -> Result<(), GrantError> {
        // Only the owner of the endpoint adds, so the token is still free at the end.
        if lock(&self.table).contains_key(&token) {
            return Err(GrantError::TokenInUse);
        }
        let rules = rules(registry, blocks)?;
        let grant = Arc::new(Grant { reader, rules, revoked: OnceLock::new() });
        lock(&self.table).insert(token, Entry { grant, sends: 0 });
        Ok(())
    }

    /// Ends a grant; reports it at once if nothing is being sent.
    pub(crate) fn revoke(&self, token: GrantToken) {
        let mut table = lock(&self.table);
        if let Some(entry) = table.get(&token) {
            // The first call counts.
            let _ = entry.grant.revoked.set(Instant::now());
            if entry.sends > 0 {
                return;
            }
            table.remove(&token);
        }
        self.events.push(Event::Revoked { token });
    }

    /// Whether a grant, or a send under a revoked one, uses the registration.
    pub(crate) fn uses(&self, registration: Registration) -> bool {
        let used = |rule: &Rule| rule.bound.registration() == registration;
        lock(&self.table).values().any(|entry| entry.grant.rules.values().flatten().any(used))
    }

    /// Checks a read, and lets it begin: `None` when any of its bytes is not granted.
    pub(crate) fn open(
        self: &Arc<Self>,
        reader: AgentId,
        token: GrantToken,
        blocks: &[Blocks],
    ) -> Option<(Permit, Scatter)> {
        let permit = self.permit(reader, token)?;
        let scatter = permit.grant.check(blocks)?;
        Some((permit, scatter))
    }

    fn permit(self: &Arc<Self>, reader: AgentId, token: GrantToken) -> Option<Permit> {
        let mut table = lock(&self.table);
        let entry = table.get_mut(&token)?;
        if entry.grant.reader != reader || entry.grant.revoked.get().is_some() {
            return None;
        }
        entry.sends += 1;
        Some(Permit { grants: Arc::clone(self), grant: Arc::clone(&entry.grant), token })
    }

    fn close(&self, token: GrantToken) {
        let mut table = lock(&self.table);
        let Some(entry) = table.get_mut(&token) else { return };
        entry.sends -= 1;
        if entry.sends == 0 && entry.grant.revoked.get().is_some() {
            table.remove(&token);
            self.events.push(Event::Revoked { token });
        }
    }
}

/// Binds blocks to memory; regions that share a list of ids keep sharing it.
fn rules(
    registry: &Registry,
    blocks: &[Blocks],
) -> Result<HashMap<RegionId, Vec<Rule>>, GrantError> {
    let mut rules: HashMap<RegionId, Vec<Rule>> = HashMap::new();
    let mut sorted: HashMap<*const u32, Arc<[u32]>> = HashMap::new();
    for blocks in blocks {
        let bound = registry.bind(blocks)?;
        let ids = sorted.entry(blocks.ids().as_ptr()).or_insert_with(|| {
            let mut ids = blocks.ids().to_vec();
            ids.sort_unstable();
            ids.into()
        });
        let rule = Rule { bound, ids: Arc::clone(ids), pattern: *blocks.pattern() };
        rules.entry(blocks.region()).or_default().push(rule);
    }
    Ok(rules)
}

impl Grant {
    fn check(&self, blocks: &[Blocks]) -> Option<Scatter> {
        let mut parts = Vec::with_capacity(blocks.len());
        // Pairs of asked and granted lists that were compared: regions share them.
        let mut known = HashSet::new();
        for asked in blocks {
            let rules = self.rules.get(&asked.region())?;
            let rules: Vec<&Rule> =
                rules.iter().filter(|rule| rule.admits(asked.pattern())).collect();
            let bound = Arc::clone(&rules.first()?.bound);
            let lists = rules.iter().map(|rule| rule.ids.as_ptr()).collect::<Vec<_>>();
            if known.insert((asked.ids().as_ptr(), lists)) && !all_known(asked.ids(), &rules) {
                return None;
            }
            parts.push((bound, asked.clone()));
        }
        Scatter::new(parts)
    }
}

fn all_known(ids: &[u32], rules: &[&Rule]) -> bool {
    ids.iter().all(|id| rules.iter().any(|rule| rule.ids.binary_search(id).is_ok()))
}

/// The right to send under a grant; dropped when nothing is sent any more.
pub(crate) struct Permit {
    grants: Arc<Grants>,
    grant: Arc<Grant>,
    token: GrantToken,
}

impl Permit {
    /// How long ago the grant was revoked, if it was.
    pub(crate) fn revoked_for(&self) -> Option<Duration> {
        self.grant.revoked.get().map(Instant::elapsed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.grants.close(self.token);
    }
}
