//! A prefill engine with a small pool: offers wait until earlier ones are freed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kvferry::kv_layout::BlockTable;
use kvferry::{Freed, FreedRequest, Prefill, StartError};
use serde_json::{Value, json};

use super::{Orders, say, state};
use crate::spec::{Part, Spec, describe, engine, prompt, resume, tokens};

struct P {
    engine: sim::Engine,
    prefill: Prefill,
    kept: BTreeMap<String, (u64, Vec<BlockTable>)>,
    /// Requests that wait for blocks.
    waiting: VecDeque<u64>,
    /// What is added to a request's number for its bytes: 0, unless this one cheats.
    off: u64,
}

pub async fn run(spec: &Spec, mut orders: Orders) {
    let engine = engine(Part::Prefill);
    let (prefill, mut freed) = start(spec, &engine).await;
    say(&json!({ "ready": prefill.address().to_string() }));
    let off = u64::from(spec.cheats);
    let mut p = P { engine, prefill, kept: BTreeMap::new(), waiting: VecDeque::new(), off };
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => p.obey(&order).await,
                None => return,
            },
            freed = freed.next() => p.take_back(freed.expect("the agent runs")),
        }
        p.offer().await;
    }
}

/// Waits for the address if it has to: a predecessor may be just leaving it.
async fn start(spec: &Spec, engine: &sim::Engine) -> (Prefill, Freed) {
    loop {
        match Prefill::start(&spec.config(), &describe(engine)).await {
            Ok(started) => return started,
            Err(StartError::Listen { .. }) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(why) => panic!("{why}"),
        }
    }
}

impl P {
    async fn obey(&mut self, order: &Value) {
        match order["offer"].as_u64() {
            Some(request) => self.waiting.push_back(request),
            None => say(&state(&self.engine, self.prefill.counts().await)),
        }
    }

    /// Offers what there are blocks for.
    async fn offer(&mut self) {
        while let Some(&request) = self.waiting.front()
            && let Some(tables) = self.engine.allocate(tokens(request), resume(request))
        {
            self.waiting.pop_front();
            self.engine.prefill(request + self.off, tokens(request), &tables);
            let name = format!("p-{request}");
            let params = self.prefill.offer(&name, prompt(request), &tables).await.unwrap();
            self.kept.insert(name, (request, tables));
            say(&json!({ "offered": request, "params": params.to_json() }));
        }
    }

    /// Paints the blocks over at once, so that whoever still reads them shows.
    fn take_back(&mut self, freed: FreedRequest) {
        let FreedRequest { request, why, .. } = freed;
        let (request, tables) = self.kept.remove(request.as_str()).expect("freed once");
        self.engine.retire(&tables);
        say(&json!({ "freed": request, "why": format!("{why:?}") }));
    }
}
