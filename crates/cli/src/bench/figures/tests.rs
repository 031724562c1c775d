use super::super::workload::Workloads;
use super::*;

/// W1 with one case a name, each with these times.
pub(in super::super) fn measured(name: &str, cases: &[(&str, Kind, bool, &[f64])]) -> Measured {
    let workload = name.parse::<Workloads>().unwrap().0.remove(0);
    let series = |&(case, kind, is_limit, seconds): &(&str, Kind, bool, &[f64])| Series {
        case: case.to_owned(),
        kind,
        is_limit,
        rounds: (0..).zip(seconds).map(|(at, &seconds)| round(case, name, at, seconds)).collect(),
        times: seconds[1..].to_vec(),
        posted: Vec::new(),
        over_pools: Both { reader: 3 << 20, source: 2 << 20 },
    };
    let series = cases.iter().map(series).collect();
    Measured { workload, series, skipped: Vec::new(), idle: Both { reader: 0.01, source: 0.0 } }
}

fn round(case: &str, workload: &str, round: u32, seconds: f64) -> Round {
    Round {
        case: case.to_owned(),
        workload: workload.to_owned(),
        round,
        transfers: 1,
        seconds,
        cpu_reader_s: seconds / 2.0,
        cpu_source_s: seconds / 4.0,
        bytes: 1650 * (128 << 10),
        wrong: u64::from(round == 2),
    }
}

#[test]
fn the_first_round_is_told_apart_and_not_counted() {
    let measured = measured("W1", &[("tcp", Kind::Tcp, false, &[9.0, 0.1, 0.3, 0.2, 0.25, 0.4])]);
    let summary = measured.summaries().remove(0);
    let told =
        [summary.times.first_s, summary.times.min_s, summary.times.median_s, summary.times.max_s];
    assert_eq!(told, [9.0, 0.1, 0.25, 0.4]);
    assert_eq!(summary.cpu_s, Both { reader: 0.125, source: 0.0625 });
    assert!((summary.gigabytes_per_second - 0.865).abs() < 0.001);
    assert_eq!((summary.wrong, summary.times.p99_s, summary.of_limit), (1, None, None));
    assert_eq!(measured.wrong(), 1);
}

#[test]
fn each_case_is_compared_with_the_fastest_limit_of_its_kind() {
    let measured = measured(
        "W1",
        &[
            ("memcpy", Kind::Memory, true, &[1.0, 0.01]),
            ("plain 1", Kind::Tcp, true, &[0.1, 0.4, 0.4, 0.4]),
            ("plain 2", Kind::Tcp, true, &[1.0, 0.2]),
            ("tcp", Kind::Tcp, false, &[1.0, 0.25]),
            ("shm", Kind::Memory, false, &[1.0, 0.02]),
        ],
    );
    let of_limit: Vec<_> =
        measured.summaries().into_iter().filter_map(|summary| summary.of_limit).collect();
    assert_eq!(of_limit, [1.0, 0.5, 1.0, 0.8, 0.5]);
}

#[test]
fn the_slowest_in_a_hundred() {
    let times: Vec<f64> = (0..=200).map(f64::from).collect();
    let summary = measured("W4", &[("tcp", Kind::Tcp, false, &times)]).summaries().remove(0);
    let p99 = summary.times.p99_s.unwrap();
    assert!((p99 - 198.01).abs() < 1e-9, "{p99}");
    assert_eq!(summary.times.median_s, 100.5, "between the two in the middle");
}

#[test]
fn nothing_measured_is_nothing() {
    let summary = measured("W4", &[("tcp", Kind::Tcp, false, &[1.0])]).summaries().remove(0);
    assert_eq!((summary.times.median_s, summary.gigabytes_per_second), (0.0, 0.0));
}
