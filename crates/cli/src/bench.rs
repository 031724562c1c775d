//! `kvferry bench`: every provider that two processes have in common, beside plain limits.

mod args;
mod bytes;
mod case;
mod child;
mod figures;
mod page;
mod plain;
mod provided;
pub(crate) mod providers;
mod reader;
mod report;
mod rounds;
mod source;
mod usage;
mod words;
mod workload;

use std::net::SocketAddr;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

pub(crate) use args::{BenchArgs, SourceArgs};
pub(crate) use child::run as run_source;

use crate::failure::{Code, Failure};
use crate::output;
use crate::pair::Door;
use figures::Measured;
use providers::{PROVIDERS, Provider};
use reader::{Planned, Reader, Settings};
use workload::Workload;

pub(crate) async fn run(arguments: &BenchArgs, json: bool) -> Result<(), Failure> {
    match arguments.hosts.listen {
        Some(listen) => serve(arguments, listen, json).await,
        None => measure(arguments, json).await,
    }
}

/// Is a source for a reader on another host.
async fn serve(arguments: &BenchArgs, listen: SocketAddr, json: bool) -> Result<(), Failure> {
    if listen.ip().is_unspecified() {
        let why = format!("--listen {listen} is no address that a reader can be told");
        return Err(Failure::input(why)
            .hint("give the address of this host by which the other one reaches it"));
    }
    let config = arguments.trust.link(Some(listen)).config()?;
    let door = Door::open(&config).await?;
    let address = door.address();
    if json {
        output::line(json!({ "listening": address }));
    } else {
        output::line(format_args!("listening on {address}"));
    }
    let pools = source::serve(door, &config).await?;
    if json {
        output::line(json!({ "served": pools }));
    } else {
        output::line(format_args!("served {pools} workloads"));
    }
    Ok(())
}

/// Reads from a source, which is a child where no other was named.
async fn measure(arguments: &BenchArgs, json: bool) -> Result<(), Failure> {
    let what = &arguments.what;
    let workloads = what.workloads();
    let providers: Vec<&'static Provider> = PROVIDERS.iter().collect();
    let same_host = arguments.hosts.connect.is_none();
    let cases = check(&workloads, &what.case, &providers, same_host)?;
    let settings = Settings {
        case: &what.case,
        rounds: what.rounds(),
        streams: what.streams,
        seed: what.seed,
        json,
        same_host,
    };
    let bar = progress(cases * u64::from(settings.rounds + 1), json);
    let config = arguments.trust.link(None).config()?;
    let measured = match &arguments.hosts.connect {
        Some(address) => {
            Reader::connect(address, &config, settings).await?.run(&workloads, &bar).await?
        }
        None => {
            let source = child::Source::start(&arguments.trust).await?;
            let reader = Reader::connect(&source.address, &config, settings).await?;
            let measured = reader.run(&workloads, &bar).await?;
            source.end().await?;
            measured
        }
    };
    bar.finish_and_clear();
    tell(&measured, arguments, json)
}

/// Prints what was measured, writes the page, and fails where a byte was wrong.
fn tell(measured: &[Measured], arguments: &BenchArgs, json: bool) -> Result<(), Failure> {
    if json {
        for summary in measured.iter().flat_map(Measured::summaries) {
            output::line(json!({ "summary": summary }));
        }
    } else {
        report::print(measured);
    }
    if let Some(path) = &arguments.html {
        let page = page::draw(measured, arguments.what.rounds())?;
        let unwritten = |why| Failure::input(format!("{}: {why}", path.display()));
        std::fs::write(path, page).map_err(unwritten)?;
    }
    verdict(measured)
}

/// A byte that is wrong is worth more than any rate.
fn verdict(measured: &[Measured]) -> Result<(), Failure> {
    match measured.iter().map(Measured::wrong).sum() {
        0 => Ok(()),
        wrong => {
            let why = format!("bytes arrived wrong: {} of them", output::count(wrong));
            Err(Failure::new(Code::Bytes, why))
        }
    }
}

/// The number of cases of all workloads; a word that names none is refused before anything runs.
fn check(
    workloads: &[Workload],
    words: &[String],
    providers: &[&'static Provider],
    same_host: bool,
) -> Result<u64, Failure> {
    let planned = |workload| Planned::all(workload, providers, same_host);
    let all: Vec<Planned> = workloads.iter().flat_map(planned).collect();
    let nowhere = |word: &&String| !all.iter().any(|case| case.name().contains(word.as_str()));
    if let Some(word) = words.iter().find(nowhere) {
        let mut names: Vec<String> = all.iter().map(Planned::name).collect();
        names.sort();
        names.dedup();
        return Err(Failure::input(format!("--case {word}: no case has this in its name"))
            .hint(format!("the cases are: {}", names.join("; "))));
    }
    let count = |workload| selected(planned(workload), words).len() as u64;
    Ok(workloads.iter().map(count).sum())
}

/// The cases that one of the words is in, or that one of them names; all of them without words.
fn selected(planned: Vec<Planned>, words: &[String]) -> Vec<Planned> {
    let names: Vec<String> = planned.iter().map(Planned::name).collect();
    let meant = |case: &Planned| {
        let name = case.name();
        let of = |word: &String| name == *word || (!names.contains(word) && name.contains(word));
        words.is_empty() || words.iter().any(of)
    };
    planned.into_iter().filter(meant).collect()
}

/// A bar on standard error, where that is a terminal and nobody asked for JSON.
fn progress(rounds: u64, json: bool) -> ProgressBar {
    let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(rounds), target);
    let style = ProgressStyle::with_template(
        "{spinner} {bar:40.cyan/blue} {pos}/{len} rounds, {msg}, {eta} to go",
    );
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::workload::Workloads;
    use super::*;

    fn names(workload: &str, words: &[&str]) -> Vec<String> {
        let workload = workload.parse::<Workloads>().unwrap().0.remove(0);
        let providers: Vec<&'static Provider> = PROVIDERS.iter().collect();
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let planned = selected(Planned::all(&workload, &providers, true), &words);
        planned.iter().map(Planned::name).collect()
    }

    #[test]
    fn a_byte_that_is_wrong_is_a_failure() {
        let of = |seconds: &[f64]| {
            let case = ("tcp", case::Kind::Tcp, false, seconds);
            figures::tests::measured("W1", &[case])
        };
        assert!(verdict(&[of(&[1.0, 1.0])]).is_ok());
        // The second round of it has one.
        let failure = verdict(&[of(&[1.0, 1.0]), of(&[1.0, 1.0, 1.0])]).unwrap_err();
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (Code::Bytes, "bytes arrived wrong: 1 of them")
        );
    }

    #[test]
    fn a_word_is_looked_for_and_a_whole_name_is_that_case() {
        assert_eq!(names("W1", &[]).len(), 9 + PROVIDERS.len());
        assert_eq!(names("W4", &[]).len(), 3 + PROVIDERS.len());
        assert_eq!(names("W1", &["tcp"]), ["tcp"]);
        let two = ["plain tcp 2 streams", "plain tcp 2 streams low-water"];
        assert_eq!(names("W1", &["2 streams"]), two);
        assert_eq!(names("W1", &[two[0]]), two[..1]);
        assert_eq!(names("W1", &["memcpy", two[1]]), ["memcpy", two[1]]);
        assert_eq!(names("W4", &["2 streams"]), [] as [&str; 0]);
    }
}
