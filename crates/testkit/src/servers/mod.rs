//! The real servers of the tests. `testkit::postgres()` and the like give a test the shared one
//! that `cargo xtask test` started, and a corner of it that no other test uses; `private()` starts
//! one of the test's own, which it may kill, pause, fill and start again.

#[cfg(feature = "chromium")]
pub mod chromium;
pub mod consul;
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod keycloak;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod outbound;
pub mod postgres;
pub mod prometheus;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "route53")]
pub mod route53;
pub mod terraform;
pub mod vault;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use servers::{Cache, ConnectionInfo, DISK, Place, Run, find, variable};

/// A server: the shared one, or one of a test's own.
pub struct Instance {
    name: &'static str,
    connection_info: ConnectionInfo,
    private: Option<Private>,
}

struct Private {
    run: Arc<Run>,
    place: Arc<Place>,
}

impl Instance {
    /// `None` if it does not run and need not: the test is skipped, and xtask counts it.
    pub fn shared(name: &'static str) -> Option<Instance> {
        if let Some(connection_info) = ConnectionInfo::from_env(name) {
            return Some(Instance { name, connection_info, private: None });
        }
        let promised = std::env::var("MAINSTAY_TEST_SERVERS").unwrap_or_default();
        let variable = variable(name, "");
        assert!(
            !promised.split(',').any(|promised| promised == name),
            "{variable} is not set, but {name} is promised"
        );
        skip(name, &format!("{variable} is not set (cargo xtask servers up {name})"));
        None
    }

    /// Another one of the same kind for this test alone; gone when it is dropped.
    pub async fn private(&self, options: &[(&str, &str)]) -> Instance {
        let name = self.name;
        let options: BTreeMap<String, String> =
            options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let start = move || {
            let run = Run::inherited(&Cache::of_user()?)?;
            let place = run.place(find(name)?, false, options)?;
            // From here on it is stopped when dropped, also if it does not start.
            let private = Private { run: Arc::new(run), place: Arc::new(place) };
            let connection_info = private.place.start()?;
            Ok(Instance { name, connection_info, private: Some(private) })
        };
        blocking(start).await
    }

    /// What the server tells of itself; the empty name is its address.
    pub fn get(&self, name: &str) -> &str {
        self.connection_info.get(name).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn place(&self) -> Arc<Place> {
        let own = self.private.as_ref();
        own.unwrap_or_else(|| panic!("the shared {} is not this test's alone", self.name))
            .place
            .clone()
    }

    /// SIGKILL.
    pub async fn kill(&self) {
        let place = self.place();
        blocking(move || place.kill()).await;
    }

    /// As an operator would.
    pub async fn stop(&self) {
        let place = self.place();
        blocking(move || place.stop()).await;
    }

    /// Starts it again with its data, on the same ports, and waits until it answers.
    pub async fn start(&self) {
        let place = self.place();
        blocking(move || place.start()).await;
    }

    /// It stands still: connections stay open, and nothing answers.
    pub async fn pause(&self) {
        let place = self.place();
        blocking(move || place.signal("STOP")).await;
    }

    pub async fn resume(&self) {
        let place = self.place();
        blocking(move || place.signal("CONT")).await;
    }

    /// Leaves no room on its disk until the value is dropped. The instance must have been started
    /// with [`small_disk`].
    pub fn fill(&self) -> Full {
        let place = self.place();
        assert!(place.option(DISK).is_some(), "only a small disk can be filled");
        let path = place.dir.join("filler");
        let mut file = std::fs::File::create(&path).expect("there is room for a name");
        while file.write_all(&[0; 4096]).is_ok() {}
        Full { path }
    }
}

/// Says that this test is skipped, and why, so that xtask counts it.
fn skip(name: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Past the harness, which hides what a passing test prints.
    let _ = std::io::stderr().write_all(format!("{test}: skipped: {why}\n").as_bytes());
    if let Ok(path) = std::env::var("MAINSTAY_TEST_SKIPPED") {
        let file = std::fs::File::options().append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
    }
}

/// A part of `shared/` next to the project; `None` if it is missing: the test is skipped.
pub fn shared(part: &str) -> Option<PathBuf> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|dir| dir.join("shared").join(part)).find(|dir| dir.exists());
    if found.is_none() {
        skip("shared", &format!("shared/{part} is not next to the project"));
    }
    found
}

/// A package of someone else's that a test wants, in the cache of the servers: `fill` gets it once.
/// `None` if it cannot be had: the test is skipped. Where servers are promised, it fails.
pub fn package(
    name: &str,
    version: &str,
    fill: impl FnOnce(&std::path::Path) -> anyhow::Result<()>,
) -> Option<PathBuf> {
    let get = || {
        let cache = Cache::of_user()?;
        let dir = cache.dir(name, version);
        let _turn = cache.lock()?;
        if !dir.exists() {
            cache.put(name, version, fill)?;
        }
        Ok::<PathBuf, anyhow::Error>(dir)
    };
    match get() {
        Ok(dir) => Some(dir),
        Err(error) => {
            let promised = std::env::var("MAINSTAY_TEST_SERVERS").unwrap_or_default();
            assert!(promised.is_empty(), "{name} {version} cannot be had: {error:#}");
            skip(name, &format!("{name} {version} cannot be had: {error:#}"));
            None
        }
    }
}

/// The option for a disk of so many megabytes; `None`, and a line that says so, without root.
pub fn small_disk(megabytes: &'static str) -> Option<(&'static str, &'static str)> {
    let id = std::process::Command::new("id").arg("-u").output();
    let root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root {
        eprintln!("skipped: a small disk takes root's rights");
    }
    root.then_some((DISK, megabytes))
}

/// A disk without room.
pub struct Full {
    path: PathBuf,
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(error) = self.run.leave(&self.place) {
            eprintln!("{error:#}");
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> T {
    let done = tokio::task::spawn_blocking(work).await.expect("no panic");
    done.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Cleans up when a value is dropped: a test's own runtime may be on its way out.
fn at_the_end(work: impl Future<Output = ()> + Send + 'static) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work);
    };
    let _ = std::thread::spawn(run).join();
}

/// A name that no other test has, now or later: letters and digits, a letter first.
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs() % 100_000_000;
    format!("t{now}p{}n{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
