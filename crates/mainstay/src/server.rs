//! Puts the kernel's parts together: the one place that knows them all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use advisor::AdvisorDomain;
use bus::BusDomain;
use fleet::FleetDomain;
use kernel::blob::Blobs;
use kernel::driver::{self, Driver, Workers};
use kernel::http;
use kernel::identity::{self, Identity};
use kernel::outbound::{self, Outbound};
use kernel::schedule::ScheduleWorker;
use kernel::store::OnCommit;
use kernel::telemetry::{self, Metrics};
use kernel::{Ambient, App, AppState, Domain, Store, installation};

use streams::reporting::api::StreamsDomain;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Loaded};
use crate::error::{Error, Result};
use crate::local;
use crate::output::{program, quoted, say};
use crate::progress::with_progress;

/// How long the start waits for secrets of Vault.
const VAULT_WAIT: Duration = Duration::from_secs(10);

/// Runs a server until it is stopped.
pub async fn run(loaded: Loaded, mut domains: Vec<Box<dyn Domain>>) -> Result<()> {
    let config = &loaded.config;
    loaded.notes.iter().for_each(|note| say(note));
    domains.push(Box::new(FleetDomain::new(
        config.fleet.clone(),
        config.data_dir.clone(),
        config.database.is_empty(),
    )));
    domains.push(Box::new(StreamsDomain));
    domains.push(Box::new(AdvisorDomain { config: config.advisor.clone() }));
    // After those that bring renderers.
    domains.push(Box::new(BusDomain {
        config: config.bus.clone(),
        embedded: config.database.is_empty(),
        commands_days: config.retention.commands_days,
    }));
    let stop = CancellationToken::new();
    let stopping =
        || say("stopping: finishing requests and attempts in flight; press again to stop at once");
    tokio::select! {
        ended = compose(&loaded.config, &domains, stop.clone()) => ended,
        forced = signals(&stop, stopping, "interrupted work continues at the next start") => forced,
    }
}

/// Composition: each part is made from its section of the configuration and from the parts
/// before it, and all of them end when `stop` is cancelled.
async fn compose(
    config: &Config,
    domains: &[Box<dyn Domain>],
    stop: CancellationToken,
) -> Result<()> {
    // Flushes traces when dropped, after everything else.
    let _telemetry = telemetry::init(&config.telemetry)?;
    config.driver.check()?;
    let ambient = Ambient::system();
    let metrics = Arc::new(Metrics::new());
    let store = open_store(config, observe_commits(&metrics)).await?;
    let keys = local::key_files(config);
    installation::check_keys(store.as_ref(), &keys).await?;
    let outbound =
        Outbound::new(config.outbound.clone(), ambient.clone(), observe_calls(&metrics))?;
    outbound.use_vault(&config.vault)?;
    let listener = bind(config.listen)?;
    let url = local::public_url(config, listener.local_addr().unwrap_or(config.listen));
    let identity = Identity::start(
        config.identity.clone(),
        &config.data_dir,
        &url,
        ambient.clone(),
        &outbound,
    )?;
    let blobs = Blobs::open(&local::installation_key_file(config), ambient.clone())?;
    let app = App::new(AppState {
        store: store.clone(),
        ambient,
        identity,
        outbound,
        metrics,
        blobs,
        url,
    });
    let tasks = TaskTracker::new();
    let served = work_and_serve(config, app, domains, listener, &tasks, &stop).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    if let Err(error) = store.close().await {
        say(&format!("closing the store failed, nothing is lost: {error}"));
    }
    served
}

