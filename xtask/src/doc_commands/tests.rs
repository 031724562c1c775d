use super::*;

fn shown(page: &str) -> Vec<(usize, String)> {
    commands(page).into_iter().map(|shown| (shown.line, shown.command)).collect()
}

fn at(line: usize, command: &str) -> (usize, String) {
    (line, command.to_owned())
}

#[test]
fn a_console_block_runs_what_stands_behind_the_prompt() {
    let page =
        "# Page\n```console\n$ one\nits output\n$ two \\\n    --more\nits output\n```\n$ no\n";
    assert_eq!(shown(page), [at(3, "one"), at(5, "two \\\n--more")]);
}

#[test]
fn an_sh_block_is_one_script() {
    for language in ["sh", "bash", "shell"] {
        assert_eq!(
            shown(&format!("```{language}\nfor a in b; do\n  c\ndone\n```\n")),
            [at(2, "for a in b; do\n  c\ndone")]
        );
    }
}

#[test]
fn other_blocks_and_quoted_blocks_are_not_run() {
    assert_eq!(shown("```rust\n$ no\n```\n```\n$ no\n```\n"), []);
    assert_eq!(
        shown("````md\n```console\n$ no\n```\n````\n```console\n$ yes\n```"),
        [at(7, "yes")]
    );
}

#[test]
fn a_block_in_a_list_is_a_block() {
    assert_eq!(shown("1. so:\n   ```console\n   $ yes\n   ```\n"), [at(3, "yes")]);
}

#[test]
fn marks_set_the_exit_code_or_the_reason() {
    let page = "```console exit=3\n$ a\n```\n```console ignore=needs a card\n$ b\n```\n";
    let found = commands(page);
    assert_eq!((&found[0].exit, found[0].ignored.as_deref()), (&Ok(3), None));
    assert_eq!((&found[1].exit, found[1].ignored.as_deref()), (&Ok(0), Some("needs a card")));
}

#[test]
fn an_exit_code_that_cannot_be_read_is_kept_as_it_stands() {
    for (mark, text) in [("exit=three", "three"), ("exit=", ""), ("exit=3, why", "3,")] {
        let page = format!("```console {mark}\n$ a\n```\n");
        assert_eq!(commands(&page)[0].exit, Err(text.to_owned()), "{mark}");
    }
}

#[test]
fn commands_that_lead_back_here_are_this_run() {
    for command in ["cargo xtask ci", "cargo xtask ci --only tidy", "./.ci/run"] {
        assert!(is_ourselves(command), "{command}");
    }
    for command in ["cargo xtask tidy", "cargo xtask city", "echo cargo xtask ci"] {
        assert!(!is_ourselves(command), "{command}");
    }
}

#[test]
fn pages_are_those_of_the_root_and_of_docs() {
    assert!(is_page("README.md") && is_page("docs/TESTING.md"));
    assert!(
        !is_page("crates/sim/README.md") && !is_page("docs/old/a.md") && !is_page("docs/a.txt")
    );
}

#[test]
fn a_command_holds_if_its_exit_code_is_the_promised_one() {
    let workspace =
        Workspace { root: std::env::temp_dir(), members: Vec::new(), foreign: Vec::new() };
    let shown = |command: &str, exit| Shown {
        line: 1,
        command: command.to_owned(),
        exit: Ok(exit),
        ignored: None,
    };
    let holds = |shown: Shown| holds(&workspace, "a.md", &shown).unwrap();
    assert!(holds(shown("true", 0)));
    assert!(holds(shown("exit 3", 3)));
    assert!(!holds(shown("exit 3", 0)));
    assert!(!holds(shown("true", 3)));
    assert!(!holds(shown("false | cat", 0)), "a pipe fails with its first command");
    assert!(holds(Shown { ignored: Some("why".to_owned()), ..shown("exit 3", 0) }));
    assert!(!holds(Shown { exit: Err("three".to_owned()), ..shown("true", 0) }));
}
