//! Secrets, and the files that they are read from.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use transport::Class;
use transport::session::{Secret, SecretError};

const LINE: &[u8] = b"0123456789abcdef";

fn message(made: Result<Secret, SecretError>) -> String {
    let why = made.unwrap_err();
    assert_eq!(why.class(), Class::Config);
    why.to_string()
}

fn written(folder: &Path, bytes: &[u8], mode: u32) -> Result<Secret, SecretError> {
    let path = folder.join("secret");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    Secret::from_file(&path)
}

#[test]
fn a_secret_is_long_enough_to_be_one_and_no_longer() {
    let short = "a secret of 15 bytes is too short, 16 are the least: make one with \
                 `head -c 32 /dev/urandom | base64 > FILE`";
    assert_eq!(message(Secret::new(&LINE[1..])), short);
    // The end of the line is none of it.
    assert_eq!(message(Secret::new(b"123456789abcdef\r\n")), short);
    assert!(Secret::new(LINE).is_ok());
    assert!(Secret::new(&[7; 4096]).is_ok());
    let long = "a secret of more than 4096 bytes is too long: make one with \
                `head -c 32 /dev/urandom | base64 > FILE`";
    assert_eq!(message(Secret::new(&[7; 4097])), long);
}

#[test]
fn a_secret_is_never_printed() {
    let secret = Secret::new(LINE).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret { .. }");
    assert_eq!(format!("{secret:#?}"), "Secret { .. }");
}

#[test]
fn a_file_of_ones_own_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o400, 0o644] {
        written(folder.path(), LINE, mode).unwrap();
        fs::remove_file(folder.path().join("secret")).unwrap();
    }
    // The largest with the end of its line, and one more byte.
    let largest = [&[7; 4096][..], b"\r\n"].concat();
    written(folder.path(), &largest, 0o600).unwrap();
    let larger = [&[7; 4097][..], b"\r\n"].concat();
    assert!(matches!(written(folder.path(), &larger, 0o600), Err(SecretError::Long)));
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    for (mode, name) in [(0o620, "620"), (0o602, "602"), (0o666, "666")] {
        let expected = format!(
            "others may write the secret {} (mode {name}): take that from them with \
             `chmod go-rwx FILE`",
            path.display()
        );
        assert_eq!(message(written(folder.path(), LINE, mode)), expected);
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let refused = message(Secret::from_file(folder.path()));
    assert_eq!(refused, format!("the secret {} is not a file", folder.path().display()));

    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let asked = Instant::now();
    let refused = message(Secret::from_file(&pipe));
    assert_eq!(refused, format!("the secret {} is not a file", pipe.display()));
    assert!(asked.elapsed() < Duration::from_secs(5));

    let nothing = folder.path().join("nothing");
    let refused = message(Secret::from_file(&nothing));
    let expected = format!("cannot read the secret {}: ", nothing.display());
    assert!(refused.starts_with(&expected), "{refused}");
}