/// Everything that runs until `stop`. Remaining `tasks` end soon after.
async fn work_and_serve(
    config: &Config,
    app: App,
    domains: &[Box<dyn Domain>],
    listener: TcpListener,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<()> {
    let (mut routes, mut workers) = (identity::routes(), Workers::new());
    let mut kinds = domains.iter().flat_map(|domain| domain.kinds());
    kinds.try_for_each(|kind| app.kinds().add(kind))?;
    for domain in domains {
        match stop.run_until_cancelled(domain.start(&app, tasks, stop)).await {
            Some(started) => {
                let started = started?;
                routes = routes.merge(started.routes);
                workers.extend(started.workers);
            }
            None => return Ok(()),
        }
    }
    // Without Vault the server starts all the same, and what needs its secrets is unavailable.
    stop.run_until_cancelled(app.outbound.read_secrets(VAULT_WAIT)).await;
    let checked = app.outbound.clone();
    app.checks().add_source(Arc::new(move || checked.secret_checks()));
    let (secrets, secrets_stop) = (app.outbound.clone(), stop.clone());
    tasks.spawn(async move { secrets.keep_secrets(secrets_stop).await });
    // All keys are there by now: those that were missing have been created.
    let keys = local::key_files(config);
    installation::record_keys(app.store.as_ref(), &app.ambient, &keys).await?;
    workers.push(Arc::new(ScheduleWorker::new(&app)));
    routes.register_commands(&app)?;
    start_driver(config, &app, workers, tasks, stop);
    let (keys, keys_stop) = (app.clone(), stop.clone());
    tasks.spawn(async move { keys.identity.keep_keys_fresh(keys_stop).await });
    let (sessions, name, sessions_stop) = (app.clone(), app.ambient.id(), stop.clone());
    tasks.spawn(async move {
        sessions.identity.keep_sessions(sessions.store.as_ref(), &name, sessions_stop).await;
    });

    local::write_address(config, &app.url)?;
    app.metrics.set_started();
    say(&greeting(config, &app.store.describe(), &app.url));
    Ok(http::serve(app, routes, listener, config.http.clone(), stop.clone()).await?)
}

/// The workers, and the retention task.
fn start_driver(
    config: &Config,
    app: &App,
    workers: Workers,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let name = app.ambient.id();
    let driver = Driver {
        name: name.clone(),
        store: app.store.clone(),
        ambient: app.ambient.clone(),
        workers,
        config: config.driver.clone(),
        observe: observe_attempts(&app.metrics),
    };
    tasks.spawn(driver.run(stop.clone()));
    let (app, retention, stop) = (app.clone(), config.retention.clone(), stop.clone());
    tasks.spawn(async move {
        driver::run_retention(app.store.as_ref(), &app.ambient, &name, &retention, stop).await;
    });
}

/// Opens the configured store and migrates its tables.
pub async fn open_store(config: &Config, on_commit: OnCommit) -> Result<Arc<dyn Store>> {
    local::make_data_dir(&config.data_dir)?;
    let database = config.database.url()?;
    let (dir, clock) = (&config.data_dir, Ambient::system());
    let opened = kernel::store::open(database.as_deref(), dir, config.audit, clock, on_commit);
    Ok(with_progress("opening the store", opened).await?)
}

fn bind(listen: SocketAddr) -> Result<TcpListener> {
    kernel::http::listen(listen).map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            let why =
                format!("{listen} is in use by another program; choose another with --listen");
            kernel::Error::Conflict(why).into()
        }
        _ => Error::file(format!("listen: {listen} cannot be listened on"), e),
    })
}

fn observe_attempts(metrics: &Arc<Metrics>) -> driver::Observe {
    let metrics = metrics.clone();
    Arc::new(move |kind, end, took, late| {
        metrics.attempt(kind, end.label(), took.as_secs_f64());
        metrics.wake(late.as_secs_f64());
    })
}

fn observe_calls(metrics: &Arc<Metrics>) -> outbound::Observe {
    let metrics = metrics.clone();
    Arc::new(move |call| {
        let outcome = call.failure.map_or("ok", |delivery| delivery.label());
        metrics.outbound(call.system, call.operation, outcome, call.took.as_secs_f64());
        metrics.breaker(call.system, call.breaker);
    })
}

fn observe_commits(metrics: &Arc<Metrics>) -> OnCommit {
    let metrics = metrics.clone();
    Arc::new(move |changes, took| metrics.commit(changes, took.as_secs_f64()))
}

