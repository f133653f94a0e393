//! What one owner has started. Each run is a directory of records outside the checkout: a run
//! whose owner is gone, however it ended, is stopped by the next run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::{Cache, Place, Process, Server, find};

pub struct Run {
    cache: Cache,
    dir: PathBuf,
}

/// The run of `cargo xtask servers up`, which belongs to no process.
const KEPT: &str = "up";
const OWNER: &str = "owner";
const ENDING: &str = "place";
const USER: &str = "user";
/// Tells a child whose run it takes part in.
const VARIABLE: &str = "MAINSTAY_TEST_RUN";

impl Run {
    pub fn kept(cache: &Cache) -> Run {
        Run { cache: cache.clone(), dir: cache.root().join("run").join(KEPT) }
    }

    /// A run that ends with this process.
    pub fn owned(cache: &Cache) -> Result<Run> {
        let dir = cache.root().join("run").join(std::process::id().to_string());
        std::fs::create_dir_all(&dir).with_context(|| format!("{} is closed", dir.display()))?;
        std::fs::write(dir.join(OWNER), Process::current()?.to_string())?;
        Ok(Run { cache: cache.clone(), dir })
    }

    /// The run of the parent process, or a new one.
    pub fn inherited(cache: &Cache) -> Result<Run> {
        match std::env::var_os(VARIABLE) {
            Some(dir) => Ok(Run { cache: cache.clone(), dir: dir.into() }),
            None => Run::owned(cache),
        }
    }

    pub fn at(cache: &Cache, dir: &Path) -> Run {
        Run { cache: cache.clone(), dir: dir.to_owned() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The environment of a child, so that what it starts ends with this run.
    pub fn env(&self) -> (String, String) {
        (VARIABLE.into(), self.dir.display().to_string())
    }

    /// A new place for a server, on record before anything is in it.
    pub fn place(
        &self,
        server: &'static Server,
        durable: bool,
        options: BTreeMap<String, String>,
    ) -> Result<Place> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{number}", server.name, std::process::id());
        let dir = std::env::temp_dir().join(format!("mainstay-{id}"));
        std::fs::create_dir_all(&self.dir)?;
        let record = self.dir.join(&id).with_extension(ENDING);
        std::fs::write(record, format!("{}\n{}", server.name, dir.display()))?;
        // What an earlier process of this id may have left.
        remove(&dir)?;
        std::fs::create_dir_all(&dir)?;
        if let Some(megabytes) = options.get(DISK) {
            mount(&dir, megabytes)?;
        }
        Ok(Place { server, cache: self.cache.clone(), dir, durable, options })
    }

    pub fn places(&self) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for record in self.files(ENDING) {
            let text = std::fs::read_to_string(&record)?;
            let (name, dir) = text.split_once('\n').context("a record is damaged")?;
            places.push(Place {
                server: find(name)?,
                cache: self.cache.clone(),
                dir: dir.into(),
                durable: false,
                options: BTreeMap::new(),
            });
        }
        Ok(places)
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
        files.sort();
        files
    }

    /// What uses the servers ends before they do.
    pub fn used_by(&self, pid: u32) -> Result<()> {
        // One that has ended already uses nothing.
        let Ok(process) = Process::of(pid) else { return Ok(()) };
        let path = self.dir.join(pid.to_string()).with_extension(USER);
        Ok(std::fs::write(path, process.to_string())?)
    }

    /// Stops one place and removes its data.
    pub fn leave(&self, place: &Place) -> Result<()> {
        place.stop()?;
        remove(&place.dir)?;
        for record in self.files(ENDING) {
            let text = std::fs::read_to_string(&record).unwrap_or_default();
            if text.ends_with(&format!("\n{}", place.dir.display())) {
                std::fs::remove_file(record)?;
            }
        }
        Ok(())
    }

    /// Stops everything, all at once, and forgets the run.
    pub fn end(&self) -> Result<()> {
        for user in self.files(USER) {
            std::fs::read_to_string(user)?.parse::<Process>()?.stop(&["TERM"])?;
        }
        let places = self.places()?;
        let failed: Vec<String> = std::thread::scope(|scope| {
            let leave = |place| scope.spawn(move || self.leave(place));
            let leaving: Vec<_> = places.iter().map(leave).collect();
            let ended = leaving.into_iter().map(|leaving| leaving.join().expect("no panic"));
            ended.filter_map(|done| Some(format!("{:#}", done.err()?))).collect()
        });
        if !failed.is_empty() {
            bail!("not every server could be stopped: {}", failed.join("; "));
        }
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)?;
        }
        Ok(())
    }

    /// Ends the runs whose owner is gone.
    pub fn clean_up(cache: &Cache) -> Result<()> {
        let Ok(runs) = std::fs::read_dir(cache.root().join("run")) else { return Ok(()) };
        for run in runs.flatten().map(|run| run.path()) {
            let owner = std::fs::read_to_string(run.join(OWNER)).unwrap_or_default();
            let kept = run.file_name().is_some_and(|name| name == KEPT);
            if !kept && !owner.parse::<Process>().is_ok_and(|owner| owner.is_alive()) {
                let run = Run::at(cache, &run);
                if !run.places()?.is_empty() {
                    eprintln!("cleaning up after a run that ended early");
                }
                run.end()?;
            }
        }
        Ok(())
    }
}

/// The option that puts a place on a small disk of its own, in megabytes; root's right.
pub const DISK: &str = "disk";

fn mount(dir: &Path, megabytes: &str) -> Result<()> {
    let size = format!("size={megabytes}m,mode=755");
    let args = ["-t", "tmpfs", "-o", &size, "tmpfs"];
    let output = std::process::Command::new("mount").args(args).arg(dir).output()?;
    if !output.status.success() {
        bail!("a small disk cannot be mounted: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.split(' ').nth(1) == dir.to_str()) {
        std::process::Command::new("umount").arg("-l").arg(dir).output()?;
    }
    std::fs::remove_dir_all(dir).with_context(|| format!("{} cannot be removed", dir.display()))
}
