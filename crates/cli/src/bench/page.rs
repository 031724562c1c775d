//! What was measured, as a page that needs nothing else to be shown.

mod plots;

use std::fmt::Write;

use super::figures::Measured;
use super::report::{self, Table};
use crate::failure::{Code, Failure};
use crate::output;

const STYLE: &str = "\
body{font:15px/1.5 ui-sans-serif,system-ui,'DejaVu Sans',sans-serif;color:#1f2430;background:#fff;\
max-width:1080px;margin:2rem auto;padding:0 1.2rem}\
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.4rem 0 .6rem}\
p{margin:.3rem 0;color:#4b5563}.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:13px;margin:.6rem 0}\
th{color:#6b7280;font-weight:500;vertical-align:bottom;max-width:8em}\
th,td{padding:.25rem .7rem;text-align:right}td{white-space:nowrap}\
th:first-child,td:first-child{text-align:left;padding-left:0}\
td{border-top:1px solid #e7e9ee;font-variant-numeric:tabular-nums}\
svg{max-width:100%;height:auto}.key{font-size:13px}\
.key i{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em;border-radius:2px}";

/// Draws the page.
pub(super) fn draw(all: &[Measured], rounds: u32) -> Result<String, Failure> {
    let mut page = String::new();
    write(&mut page, all, rounds)
        .map_err(|why| Failure::new(Code::Failed, format!("the page cannot be drawn: {why}")))?;
    Ok(page)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn write(page: &mut String, all: &[Measured], rounds: u32) -> Drawn {
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>kvferry bench</title>\
         <style>{STYLE}</style></head><body>\n<h1>kvferry bench</h1>\n<p>{}</p>\n<p>{}</p>\n",
        escaped(&machine()),
        escaped(&format!(
            "Reads between two processes, {rounds} rounds after one that is not counted. In each \
             round every case has its turn, all targets are overwritten before and all bytes \
             compared after. Of limit: the speed beside that of the fastest plain limit of the \
             same kind."
        )),
    )?;
    let (flat, named): (Vec<_>, Vec<_>) = all.iter().partition(|one| report::is_flat(one));
    for measured in named {
        section(page, &report::title(measured), &report::table(measured))?;
        left_out(page, measured);
        page.push_str(&plots::cases(measured)?);
        page.push_str(&key(&plots::KINDS, "Bars are medians, dots single rounds."));
    }
    if !flat.is_empty() {
        section(page, report::SWEEP, &report::sweep(&flat))?;
        flat.iter().for_each(|measured| left_out(page, measured));
        let (plots, lines) = plots::sweep(&flat)?;
        page.push_str(&plots);
        page.push_str(&key(&lines, "Medians. Both axes are logarithmic."));
    }
    page.push_str("</body></html>\n");
    Ok(())
}

fn left_out(page: &mut String, measured: &Measured) {
    for note in report::notes(measured) {
        page.push_str(&format!("<p>{}</p>\n", escaped(&note)));
    }
}

fn section(page: &mut String, title: &str, table: &Table) -> std::fmt::Result {
    writeln!(page, "<h2>{}</h2>\n<div class=\"wide\"><table><tr>", escaped(title))?;
    for name in &table.header {
        write!(page, "<th>{}</th>", escaped(name))?;
    }
    for row in &table.rows {
        write!(page, "</tr>\n<tr>")?;
        for cell in row {
            write!(page, "<td>{}</td>", escaped(cell))?;
        }
    }
    writeln!(page, "</tr></table></div>")
}

/// What the colours of a plot mean, beside it and not over it.
fn key<N: AsRef<str>>(colours: &[(N, &str)], words: &str) -> String {
    let each = colours.iter().map(|(name, colour)| {
        format!("<i style=\"background:{colour}\"></i>{}", escaped(name.as_ref()))
    });
    format!("<p class=\"key\">{words}{}</p>\n", each.collect::<String>())
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model =
        model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned());
    let memory = crate::process::available_bytes().map(output::bytes).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "kvferry {} · reader: {cores} cores of {model} · {memory} of memory available · Linux {}",
        env!("CARGO_PKG_VERSION"),
        kernel.trim(),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::case::Kind;
    use super::super::figures::tests::measured;
    use super::*;

    #[test]
    fn a_page_is_one_file_with_a_plot_for_each_workload() {
        let cases: [(&str, Kind, bool, &[f64]); 3] = [
            ("memcpy", Kind::Memory, true, &[0.1, 0.02, 0.021]),
            ("plain tcp 1 stream", Kind::Tcp, true, &[0.1, 0.06, 0.07]),
            ("tcp", Kind::Tcp, false, &[0.1, 0.06, 0.065]),
        ];
        let all = ["W1", "W4", "4KiBx16", "64KiBx16"].map(|name| measured(name, &cases));
        let page = draw(&all, 2).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<table>").count(), 3);
        for text in
            ["165 of 400 blocks", "gigabytes a second", "plain tcp 1 stream", "microseconds"]
        {
            assert!(page.to_lowercase().contains(text), "{text}");
        }
        for elsewhere in ["src=", "href=", "@import", "url("] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn nothing_measured_is_a_page_all_the_same() {
        let none: [(&str, Kind, bool, &[f64]); 1] = [("tcp", Kind::Tcp, false, &[0.0])];
        for name in ["W1", "W4", "4KiBx16"] {
            assert!(draw(&[measured(name, &none)], 1).is_ok(), "{name}");
        }
        assert!(draw(&[], 1).is_ok());
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
