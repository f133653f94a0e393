//! Wake-up: from the commit of a change to the start of its work, on an idle system.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use kernel::change::{Wake, Write};
use kernel::driver::{AnyWorker, Attempt, Config, Driver, Requeue};
use kernel::store::commit;
use kernel::store::postgres::Postgres;
use kernel::store::sqlite::Sqlite;
use kernel::{Ambient, Change, Key, Lane, Object, Store};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::figures::{Figures, Target, percentile};

const SAMPLES: usize = 300;

/// Tells when its work began.
struct Stopwatch(mpsc::Sender<Instant>);

#[async_trait]
impl AnyWorker for Stopwatch {
    fn kind(&self) -> &str {
        "widget"
    }

    async fn reconcile(&self, _: &Attempt) -> kernel::Result<(Change, Requeue)> {
        let _ = self.0.send(Instant::now()).await;
        Ok((Change::default(), Requeue::Never))
    }
}

/// Milliseconds from the acknowledged commit to the start, and for the commit itself.
async fn measure(store: Arc<dyn Store>) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (begun, mut starts) = mpsc::channel(16);
    let stop = CancellationToken::new();
    let ambient = Ambient::system();
    let driver = Driver {
        name: "bench".into(),
        store: store.clone(),
        ambient: ambient.clone(),
        workers: vec![Arc::new(Stopwatch(begun))],
        config: Config::default(),
        observe: Arc::new(|_, _, _, _| {}),
    };
    let running = tokio::spawn(driver.run(stop.clone()));
    let (mut waits, mut commits) = (Vec::new(), Vec::new());
    for n in 0..SAMPLES {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let now = ambient.now();
        let object = Object::new(
            Key::new("widget", &format!("w{n}")),
            "acme",
            "alice",
            "w",
            "accepted",
            now,
        );
        let change = Change {
            wakes: vec![Wake {
                key: object.key.clone(),
                org: "acme".into(),
                lane: Lane::Normal,
                due: now,
            }],
            write: Some(Write::create(object, "created")),
            ..Change::default()
        };
        let sent = Instant::now();
        commit(&*store, change, now).await?;
        let committed = Instant::now();
        let started = starts.recv().await.expect("the driver runs");
        waits.push(started.saturating_duration_since(committed).as_secs_f64() * 1000.0);
        commits.push((committed - sent).as_secs_f64() * 1000.0);
    }
    stop.cancel();
    running.await?;
    Ok((waits, commits))
}

fn report(
    figures: &mut Figures,
    what: &str,
    (mut waits, mut commits): (Vec<f64>, Vec<f64>),
    most: f64,
) {
    let bare = percentile(&mut commits, 0.99);
    let name = format!("wake-up p99, {what} (baseline: one commit's p99)");
    figures.add(&name, percentile(&mut waits, 0.99), "ms", Some(bare), Target::AtMost(most));
}

pub async fn sqlite(figures: &mut Figures) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let samples = measure(Arc::new(Sqlite::open(
        &dir.path().join("mainstay.db"),
        kernel::Ambient::system(),
        kernel::store::uncounted(),
    )?))
    .await?;
    report(figures, "SQLite", samples, 5.0);
    Ok(())
}

pub async fn postgres(figures: &mut Figures) -> anyhow::Result<()> {
    let Some(database) = testkit::postgres::Database::create().await else { return Ok(()) };
    let samples =
        measure(Arc::new(Postgres::open(database.url(), kernel::store::uncounted()).await?))
            .await?;
    report(figures, "PostgreSQL", samples, 20.0);
    Ok(())
}
