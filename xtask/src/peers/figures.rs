//! What the turns of all rounds add up to.

use super::lines::{self, Both, Line, Round, Summary};
use crate::error::Error;

/// Who speaks for kvferry and the plain limits beside it.
pub const OURS: &str = "kvferry";

/// The providers of kvferry; whatever else it measures is a plain limit.
const PROVIDERS: [&str; 2] = ["tcp", "shm"];

/// Everything that was said, by workload and case in the order in which they were first heard.
#[derive(Default)]
pub struct Results {
    series: Vec<Series>,
    raw: String,
}

/// One case with one workload.
pub struct Series {
    pub case: String,
    pub workload: String,
    rounds: Vec<Round>,
    /// One a pair of processes.
    summaries: Vec<Summary>,
    /// Why there are no figures.
    pub failed: Option<String>,
}

/// What is told of a case, times in seconds.
#[derive(Debug, PartialEq)]
pub struct Figures {
    /// Repetitions that count.
    pub count: usize,
    pub median: f64,
    pub min: f64,
    /// The median of those of each pair: its processes are not those of the others.
    pub p99: Option<f64>,
    pub cpu: Both<f64>,
    pub first: f64,
    pub posted: Option<f64>,
    /// Most of any pair, in bytes.
    pub over_pools: Both<u64>,
    pub idle: Option<Both<f64>>,
}

impl Results {
    /// Takes what one turn said. Bytes that arrived wrong are an error.
    pub fn hear(&mut self, speaker: &str, said: &[String]) -> Result<(), Error> {
        for text in said {
            let Some(line) = lines::parse(speaker, text)? else { continue };
            self.raw.push_str(text);
            self.raw.push('\n');
            match line {
                Line::Round(round) => {
                    let series = self.series(&round.workload, &name(speaker, &round.case));
                    series.must_be_right(round.wrong)?;
                    series.rounds.push(round);
                }
                Line::Summary { summary } => {
                    let series = self.series(&summary.workload, &name(speaker, &summary.case));
                    series.must_be_right(summary.wrong)?;
                    series.summaries.push(summary);
                }
                Line::Failed { failed } => self.fail(&failed.workload, &failed.case, failed.why),
            }
        }
        Ok(())
    }

    /// A case that cannot do this workload; the first reason stays.
    pub fn fail(&mut self, workload: &str, case: &str, why: String) {
        self.series(workload, case).failed.get_or_insert(why);
    }

    pub fn has_failed(&self, workload: &str, case: &str) -> bool {
        self.of(workload).any(|series| series.case == case && series.failed.is_some())
    }

    /// All cases of a workload.
    pub fn of(&self, workload: &str) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.workload == workload)
    }

    /// Every line as it was said.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// A case up to now, for whoever waits.
    pub fn shortly(&self, workload: &str, case: &str) -> String {
        let series = self.of(workload).find(|series| series.case == case);
        match (series.and_then(Series::figures), series.and_then(|series| series.failed.as_ref())) {
            (_, Some(why)) => format!("{case}: {why}"),
            (Some(figures), None) => format!("{case}: {:.3} ms", figures.median * 1e3),
            (None, None) => format!("{case}: it said nothing"),
        }
    }

    fn series(&mut self, workload: &str, case: &str) -> &mut Series {
        let is = |series: &Series| series.workload == workload && series.case == case;
        let at = self.series.iter().position(is).unwrap_or(self.series.len());
        if at == self.series.len() {
            self.series.push(Series::new(workload, case));
        }
        &mut self.series[at]
    }
}

/// What the tables call a case.
fn name(speaker: &str, case: &str) -> String {
    let is_provider = case.split([' ', ',']).next().is_some_and(|word| PROVIDERS.contains(&word));
    if speaker == OURS && is_provider { format!("{OURS} {case}") } else { case.to_owned() }
}

impl Series {
    fn new(workload: &str, case: &str) -> Self {
        let (case, workload) = (case.to_owned(), workload.to_owned());
        Self { case, workload, rounds: Vec::new(), summaries: Vec::new(), failed: None }
    }

    fn must_be_right(&self, bytes: u64) -> Result<(), Error> {
        let (case, workload) = (self.case.clone(), self.workload.clone());
        if bytes == 0 { Ok(()) } else { Err(Error::WrongBytes { case, workload, bytes }) }
    }