/// What to try after the first start. The lines can be pasted.
fn greeting(config: &Config, store: &str, url: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let me = program();
    let data_dir = config.data_dir.display();
    let mut here = format!("--data-dir {}", quoted(&config.data_dir.to_string_lossy()));
    if let Some(file) = &config.identity.signing_key_file {
        let file = quoted(&file.to_string_lossy());
        here.push_str(&format!(" --set identity.signing_key_file={file}"));
    }
    let (login, token) = match config.identity.issuers.first() {
        Some(issuer) if !config.identity.builtin() => {
            (format!("login --server {url} --issuer {}", quoted(&issuer.url)), "$TOKEN".into())
        }
        _ => (format!("login --local {here}"), format!("$({me} token {here})")),
    };
    // With the default directory, clients on this machine need not sign in.
    let usual = crate::local::found(url).is_some();
    let sign_in = if usual {
        String::new()
    } else {
        format!(
            "\
Sign in once, in another terminal; after that no command asks for a token:
  {me} {login}

"
        )
    };
    format!(
        "\
Mainstay {version} listens on {url}
  data   {data_dir}
  store  {store}
  docs   {url}/api/v1/doc

{sign_in}Try, in another terminal:
  {me} kafka create --name demo --wait    a Kafka on this machine
  {me} kafka describe demo                its progress
  {me} events --follow                    what happens, as it happens
  {me} work                               what is being worked on, and what is stuck
  curl -H \"authorization: Bearer {token}\" {url}/api/kafkas_mgmt/v1/kafkas

Ctrl-C stops it when requests and attempts in flight are done; twice, at once. Instances keep running, and are
taken over at the next start."
    )
}

/// The first signal requests a graceful stop, the second forces it. Never returns otherwise.
pub async fn signals(stop: &CancellationToken, asked: impl FnOnce(), at_once: &str) -> Result<()> {
    let failed = |e| Error::file("signals cannot be received", e);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    asked();
    stop.cancel();
    next().await;
    Err(Error::TimedOut(format!("stopped at once: {at_once}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kernel::Running;
    use kernel::kind::KindInfo;

    use super::*;

    /// Writes down what it is asked, and stops the server as soon as it is to be served.
    struct Witness {
        said: Arc<Mutex<Vec<String>>>,
        stop: CancellationToken,
        fails: bool,
    }

    impl Witness {
        fn say(&self, what: String) {
            self.said.lock().unwrap().push(what);
        }
    }

    #[async_trait::async_trait]
    impl Domain for Witness {
        fn name(&self) -> &'static str {
            "witness"
        }

        async fn start(
            &self,
            app: &App,
            tasks: &TaskTracker,
            stop: &CancellationToken,
        ) -> kernel::Result<Running> {
            self.say(format!("start at {}", app.url));
            let (said, stop) = (self.said.clone(), stop.clone());
            tasks.spawn(async move {
                stop.cancelled().await;
                said.lock().unwrap().push("its task ends".into());
            });
            if self.fails {
                return Err(kernel::Error::invalid("witness", "saw nothing"));
            }
            self.stop.cancel();
            Ok(Running::default())
        }

        fn kinds(&self) -> Vec<KindInfo> {
            Vec::new()
        }
    }

    async fn witnessed(fails: bool) -> (Result<()>, Vec<String>) {
        kernel::outbound::install_tls();
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            ..Config::default()
        };
        config.http.public_url = Some("https://mainstay.example/".parse().unwrap());
        let (stop, said) = (CancellationToken::new(), Arc::default());
        let witness = Witness { said: Arc::clone(&said), stop: stop.clone(), fails };
        let domains: [Box<dyn Domain>; 1] = [Box::new(witness)];
        let ended = compose(&config, &domains, stop).await;
        let said = said.lock().unwrap().clone();
        (ended, said)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_domain_starts_before_all_else_is_asked_of_it_and_its_tasks_end_with_the_server() {
        let start = "start at https://mainstay.example";
        let (ended, said) = witnessed(false).await;
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!(said, [start, "its task ends"]);
        let (ended, said) = witnessed(true).await;
        assert!(ended.is_err());
        assert_eq!(said, [start, "its task ends"]);
    }
}
