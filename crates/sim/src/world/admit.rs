//! How requests come to a decode engine.

use connector::{ClaimId, RequestId};

use super::World;
use super::decode::{Local, State};
use super::events::What;
use super::oracle::Oracle;
use super::router::{BLOCK, Delivery, Prompt};
use super::setup::{Fault, SEC};

/// A request that is being fetched: its name, its claim, and the prompt as P says it has it.
type Admitted = (RequestId, ClaimId, Prompt);

impl World {
    /// Every sample of a prompt is fetched before anything becomes of one.
    pub(crate) fn arrive(&mut self, engine: usize, delivery: &Delivery) {
        let of = |world: &mut Self, sample| world.admit(engine, delivery, sample > 0);
        let admitted: Vec<_> =
            (0..delivery.samples).filter_map(|sample| of(self, sample)).collect();
        for (name, claim, prompt) in admitted {
            self.begin(engine, name, claim, (delivery.clone(), prompt));
        }
    }

    /// Has one request fetched, or rejects it.
    fn admit(&mut self, engine: usize, delivery: &Delivery, another: bool) -> Option<Admitted> {
        let name = self.name(engine, delivery, another)?;
        let same = self.engines[engine].decode.requests.get(&name);
        if same.is_some_and(|local| local.state == State::Running) {
            self.book.tally.count("rejected: the name is in use");
            return None;
        }
        let params = self.params_as_read(engine, &delivery.params);
        let remote = match self.engines[engine].scheduler.admit(name.clone(), &params) {
            Ok(remote) => remote,
            Err(why) => {
                self.broken(Oracle::Ends, Some(delivery.request), || format!("{why}"));
                return None;
            }
        };
        let prompt = self.router.prompt_of(delivery.request);
        let tokens = u32::try_from(remote.tokens).unwrap_or(u32::MAX);
        if tokens > prompt.tokens {
            self.book.tally.count("rejected: more tokens than the prompt has");
            return None;
        }
        let (digest, claim) = (self.router.digest(prompt, tokens), remote.claim.clone());
        if self.engines[engine].scheduler.fetch(remote, digest).is_err() {
            self.book.tally.count("rejected: the name is in use");
            return None;
        }
        Some((name, claim, Prompt { tokens, ..prompt }))
    }

    fn begin(
        &mut self,
        engine: usize,
        name: RequestId,
        claim: ClaimId,
        (delivery, prompt): (Delivery, Prompt),
    ) {
        let Delivery { request, hint, .. } = delivery;
        self.note(Some(request), || format!("engine {engine} admits {name} for {claim:?}"));
        // It finds all in its own cache, or its client has gone: the blocks are not wanted.
        if self.fault(Fault::Abort, 500) {
            self.engines[engine].scheduler.release(&name);
            return self.book.tally.count("full hit or rejected");
        }
        let blocks = u64::from(prompt.tokens.div_ceil(BLOCK));
        let hit = if self.fault(Fault::Abort, 2000) { self.between(0, blocks) } else { 0 };
        if self.fault(Fault::Abort, 800) {
            let at = self.now + self.between(0, 2 * SEC);
            let life = self.engines[engine].life;
            self.queue.push(at, What::Abort { engine, life, name: name.clone() });
        }
        self.book.owners += 1;
        let local = Local {
            request,
            owner: self.book.owners,
            claim,
            prompt,
            hit: u32::try_from(hit).unwrap_or(0),
            state: State::Queued,
            lists: Vec::new(),
            hint,
            fetched: self.now,
        };
        let desk = &mut self.engines[engine].decode;
        desk.queue.push_back(name.clone());
        desk.requests.insert(name, local);
    }

    /// The engine's own name for a request; a client's name that is in use is kept.
    fn name(&mut self, engine: usize, delivery: &Delivery, another: bool) -> Option<RequestId> {
        let desk = &mut self.engines[engine].decode;
        let taken = desk.requests.iter().find(|(_, local)| local.request == delivery.request);
        if let (true, false, Some((name, _))) = (delivery.same_name, another, taken) {
            return Some(name.clone());
        }
        desk.named += 1;
        RequestId::new(&format!("d{}-{}", delivery.request, desk.named)).ok()
    }
}
