//! The page that the section stands in.

use std::path::Path;

use crate::error::Error;

/// Relative to the root of the repository.
pub const PATH: &str = "docs/BENCHMARKS.md";

const BEGIN: &str = "<!-- bench-peers: written by `cargo xtask bench-peers` -->";
const END: &str = "<!-- bench-peers ends -->";

/// The page with `section` between its marks, and the rest as it was. Where there are no marks,
/// the section comes last.
pub fn replace(path: &Path, page: &str, section: &str) -> Result<String, Error> {
    let marked = format!("{BEGIN}\n{}\n{END}", section.trim());
    let wrong = || Error::Marks { path: path.to_owned(), begin: BEGIN, end: END };
    match (page.split_once(BEGIN), page.contains(END)) {
        (None, false) => Ok(format!("{}\n\n{marked}\n", page.trim_end())),
        (Some((before, rest)), true) => {
            let (_, after) = rest.split_once(END).ok_or_else(wrong)?;
            Ok(format!("{before}{marked}{after}"))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(page: &str, section: &str) -> Result<String, Error> {
        replace(Path::new(PATH), page, section)
    }

    #[test]
    fn the_first_section_comes_last() {
        let page = of("# Page\n\ntext\n", "## New\n").unwrap();
        assert_eq!(page, format!("# Page\n\ntext\n\n{BEGIN}\n## New\n{END}\n"));
    }

    #[test]
    fn a_section_takes_the_place_of_the_last_one_and_of_nothing_else() {
        let page = format!("# Page\n\n{BEGIN}\n## Old\nlong\n{END}\n\n## Other\n");
        let expected = format!("# Page\n\n{BEGIN}\n## New\n{END}\n\n## Other\n");
        assert_eq!(of(&page, "## New\n").unwrap(), expected);
        assert_eq!(of(&expected, "## New\n").unwrap(), expected);
    }

    #[test]
    fn a_page_with_half_of_the_marks_is_left_alone() {
        for page in [format!("a\n{BEGIN}\n"), format!("{END}\nb"), format!("{END}\n{BEGIN}\n")] {
            assert!(matches!(of(&page, "new"), Err(Error::Marks { .. })), "{page}");
        }
    }
}
