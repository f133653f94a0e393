//! From the request to ready, as a client sees it that watches: alone, in a steady load, a thousand
//! at once, and a thousand under way all the time.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;

use super::{API, On, World, create};
use crate::figures::{Figures, Target, percentile};
use crate::load::Connection;

const IN_FLIGHT: usize = 1_000;
const CLUSTERS: usize = 4;
/// Of the steady load.
const PER_SECOND: usize = 500;
const STEADY_S: usize = 6;

pub(super) async fn ready(figures: &mut Figures, on: On, store: &str) -> anyhow::Result<()> {
    let world = World::new(on, CLUSTERS, 0).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let agents = world.agents(&stop).await;
    let watch = Watch::start(world.address(0), &world.user).await?;
    let load = Load { server: world.address(0), user: world.user.clone(), watch };
    let mut add = |how: &str, mut samples: Vec<f64>| {
        for (part, most) in [(0.5, 50.0), (0.99, 250.0)] {
            let name = format!("create to ready, {how}, {store}, p{:.0}", part * 100.0);
            let value = percentile(&mut samples, part);
            figures.add(&name, value, "ms", None, Target::AtMost(most));
        }
    };
    add("one at a time", load.clone().rounds("alone", 1, 50).await?.0);
    let steady = format!("{PER_SECOND} per second");
    add(&steady, load.clone().steady().await?);
    let mut bursts = Vec::new();
    for burst in 0..3 {
        bursts.extend(load.clone().rounds(&format!("burst{burst}"), IN_FLIGHT, 1).await?.0);
    }
    add("1,000 at once", bursts);
    let (samples, time) = load.rounds("loop", IN_FLIGHT, 5).await?;
    let rate = samples.len() as f64 / time.as_secs_f64();
    add("1,000 in flight all the time", samples);
    figures.add(
        &format!("instances to ready per second, 1,000 in flight all the time, {store}"),
        rate,
        "1/s",
        None,
        Target::AtLeast(1.0),
    );
    stop.store(true, Ordering::Relaxed);
    for done in agents.join_all().await {
        done?;
    }
    Ok(())
}

#[derive(Clone)]
struct Load {
    server: SocketAddr,
    user: String,
    watch: Watch,
}

impl Load {
    /// Creates an instance; milliseconds until it is ready.
    async fn one(&self, connection: &mut Connection, name: &str) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let id = create(connection, &self.user, name).await?;
        let ready = self.watch.until_ready(&id).await;
        Ok(ready.saturating_duration_since(begun).as_secs_f64() * 1000.0)
    }

    /// So many clients, which begin at once when all of them are connected; each creates one after
    /// the other. How long each took, and all of them.
    async fn rounds(
        self,
        name: &str,
        clients: usize,
        rounds: usize,
    ) -> anyhow::Result<(Vec<f64>, Duration)> {
        let together = Arc::new(Barrier::new(clients + 1));
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let (load, together, name) = (self.clone(), together.clone(), name.to_owned());
            tasks.spawn(async move {
                let mut connection = Connection::open(load.server).await?;
                together.wait().await;
                let mut samples = Vec::new();
                for round in 0..rounds {
                    let name = format!("{name}-{client}-{round}");
                    samples.push(load.one(&mut connection, &name).await?);
                }
                anyhow::Ok(samples)
            });
        }
        together.wait().await;
        let begun = Instant::now();
        let samples: anyhow::Result<Vec<Vec<f64>>> = tasks.join_all().await.into_iter().collect();
        Ok((samples?.concat(), begun.elapsed()))
    }

    /// New ones come at a steady pace, however long the others take.
    async fn steady(self) -> anyhow::Result<Vec<f64>> {
        let mut tasks = JoinSet::new();
        let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        for n in 0..PER_SECOND * STEADY_S {
            if n % (PER_SECOND / 100) == 0 {
                pace.tick().await;
            }
            let (load, idle) = (self.clone(), idle.clone());
            tasks.spawn(async move {
                let kept = idle.lock().pop();
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => Connection::open(load.server).await?,
                };
                let took = load.one(&mut connection, &format!("steady-{n}")).await;
                idle.lock().push(connection);
                took
            });
        }
        tasks.join_all().await.into_iter().collect()
    }
}

/// A watcher of the list learns at once what is ready.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// What was ready before anyone asked for it.
    ready: HashMap<String, Instant>,
    waiting: HashMap<String, oneshot::Sender<Instant>>,
    /// A watch tells of what is ready more than once.
    reported: HashSet<String>,
}

impl Known {
    fn ready(&mut self, id: String, at: Instant) {
        if !self.reported.insert(id.clone()) {
            return;
        }
        match self.waiting.remove(&id) {
            Some(waiting) => drop(waiting.send(at)),
            None => drop(self.ready.insert(id, at)),
        }
    }
}

impl Watch {
    async fn start(server: SocketAddr, user: &str) -> anyhow::Result<Watch> {
        let watch = Watch::default();
        let url = format!("http://{server}{API}/kafkas?watch=true");
        let mut stream = reqwest::Client::new().get(url).bearer_auth(user).send().await?;
        anyhow::ensure!(stream.status().is_success(), "{}", stream.status());
        let known = watch.0.clone();
        tokio::spawn(async move {
            let mut text = Vec::new();
            while let Ok(Some(chunk)) = stream.chunk().await {
                text.extend_from_slice(&chunk);
                let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { continue };
                let whole: Vec<u8> = text.drain(..=end).collect();
                let lines = whole.split(|byte| *byte == b'\n');
                for data in lines.filter_map(|line| line.strip_prefix(b"data: ")) {
                    // The rest of it is not worth reading.
                    let text = String::from_utf8_lossy(data);
                    if text.contains(r#""status":"ready""#) {
                        let id = text.split(r#""id":""#).nth(1).and_then(|t| t.split('"').next());
                        id.into_iter().for_each(|id| known.lock().ready(id.into(), Instant::now()));
                    }
                }
            }
        });
        Ok(watch)
    }

    /// When it was ready.
    async fn until_ready(&self, id: &str) -> Instant {
        let (waiting, ready) = oneshot::channel();
        {
            let mut known = self.0.lock();
            if let Some(at) = known.ready.remove(id) {
                return at;
            }
            known.waiting.insert(id.to_owned(), waiting);
        }
        ready.await.unwrap_or_else(|_| Instant::now())
    }
}
