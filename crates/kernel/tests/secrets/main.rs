//! Secrets and certificates that change under a running process: files, real TLS, a real Vault.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod files;
mod leases;
mod tls;
mod vault;

use std::io::Write;
use std::sync::{Arc, Once};
use std::time::Duration;

use kernel::Ambient;
use kernel::outbound::{Config, Outbound};
use kernel::secret::SecretValue;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

/// An outbound side whose secrets are kept up to date until it is dropped.
struct Kept {
    outbound: Outbound,
    stop: CancellationToken,
    _guard: DropGuard,
}

fn outbound() -> Outbound {
    let config = Config { attempts_max: 1, ..Config::default() };
    Outbound::new(config, Ambient::system(), Arc::new(|_| ())).unwrap()
}

impl Kept {
    fn new() -> Kept {
        log();
        let stop = CancellationToken::new();
        Kept { outbound: outbound(), stop: stop.clone(), _guard: stop.drop_guard() }
    }

    fn start(self) -> Kept {
        let (outbound, stop) = (self.outbound.clone(), self.stop.clone());
        tokio::spawn(async move { outbound.keep_secrets(stop).await });
        self
    }
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a secret has this value.
async fn becomes(secret: &SecretValue, expected: &str) {
    eventually(expected, async || secret.current().is_ok_and(|secret| secret.expose() == expected))
        .await;
}

/// Everything that the kernel logs in this process, at every level.
fn log() -> String {
    static BEGIN: Once = Once::new();
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    struct Buffer;
    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            LOG.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    BEGIN.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::new("kernel=trace");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Buffer).init();
    });
    String::from_utf8(LOG.lock().clone()).unwrap()
}

/// Of a reading of Vault.
const LIMIT: Duration = Duration::from_secs(30);

/// No secret of a test begins otherwise, so that one search finds them all.
const SECRET: &str = "hunter2";

fn assert_nothing_leaked() {
    let log = log();
    let line = log.lines().find(|line| line.contains(SECRET));
    assert!(line.is_none(), "the log has a secret: {line:?}");
    assert!(log.contains("a secret") || log.contains("changed file"), "nothing was logged: {log}");
}
