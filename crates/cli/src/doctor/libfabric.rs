//! RDMA, through libfabric.

use std::path::{Path, PathBuf};

use super::finding::Finding;
use crate::bench::providers::find;

const NAME: &str = "libfabric";

/// Where loaders look, and where vendors put theirs.
const FOLDERS: [&str; 8] = [
    "/usr/lib",
    "/usr/lib64",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/opt/amazon/efa/lib",
    "/opt/amazon/efa/lib64",
];

pub(super) fn look() -> Vec<Finding> {
    let mut findings = Vec::new();
    if find(NAME).is_none() {
        findings.push(Finding::not_in_this_build(NAME));
    }
    let files: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| names(Path::new(folder))).collect();
    findings.push(library(&files));
    let adapters = names(Path::new("/sys/class/infiniband"));
    findings.push(devices(&adapters));
    findings
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// From the paths of all libraries.
pub(super) fn library(files: &[PathBuf]) -> Finding {
    let versions = files.iter().filter_map(|path| {
        let version = path.file_name()?.to_str()?.strip_prefix("libfabric.so.")?;
        let numbers = version.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
        Some((numbers.ok()?, path))
    });
    match versions.max() {
        Some((version, path)) => {
            let version: Vec<String> = version.iter().map(u32::to_string).collect();
            Finding::ok(format!("libfabric.so.{} is at {}", version.join("."), path.display()))
        }
        None => Finding::missing(
            "libfabric is not installed",
            "install it: apt install libfabric1, dnf install libfabric, or the vendor's package",
        ),
    }
}

/// From the paths of all adapters.
pub(super) fn devices(adapters: &[PathBuf]) -> Finding {
    let mut names: Vec<_> = adapters.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => Finding::warn(
            "no RDMA adapter is here (/sys/class/infiniband has none)",
            "put one in and load its driver, or use tcp",
        ),
        names => Finding::ok(format!("RDMA adapters: {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_newest_of_all_libraries_is_told() {
        let files = ["/a/libfabric.so.1.9.2", "/b/libfabric.so.1.25.0", "/a/libfabric.so.1"];
        let found = library(&paths(&files));
        assert_eq!(found.what, "libfabric.so.1.25.0 is at /b/libfabric.so.1.25.0");
        for none in [&[][..], &["/a/libfabric.so", "/a/libfabric.so.x", "/a/libfabricx.so.1"]] {
            assert_eq!(library(&paths(none)).status, Status::Missing);
        }
    }

    #[test]
    fn adapters_by_name() {
        let found = devices(&paths(&["/sys/class/infiniband/mlx5_1", "/x/mlx5_0"]));
        assert_eq!(found.what, "RDMA adapters: mlx5_0, mlx5_1");
        assert_eq!(devices(&[]).status, Status::Warn);
    }
}
