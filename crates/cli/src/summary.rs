//! What many hand-offs add up to.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::{Code, Failure};
use crate::output;
use crate::pair::{Account, Accounts, Figures, Served, Ways};

/// Counts up while requests are handed over.
pub(crate) struct Tally {
    requests: u64,
    bytes: u64,
    reading: Duration,
    ways: Ways,
    /// Hand-off latencies in microseconds.
    latencies: Histogram<u64>,
}

/// What is told at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// What the same requests would move with every layer as full attention.
    pub(crate) full_attention_bytes: u64,
    /// Bytes over the time that was spent on moving them.
    pub(crate) gigabytes_per_second: f64,
    pub(crate) latency_median_ms: f64,
    pub(crate) latency_p99_ms: f64,
    /// Pairs of ranks by what moved their blocks.
    pub(crate) ways: Ways,
    pub(crate) accounts: Accounts,
}

impl Tally {
    pub(crate) fn new() -> Result<Self, Failure> {
        // An hour in microseconds, to three digits.
        let latencies = Histogram::new_with_max(3_600_000_000, 3)
            .map_err(|why| Failure::new(Code::Failed, why))?;
        let (reading, ways) = (Duration::ZERO, Ways::default());
        Ok(Self { requests: 0, bytes: 0, reading, ways, latencies })
    }

    pub(crate) fn add(&mut self, figures: &Figures) {
        self.requests += 1;
        self.bytes += figures.bytes;
        self.reading += figures.reading;
        self.ways = self.ways.or(figures.ways);
        let micros = u64::try_from(figures.latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros.max(1));
    }

    /// Time that went to planning, reading and commit; where requests overlap, it counts twice.
    pub(crate) fn reading(&self) -> Duration {
        self.reading
    }

    /// Sums up, the bytes having been moved in `time`.
    pub(crate) fn finish(
        &self,
        time: Duration,
        full_attention_bytes: u64,
        accounts: Accounts,
    ) -> Summary {
        Summary {
            requests: self.requests,
            bytes: self.bytes,
            full_attention_bytes,
            gigabytes_per_second: per_second(self.bytes, time) / 1e9,
            latency_median_ms: self.milliseconds(0.5),
            latency_p99_ms: self.milliseconds(0.99),
            ways: self.ways,
            accounts,
        }
    }

    fn milliseconds(&self, quantile: f64) -> f64 {
        Duration::from_micros(self.latencies.value_at_quantile(quantile)).as_secs_f64() * 1e3
    }
}

/// Bytes per second.
#[allow(clippy::cast_precision_loss, reason = "a rate is shown with two decimals")]
fn per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 / time.as_secs_f64() }
}

impl Summary {
    /// As text; `rate_of` says over which time the rate is.
    pub(crate) fn print(&self, rate_of: &str) {
        let Accounts { prefill, decode } = &self.accounts;
        let rows = [
            ("handed over", self.handed_over()),
            ("moved", output::bytes(self.bytes)),
            ("read by", self.ways.to_string()),
            ("saved", self.saved()),
            ("rate", format!("{:.2} GB/s {rate_of}", self.gigabytes_per_second)),
            ("hand-off latency", self.latency()),
            left_at_prefill(prefill),
            (decode.of("left at the decode worker", "left at all decode ranks"), left(decode)),
            ("peak resident memory", format!("prefill {}, decode {}", peak(prefill), peak(decode))),
        ];
        print(rows);
    }

    fn handed_over(&self) -> String {
        format!("{} requests, every byte checked", output::count(self.requests))
    }

    fn saved(&self) -> String {
        let saved = self.full_attention_bytes.saturating_sub(self.bytes);
        format!(
            "{} ({}) against every layer as full attention",
            output::bytes(saved),
            output::percent(saved, self.full_attention_bytes)
        )
    }

    fn latency(&self) -> String {
        format!("median {:.2} ms, p99 {:.2} ms", self.latency_median_ms, self.latency_p99_ms)
    }

    /// Nothing may be left on either side.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check([&self.accounts.prefill, &self.accounts.decode])
    }
}

impl Served {
    /// As text.
    pub(crate) fn print(&self) {
        let account = &self.account;
        print([
            ("handed over", format!("{} requests", output::count(self.requests))),
            left_at_prefill(account),
            ("peak resident memory", peak(account)),
        ]);
    }

    /// Nothing may be left.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check([&self.account])
    }
}

fn print<const N: usize>(rows: [(&str, String); N]) {
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
    output::line(output::facts(rows).trim_end());
}

fn check<const N: usize>(accounts: [&Account; N]) -> Result<(), Failure> {
    if accounts.iter().all(|account| account.is_clean()) {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, "something is left that should have been given back"))
}

impl Account {
    /// What is said of one rank, or of several.
    fn of(&self, one: &'static str, several: &'static str) -> &'static str {
        if self.ranks == 1 { one } else { several }
    }
}

fn left_at_prefill(account: &Account) -> (&'static str, String) {
    (account.of("left at the prefill worker", "left at all prefill ranks"), left(account))
}

fn peak(account: &Account) -> String {
    output::bytes(account.peak_resident_bytes) + account.of("", " at the largest rank")
}

fn left(account: &Account) -> String {
    format!(
        "{} blocks, {} leases, {} claims, {} receives",
        account.leaked_blocks, account.leases, account.claims, account.receives
    )
}