    /// None of a case that failed, or was not there.
    pub fn figures(&self) -> Option<Figures> {
        let counted: Vec<&Round> = self.rounds.iter().filter(|round| round.round > 0).collect();
        if self.failed.is_some() {
            return None;
        }
        let of = |figure: fn(&Round) -> f64| median(counted.iter().copied().map(figure));
        let each =
            |figure: fn(&Summary) -> Option<f64>| median(self.summaries.iter().filter_map(figure));
        let idle = |figure: fn(&Both<f64>) -> f64| {
            median(self.summaries.iter().filter_map(|s| s.idle_cores.as_ref()).map(figure))
        };
        let most = |figure: fn(&Both<u64>) -> u64| {
            let all = self.summaries.iter().map(|summary| &summary.resident_over_pools_bytes);
            all.map(figure).max()
        };
        Some(Figures {
            count: counted.len(),
            median: of(|round| round.seconds)?,
            min: self.summaries.iter().map(|summary| summary.min_s).min_by(f64::total_cmp)?,
            p99: each(|summary| summary.p99_s),
            cpu: both(of(|round| round.cpu_reader_s), of(|round| round.cpu_source_s))?,
            first: each(|summary| Some(summary.first_s))?,
            posted: each(|summary| summary.posted_s),
            over_pools: both(most(|over| over.reader), most(|over| over.source))?,
            idle: both(idle(|cores| cores.reader), idle(|cores| cores.source)),
        })
    }
}

fn both<T>(reader: Option<T>, source: Option<T>) -> Option<Both<T>> {
    Some(Both { reader: reader?, source: source? })
}

/// The one in the middle, or what lies between the two that are; none of none.
pub fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
pub mod tests {
    use super::super::lines::tests::{ROUND, SUMMARY};
    use super::*;

    /// What a pair says of one case: repetitions of these seconds, the first of which does not
    /// count.
    pub fn pair(case: &str, seconds: &[f64]) -> Vec<String> {
        let named = |line: &str| line.replace("\"tcp\"", &format!("\"{case}\"")).replace('\n', "");
        let round = |(at, seconds): (usize, &f64)| {
            let line = ROUND.replace("\"round\":1", &format!("\"round\":{at}"));
            named(&line.replace("0.0125", &seconds.to_string()))
        };
        let min = seconds[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let summary = SUMMARY.replace("\"min_s\":0.012", &format!("\"min_s\":{min}"));
        seconds.iter().enumerate().map(round).chain([named(&summary)]).collect()
    }

    fn only<'a>(results: &'a Results, case: &str) -> &'a Series {
        results.of("W3").find(|series| series.case == case).unwrap()
    }

    #[test]
    fn the_middle_of_an_odd_and_of_an_even_number() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0].into_iter()), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([9.0, 1.0, 2.0, 4.0].into_iter()), Some(3.0));
    }

    #[test]
    fn pairs_add_up_and_their_first_repetition_does_not_count() {
        let mut results = Results::default();
        results.hear("a", &pair("a", &[9.0, 0.5, 0.3])).unwrap();
        results.hear("a", &pair("a", &[9.0, 0.4, 0.1])).unwrap();
        let figures = only(&results, "a").figures().unwrap();
        assert_eq!((figures.count, figures.median, figures.min), (4, 0.35, 0.1));
        assert_eq!(figures.cpu, Both { reader: 0.009, source: 0.008 });
        assert_eq!((figures.first, figures.p99, figures.idle), (0.02, None, None));
        assert_eq!(results.raw().lines().count(), 8);
    }

    #[test]
    fn our_providers_bear_our_name_and_plain_limits_do_not() {
        let mut results = Results::default();
        for case in ["memcpy", "plain tcp 1 stream", "tcp", "shm", "shm, mapped"] {
            results.hear(OURS, &pair(case, &[1.0, 1.0])).unwrap();
        }
        let names: Vec<&str> = results.of("W3").map(|series| series.case.as_str()).collect();
        let ours = ["kvferry tcp", "kvferry shm", "kvferry shm, mapped"];
        assert_eq!(names[..2], ["memcpy", "plain tcp 1 stream"]);
        assert_eq!(names[2..], ours);
    }

    #[test]
    fn a_wrong_byte_ends_the_run() {
        let mut results = Results::default();
        let said = pair("a", &[1.0, 1.0]).remove(1).replace("wrong\":0", "wrong\":7");
        let error = results.hear("a", &[said]).unwrap_err();
        assert_eq!(error.to_string(), "a: 7 bytes of W3 arrived wrong");
    }

    #[test]
    fn a_case_that_fails_once_has_no_figures() {
        let mut results = Results::default();
        results.hear("a", &pair("a", &[1.0, 1.0])).unwrap();
        assert!(!results.has_failed("W3", "a"));
        let failed = r#"{"failed": {"case": "a", "workload": "W3", "why": "full"}}"#;
        results.hear("a", &[failed.to_owned()]).unwrap();
        results.fail("W3", "a", "late".to_owned());
        assert!(results.has_failed("W3", "a") && !results.has_failed("W2", "a"));
        assert_eq!(only(&results, "a").figures(), None);
        assert_eq!(results.shortly("W3", "a"), "a: full");
    }
}
