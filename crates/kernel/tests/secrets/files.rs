//! A secret in a file, however the file is replaced.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use kernel::Error;
use kernel::secret::SecretSource;

use crate::{Kept, assert_nothing_leaked, becomes, eventually, log};

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_file_is_read_again_when_it_is_written_renamed_over_or_a_link_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    write(&file, "hunter2-first\n");
    let kept = Kept::new().start();
    let mut secret = kept.outbound.secret("a.token", &SecretSource::File(file.clone())).unwrap();
    assert_eq!(secret.current().unwrap().expose(), "hunter2-first");

    write(&file, "hunter2-other");
    secret.changed().await;
    assert_eq!(secret.current().unwrap().expose(), "hunter2-other");

    let next = dir.path().join("token.new");
    write(&next, "hunter2-named");
    std::fs::rename(&next, &file).unwrap();
    becomes(&secret, "hunter2-named").await;
    assert_nothing_leaked();
}

/// `token` -> `..data/token`, `..data` -> a directory of the version, as the kubelet mounts secrets.
#[tokio::test]
async fn a_secret_that_kubernetes_mounts_is_followed_through_its_links() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let version = |name: &str, text: &str| {
        std::fs::create_dir(place(name)).unwrap();
        write(&place(name).join("token"), text);
    };
    version("..v1", "hunter2-v1");
    symlink("..v1", place("..data")).unwrap();
    symlink("..data/token", place("token")).unwrap();
    let kept = Kept::new().start();
    let secret = kept.outbound.secret("a.token", &SecretSource::File(place("token"))).unwrap();
    for (n, text) in [(2, "hunter2-v2"), (3, "hunter2-v3")] {
        version(&format!("..v{n}"), text);
        symlink(format!("..v{n}"), place("..data_tmp")).unwrap();
        std::fs::rename(place("..data_tmp"), place("..data")).unwrap();
        becomes(&secret, text).await;
    }
    assert_nothing_leaked();
}

#[tokio::test]
async fn a_file_that_is_empty_gone_or_binary_leaves_the_last_value_and_is_logged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kept-token");
    write(&file, "hunter2-kept");
    let kept = Kept::new().start();
    let source = SecretSource::File(file.clone());
    let secret = kept.outbound.secret("a.kept", &source).unwrap();
    let breakages: [(&dyn Fn(), &str); 3] = [
        (&|| write(&file, ""), "kept-token is empty"),
        (&|| std::fs::write(&file, b"hunter2\xff").unwrap(), "kept-token is not UTF-8"),
        (&|| std::fs::remove_file(&file).unwrap(), "kept-token cannot be read: No such file"),
    ];
    for (break_it, said) in breakages {
        break_it();
        eventually(said, async || log().contains(said)).await;
        assert_eq!(secret.current().unwrap().expose(), "hunter2-kept");
    }
    write(&file, "hunter2-back");
    becomes(&secret, "hunter2-back").await;
    assert_nothing_leaked();
}

#[tokio::test]
async fn at_start_a_secret_that_cannot_be_read_is_an_error_that_names_the_setting() {
    let kept = Kept::new();
    let gone = SecretSource::File("/nonexistent/token".into());
    let error = kept.outbound.secret("fleet.ams.token", &gone).err().unwrap().to_string();
    assert!(error.starts_with("fleet.ams.token: the file /nonexistent/token cannot"), "{error}");
    let unset = SecretSource::Env("MAINSTAY_TEST_UNSET".into());
    let error = kept.outbound.secret("fleet.ams.token", &unset).err().unwrap();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let vault = SecretSource::Vault("kv/data/a#b".to_owned().try_into().unwrap());
    let error = kept.outbound.secret("fleet.ams.token", &vault).err().unwrap().to_string();
    assert!(error.contains("fleet.ams.token") && error.contains("vault.address"), "{error}");
}

#[tokio::test]
async fn a_file_that_everyone_can_read_is_used_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("public-token");
    write(&file, "hunter2-public");
    let kept = Kept::new();
    let source = SecretSource::File(file.clone());
    let warning =
        || log().lines().any(|line| line.contains("WARN") && line.contains("public-token"));
    kept.outbound.secret("a.public", &source).unwrap();
    assert!(!warning());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    kept.outbound.secret("a.public", &source).unwrap();
    assert!(warning());
}
