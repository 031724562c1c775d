//! What an operator can trace: one span for each request at its decode engine.

use std::time::Instant;

use connector::Fetch;
use kv_layout::Plan;
use tracing::Span;
use tracing::field::Empty;

use crate::FetchError;

/// The span `handoff` of a request, from its claim to its end. Its fields are filled as they
/// become known, each time in microseconds since what came before:
///
/// - `claim_us` until the prefill engine has answered, `wait_us` until the engine has blocks,
///   `plan_us` until it is known what to read, `post_us` until the reads are with the agent,
///   `move_us` until the commit counts;
/// - `copies`, the descriptors that go to the peer, and the `bytes` that they move;
/// - `outcome`: `received`, `given up`, or what failed.
pub(crate) struct Trace {
    span: Span,
    since: Instant,
    over: bool,
}

impl Trace {
    pub(crate) fn begin(fetch: &Fetch) -> Self {
        let span = tracing::info_span!(
            "handoff",
            request = %fetch.claim.request,
            peer = %fetch.address.first,
            claim_us = Empty,
            wait_us = Empty,
            plan_us = Empty,
            post_us = Empty,
            move_us = Empty,
            copies = Empty,
            bytes = Empty,
            outcome = Empty,
        );
        Self { span, since: Instant::now(), over: false }
    }

    /// The prefill engine has offered its blocks.
    pub(crate) fn claimed(&mut self) {
        self.lap("claim_us");
    }

    /// This engine has blocks for the request.
    pub(crate) fn placed(&mut self) {
        self.lap("wait_us");
    }

    pub(crate) fn planned(&mut self, plan: &Plan) {
        self.lap("plan_us");
        self.span.record("copies", plan.reads.iter().map(Vec::len).sum::<usize>());
        self.span.record("bytes", plan.bytes());
    }

    /// The agent has it.
    pub(crate) fn posted(&mut self) {
        self.lap("post_us");
    }

    /// The request has ended, by a commit that counts or otherwise.
    pub(crate) fn ended(&mut self, why: Option<&FetchError>) {
        match why {
            None => {
                self.lap("move_us");
                self.span.record("outcome", "received");
            }
            Some(why) => {
                self.span.record("outcome", tracing::field::display(why));
            }
        }
        self.over = true;
        tracing::info!(parent: &self.span, "request ended");
    }

    fn lap(&mut self, field: &'static str) {
        let now = Instant::now();
        let micros = now.duration_since(self.since).as_micros();
        self.span.record(field, u64::try_from(micros).unwrap_or(u64::MAX));
        self.since = now;
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if !self.over {
            self.span.record("outcome", "given up");
            tracing::info!(parent: &self.span, "request ended");
        }
    }
}
