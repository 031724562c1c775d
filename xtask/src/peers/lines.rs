//! The lines of `kvferry bench --json` and of `benches/peers`, which have one form.

use serde::Deserialize;

use crate::error::Error;

/// One line that is JSON.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Summary { summary: Summary },
    Failed { failed: Failed },
    Round(Round),
}

/// One repetition of one case; several of a single block.
#[derive(Clone, Debug, Deserialize)]
pub struct Round {
    pub case: String,
    pub workload: String,
    /// 0 is the first of its pair of processes and does not count.
    pub round: u32,
    pub seconds: f64,
    pub cpu_reader_s: f64,
    pub cpu_source_s: f64,
    pub wrong: u64,
}

/// What one pair of processes adds to its repetitions.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    pub case: String,
    pub workload: String,
    pub first_s: f64,
    pub min_s: f64,
    pub p99_s: Option<f64>,
    /// From block ids to a transfer that is on its way, where one call does not do both.
    pub posted_s: Option<f64>,
    pub resident_over_pools_bytes: Both<u64>,
    /// Where somebody looked.
    pub idle_cores: Option<Both<f64>>,
    pub wrong: u64,
}

/// The same figure of both processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Both<T> {
    pub reader: T,
    pub source: T,
}

/// A pair that moved nothing, or not all.
#[derive(Clone, Debug, Deserialize)]
pub struct Failed {
    pub case: String,
    pub workload: String,
    pub why: String,
}

/// Reads a line; none where it is not JSON, as the chatter of a native library is not.
pub fn parse(case: &str, line: &str) -> Result<Option<Line>, Error> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let unread = |source| Error::Line { case: case.to_owned(), line: line.to_owned(), source };
    serde_json::from_str(line).map(Some).map_err(unread)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// As `kvferry bench --json` prints them.
    pub const ROUND: &str = r#"{"case":"tcp","workload":"W3","round":1,"transfers":1,
        "seconds":0.0125,"cpu_reader_s":0.009,"cpu_source_s":0.008,"bytes":33554432,"wrong":0}"#;
    pub const SUMMARY: &str = r#"{"summary":{"case":"tcp","workload":"W3","first_s":0.02,
        "median_s":0.0125,"min_s":0.012,"max_s":0.013,"p99_s":null,"gigabytes_per_second":2.68,
        "of_limit":0.9,"cpu_s":{"reader":0.009,"source":0.008},
        "resident_over_pools_bytes":{"reader":4194304,"source":2097152},"wrong":0}}"#;

    #[test]
    fn a_round_a_summary_and_a_failure_are_told_apart() {
        let of = |line| parse("tcp", line).unwrap();
        assert!(matches!(of(ROUND), Some(Line::Round(round)) if round.round == 1));
        let Some(Line::Summary { summary }) = of(SUMMARY) else { panic!("no summary") };
        assert_eq!((summary.min_s, summary.p99_s, summary.idle_cores), (0.012, None, None));
        assert_eq!(summary.resident_over_pools_bytes, Both { reader: 4 << 20, source: 2 << 20 });
        let failed = r#"{"failed": {"case": "a", "workload": "W2", "why": "no"}}"#;
        assert!(matches!(of(failed), Some(Line::Failed { failed }) if failed.why == "no"));
    }

    #[test]
    fn what_a_peer_adds_is_read() {
        let more = r#""posted_s":0.007,"idle_cores":{"reader":0.5,"source":1.0},"wrong""#;
        let line = SUMMARY.replace("\"wrong\"", more);
        let Some(Line::Summary { summary }) = parse("peer", &line).unwrap() else {
            panic!("no summary")
        };
        assert_eq!(summary.posted_s, Some(0.007));
        assert_eq!(summary.idle_cores, Some(Both { reader: 0.5, source: 1.0 }));
    }

    #[test]
    fn chatter_is_passed_over_and_a_form_that_nobody_knows_is_not() {
        assert!(parse("peer", "[1698] UCX WARN no").unwrap().is_none());
        let error = parse("peer", r#"{"case":"peer","millis":3}"#).unwrap_err().to_string();
        assert!(error.starts_with("peer said what cannot be read: "), "{error}");
    }
}
