//! Where the library may be.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// By this name the loader gives out a copy that the process has loaded already, for whatever
/// reason, and else looks where it always does (`LD_LIBRARY_PATH`, the system's folders).
const BY_NAME: &str = "libfabric.so.1";

/// Where Amazon's installer puts it, which the loader may not know.
const AMAZON: [&str; 2] = ["/opt/amazon/efa/lib", "/opt/amazon/efa/lib64"];

/// Where Cray's systems keep one folder a version.
const CRAY: &str = "/opt/cray/libfabric";

/// In the order in which they are tried. What the caller names is tried alone: another copy
/// in its place would be a surprise.
pub(crate) fn places(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let amazon = AMAZON.map(|folder| Path::new(folder).join(BY_NAME));
    [PathBuf::from(BY_NAME)].into_iter().chain(amazon).chain(versions(Path::new(CRAY))).collect()
}

/// One for each version that is installed there, the newest first.
fn versions(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path().join("lib64").join(BY_NAME)).collect();
    found.retain(|file| file.exists());
    found.sort_by_key(|file| Reverse(numbers(file)));
    found
}

fn numbers(file: &Path) -> Vec<u64> {
    let name = file.to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_tried_alone() {
        assert_eq!(places(Some(Path::new("/a/b"))), [PathBuf::from("/a/b")]);
        let places = places(None);
        let first: Vec<&str> = places.iter().take(3).filter_map(|place| place.to_str()).collect();
        let amazon = ["/opt/amazon/efa/lib/libfabric.so.1", "/opt/amazon/efa/lib64/libfabric.so.1"];
        assert_eq!(first, ["libfabric.so.1", amazon[0], amazon[1]]);
    }

    #[test]
    fn of_several_versions_the_newest_is_tried_first() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["1.9.0", "1.22.0", "1.15.2.0"] {
            let lib = folder.path().join(version).join("lib64");
            std::fs::create_dir_all(&lib).unwrap();
            std::fs::write(lib.join(BY_NAME), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("2.0.0")).unwrap();
        let order = versions(folder.path());
        let expected = ["1.22.0", "1.15.2.0", "1.9.0"];
        assert_eq!(order, expected.map(|v| folder.path().join(v).join("lib64").join(BY_NAME)));
        assert_eq!(versions(Path::new("/nowhere")), [] as [PathBuf; 0]);
    }
}
