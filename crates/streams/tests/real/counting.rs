//! A cluster that writes down what it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use streams::cluster::{Answer, Call, Cluster, Refused, Told, Watched, What};

pub struct Counting {
    cluster: Arc<dyn Cluster>,
    asked: Mutex<Vec<String>>,
    lists: Mutex<Vec<String>>,
    dead: AtomicBool,
}

impl Counting {
    pub fn new(cluster: Arc<dyn Cluster>) -> Arc<Counting> {
        Arc::new(Counting {
            cluster,
            asked: Mutex::default(),
            lists: Mutex::default(),
            dead: AtomicBool::new(false),
        })
    }

    /// All requests but lists, watches and what is about the Lease.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    pub fn of(&self, prefix: &str) -> usize {
        self.asked.lock().iter().filter(|asked| asked.starts_with(prefix)).count()
    }

    pub fn lists(&self) -> Vec<String> {
        self.lists.lock().clone()
    }

    /// From now on nothing gets out.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub fn forget(&self) {
        self.asked.lock().clear();
    }
}

#[async_trait]
impl Cluster for Counting {
    fn watch(&self, what: Watched) -> BoxStream<'static, Told> {
        self.lists.lock().push(format!("{what:?}"));
        self.cluster.watch(what).boxed()
    }

    async fn call(&self, call: Call) -> Result<Answer, Refused> {
        if self.dead.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        let name = |what: &What| match what {
            What::Class(_) => "class",
            What::Stream(_) => "stream",
            What::Job => "job",
            What::Cron => "cronjob",
            What::Request => "request",
            What::Event => "event",
        };
        let asked = match &call {
            Call::Create(what, manifest) => {
                let of = match manifest["involvedObject"]["kind"] == "StreamClass" {
                    true => " of a class",
                    false => "",
                };
                Some(format!("create {}{of} {}", name(what), manifest["metadata"]["name"]))
            }
            Call::Delete { what, place, .. } => Some(format!("delete {} {place}", name(what))),
            Call::Patch { what, place, status, .. } => {
                let part = if *status { "status" } else { "object" };
                Some(format!("patch {} {part} {place}", name(what)))
            }
            Call::Fate { place, .. } => Some(format!("fate {place}")),
            Call::ReadLease(_) | Call::WriteLease(..) => None,
        };
        self.asked.lock().extend(asked);
        self.cluster.call(call).await
    }
}
