//! A decode engine that inspects all it receives.

use std::sync::Arc;
use std::time::Duration;

use kvferry::kv_layout::BlockTable;
use kvferry::{Decode, FetchError, Offered};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Orders, say, state};
use crate::spec::{Part, Spec, describe, engine, prompt, resume, tokens};

struct D {
    engine: sim::Engine,
    decode: Decode,
}

pub async fn run(spec: &Spec, mut orders: Orders) {
    let engine = engine(Part::Decode);
    let decode = Decode::start(&spec.config(), &describe(&engine)).unwrap();
    let d = Arc::new(D { engine, decode });
    say(&json!({ "ready": null }));
    while let Some(order) = orders.recv().await {
        match order["fetch"].as_u64() {
            Some(request) => {
                let d = Arc::clone(&d);
                tokio::spawn(async move { say(&d.fetch(request, &order).await) });
            }
            None => say(&state(&d.engine, d.decode.counts().await)),
        }
    }
}

impl D {
    async fn fetch(&self, request: u64, order: &Value) -> Value {
        match self.claim_and_receive(request, order).await {
            Ok(fault) => json!({ "ended": request, "fault": fault }),
            Err(why) => {
                let class = match why {
                    FetchError::Released => "Released".to_owned(),
                    _ => format!("{:?}", why.class()),
                };
                json!({ "ended": request, "class": class, "why": why.to_string() })
            }
        }
    }

    /// Gives what is wrong with what was received, if anything is.
    async fn claim_and_receive(
        &self,
        request: u64,
        order: &Value,
    ) -> Result<Option<String>, FetchError> {
        let (name, params) = (format!("d-{request}"), &order["params"]);
        let offered = self.decode.claim(&name, params, prompt(request)).await?;
        say(&json!({ "claimed": request }));
        // As a request would wait that is claimed and not yet scheduled.
        tokio::time::sleep(Duration::from_millis(order["linger"].as_u64().unwrap())).await;
        let tables = self.allocate(request).await;
        let before = self.engine.inspect_unused(&tables);
        let received = receive(offered, &tables, resume(request), &order["patience"]).await;
        let fault = match &received {
            Ok(_) => before.and_then(|()| self.engine.inspect(request, resume(request), &tables)),
            Err(_) => before,
        };
        self.engine.retire(&tables);
        match fault {
            // Written before it was anybody's: as wrong as anything, whatever came after.
            Err(fault) => Ok(Some(fault.to_string())),
            Ok(()) => received.map(|_| None),
        }
    }

    async fn allocate(&self, request: u64) -> Vec<BlockTable> {
        loop {
            if let Some(tables) = self.engine.allocate(tokens(request), resume(request)) {
                return tables;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Receives, for so many microseconds where it has no more patience than that; from then on
/// nothing may touch the blocks.
async fn receive(
    offered: Offered,
    tables: &[BlockTable],
    resume_at: u64,
    patience: &Value,
) -> Result<u64, FetchError> {
    let Some(patience) = patience.as_u64() else { return offered.receive(tables, resume_at).await };
    let settled = offered.settled();
    match timeout(Duration::from_micros(patience), offered.receive(tables, resume_at)).await {
        Ok(received) => received,
        Err(_) => {
            settled.await;
            Err(FetchError::Released)
        }
    }
}
