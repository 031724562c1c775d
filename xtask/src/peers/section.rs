//! The section of the page.

use super::cases::{CASES, Case};
use super::host::Host;
use super::table::Table;
use super::{REPETITIONS, Skipped};

/// All that is said.
pub struct Section<'a> {
    pub rounds: u32,
    pub host: Host,
    pub tables: Vec<Table>,
    pub skipped: &'a [Skipped],
}

const OPENING: &str = "\
## Beside other transfer engines

The same blocks, moved between two processes of one host by kvferry, by other engines, and by plain sockets and memory. Every case has its
turn in each round, with a fresh pair of processes; block ids are at random and no two that follow each other are neighbours, the same in
each region. Outside the clock, every target block is overwritten before each repetition and every byte compared after it.

```sh ignore=measures-for-minutes
cargo xtask bench-peers
```
";

const READING: &str = "\
- **×** is a median over that of kvferry in the same run: how many times as long it takes. `shm` copies from process to process, as `NIXL UCX
  default` does by `process_vm_readv`; the other engines' lines belong beside `tcp`.
- **min** is the fastest single transfer. **p99** is of single transfers of a pair, and of those of all pairs the median. **posted** is the
  time from block ids until the caller is free, where the engine has a call that does not wait; `NIXL UCX default` copies in that call. **first**
  is a pair's first transfer, with its connection, and does not count.
- **CPU** is that of the process, all threads, while blocks are moved. **MiB over pools** is the most that was resident beside the pools,
  reader + source; for an engine in Python, beside what Python and numpy took before the engine was loaded. kvferry's is that of one process
  which has all its providers and the plain cases open. **Idle cores** are those that a pair takes while nobody asks for anything; – where
  nobody looked.
- An engine's time begins with block ids in a list, and has the making of its descriptors in it. NIXL's reads carry a notification, as those
  of its connectors do.
- A repetition of W4 is 200 transfers for the engines and kvferry alike.
";

impl Section<'_> {
    pub fn text(&self) -> String {
        let tables: String = self.tables.iter().map(table).collect();
        let Host { machine, versions, date } = &self.host;
        let rounds = format!(
            "- {} rounds of {REPETITIONS} repetitions that count, after one that does not.\n",
            self.rounds
        );
        let run = format!("- Machine: {machine}.\n- Versions: {versions}, {date}.\n");
        format!("{OPENING}{tables}\n{READING}{rounds}{}{run}{}", self.settings(), self.skipped())
    }

    /// What was set for each engine that was measured.
    fn settings(&self) -> String {
        let measured = CASES.iter().filter(|case| self.skipped.iter().all(|s| s.peer != case.peer));
        let each = measured.map(setting).collect::<String>();
        if each.is_empty() { each } else { format!("- Settings:\n{each}") }
    }

    fn skipped(&self) -> String {
        let of = |skipped: &Skipped| format!("- {} was skipped: {}.\n", skipped.peer, skipped.why);
        self.skipped.iter().map(of).collect()
    }
}

fn table(table: &Table) -> String {
    let failed = table.failed.iter().map(|failed| format!("- {failed}.\n")).collect::<String>();
    let gap = if failed.is_empty() { "" } else { "\n" };
    format!("\n### {}\n\n{}{gap}{failed}", table.title, table.markdown())
}

fn setting(case: &Case) -> String {
    let variables = case.environment.iter().map(|(name, value)| format!("`{name}={value}`"));
    let arguments = case.arguments.iter().map(|argument| format!("`{argument}`"));
    let all: Vec<String> = variables.chain(arguments).collect();
    let all = if all.is_empty() { "none".to_owned() } else { all.join(" ") };
    format!("  - {}: {all}\n", case.name)
}

#[cfg(test)]
mod tests {
    use super::super::cases::Peer;
    use super::super::table::tests::table;
    use super::*;

    fn text(skipped: &[Skipped]) -> String {
        let host = Host {
            machine: "2 cores".to_owned(),
            versions: "kvferry 0.1.0".to_owned(),
            date: "1 May 2026".to_owned(),
        };
        Section { rounds: 3, host, tables: vec![table()], skipped }.text()
    }

    #[test]
    fn the_section_says_what_failed_and_where_it_ran() {
        let text = text(&[]);
        assert!(text.starts_with("## Beside other transfer engines\n"));
        for part in [
            "\n### W3: 128 of 1024 blocks of 4 KiB in each of 64 regions\n\n| case |",
            "\n\n- broken: its queue is full.\n",
            "- Machine: 2 cores.\n- Versions: kvferry 0.1.0, 1 May 2026.\n",
            "- Settings:\n  - NIXL UCX tcp: `UCX_NET_DEVICES=lo` `UCX_TLS=tcp`\n",
            "  - Mooncake tcp: none\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("skipped"));
    }

    #[test]
    fn a_peer_that_was_skipped_is_named_and_has_no_settings() {
        let why = "it cannot be installed".to_owned();
        let text = text(&[Skipped { peer: Peer::Mooncake, why }]);
        assert!(text.ends_with("- Mooncake was skipped: it cannot be installed.\n"));
        assert!(!text.contains("Mooncake tcp: none"));
    }
}
