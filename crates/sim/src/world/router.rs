//! The router: brings prompts to prefill engines and their parameters to decode engines, and
//! makes the mistakes that routers make.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use connector::params::HandoffParams;
use connector::{PromptDigest, PromptIdentity};
use kv_layout::BlockTable;
use serde_json::Value;

use super::World;
use super::events::What;
use super::setup::{Fault, MS, SEC};
use super::story::Story;

/// Tokens of a block.
pub(crate) const BLOCK: u32 = 16;

/// KV cache groups: one that sees everything, and one that sees a window.
pub(crate) const GROUPS: usize = 2;

/// Tokens that the second group sees.
pub(crate) const WINDOW: u32 = 24;

/// One text in so many is run by the toy model.
const TOLD: u32 = 4;

/// The first block of a group that the last token of a prompt still needs.
pub(crate) fn first_block(group: usize, tokens: u32) -> u32 {
    if group == 0 { 0 } else { tokens.saturating_sub(WINDOW) / BLOCK }
}

/// What a user asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prompt {
    pub(crate) text: u32,
    pub(crate) tokens: u32,
}

/// A request on its way to a decode engine.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) engine: usize,
    /// Whose prompt it has.
    pub(crate) request: u32,
    /// How many answers the client wants: so many requests with the same parameters.
    pub(crate) samples: u64,
    pub(crate) params: Rc<Value>,
    /// What a mistaken engine takes for P's blocks.
    pub(crate) hint: Arc<[BlockTable]>,
    /// The client chose a name that is in use.
    pub(crate) same_name: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Router {
    prompts: Vec<Prompt>,
    digests: BTreeMap<(Prompt, u32), PromptDigest>,
    /// What the toy model makes of some prompts.
    stories: BTreeMap<Prompt, Rc<Story>>,
    /// The last block lists that came by.
    hint: Option<Arc<[BlockTable]>>,
    /// Requests under way between P and D.
    pub(crate) carried: usize,
}

impl Router {
    pub(crate) fn prompt_of(&self, request: u32) -> Prompt {
        self.prompts[request as usize]
    }

    pub(crate) fn requests(&self) -> u32 {
        u32::try_from(self.prompts.len()).unwrap_or(u32::MAX)
    }

    /// What the toy model, of so many heads, makes of a prompt, for one in a few.
    pub(crate) fn story(&mut self, prompt: Prompt, heads: u32) -> Option<Rc<Story>> {
        if !prompt.text.is_multiple_of(TOLD) {
            return None;
        }
        if let Some(story) = self.stories.get(&prompt) {
            return Some(Rc::clone(story));
        }
        let story = Rc::new(Story::new(prompt, heads).ok()?);
        self.stories.insert(prompt, Rc::clone(&story));
        Some(story)
    }

    /// What the first tokens of a prompt are.
    pub(crate) fn digest(&mut self, prompt: Prompt, tokens: u32) -> PromptDigest {
        *self.digests.entry((prompt, tokens)).or_insert_with(|| {
            let tokens: Vec<u32> = (0..tokens).map(|at| prompt.text * 1000 + at).collect();
            PromptIdentity { tokens: &tokens, model: "toy", ..PromptIdentity::default() }.digest()
        })
    }
}

impl World {
    /// Decides when which prompt arrives.
    pub(crate) fn fill_router(&mut self) {
        let requests = u32::try_from(self.terrain.setup.requests).unwrap_or(u32::MAX);
        for request in 0..requests {
            let again = request > 0 && self.chance(100);
            let prompt = if again {
                let before = self.pick(request as usize);
                self.router.prompts[before]
            } else {
                let tokens = u32::try_from(self.between(1, 97)).unwrap_or(1);
                Prompt { text: request, tokens }
            };
            self.router.prompts.push(prompt);
            let mut at = self.between(0, self.terrain.span);
            if self.chance(100) {
                at += self.terrain.well_at();
            }
            self.queue.push(at, What::Prompt { request });
        }
    }

    /// A prompt goes to some prefill engine that answers.
    pub(crate) fn route_prompt(&mut self, request: u32) {
        let first = self.pick(self.terrain.setup.prefills);
        let all =
            (0..self.terrain.setup.prefills).map(|at| (first + at) % self.terrain.setup.prefills);
        match all.into_iter().find(|&engine| self.engines[engine].up) {
            Some(engine) => self.prompt(request, engine),
            None => self.book.tally.count("no prefill engine"),
        }
    }

    /// A prefill engine has answered: its parameters go to a decode engine.
    pub(crate) fn answered(
        &mut self,
        request: u32,
        params: &HandoffParams,
        hint: Arc<[BlockTable]>,
    ) {
        let before = self.router.hint.replace(Arc::clone(&hint));
        // A router that mixes up such lists does no harm: nobody reads them.
        let hint = if self.fault(Fault::Router, 500) { before.unwrap_or(hint) } else { hint };
        let params = Rc::new(params.to_json());
        let engine = self.some_decode();
        let samples = if self.chance(80) { self.between(2, 17) } else { 1 };
        self.book.tally.add("samples beside the first", samples - 1);
        let delivery = Delivery { engine, request, samples, params, hint, same_name: false };
        let soon = self.between(MS / 10, 20 * MS);
        if !self.fault(Fault::Router, 2500) {
            return self.carry_to(delivery, soon);
        }
        match self.between(0, 7) {
            0 => self.book.tally.count("dropped by the router"),
            1 => {
                let late = self.between(15 * SEC, 70 * SEC);
                self.carry_to(delivery, late);
            }
            2 => {
                let engine = self.some_decode();
                let later = self.between(0, 8 * SEC);
                self.carry_to(delivery.clone(), soon);
                self.carry_to(Delivery { engine, ..delivery }, later);
            }
            3 => {
                self.carry_to(delivery.clone(), soon);
                let later = soon + self.between(0, 100 * MS);
                self.carry_to(Delivery { same_name: true, ..delivery }, later);
            }
            4 | 5 => {
                let request = self.between(0, self.router.requests().into());
                let request = u32::try_from(request).unwrap_or(0);
                self.carry_to(Delivery { request, ..delivery }, soon);
            }
            _ => {
                for _ in 0..self.between(2, 4) {
                    self.carry_to(delivery.clone(), soon);
                }
            }
        }
    }

    fn carry_to(&mut self, delivery: Delivery, after: u64) {
        self.router.carried += 1;
        self.queue.push(self.now + after, What::Params(Box::new(delivery)));
    }

    fn some_decode(&mut self) -> usize {
        self.terrain.setup.prefills + self.pick(self.terrain.setup.decodes)
    }
}
