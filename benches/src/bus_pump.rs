//! The relay of one sink in this process: the code that the server runs, on a store of ours.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bus::config::{Filter, Start};
use bus::decide::pace;
use bus::model::{Spec, cursor_name};
use bus::ports::out::Outlet;
use bus::work::leadership::{Terms, lead};
use bus::work::relay::Relay;
use bus::work::source::{Render, Selection, Source};
use bus::work::state::SinkState;
use kernel::event_tail::EventTail;
use kernel::{Ambient, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bus_events::cloudevents;

/// A running pump; `stop` ends it.
pub struct Pump {
    pub state: Arc<SinkState>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _spec: watch::Sender<Spec>,
}

impl Pump {
    /// `name` is the topic or the exchange. Events of widgets are relayed.
    pub fn start(
        store: &Arc<dyn Store>,
        sink: &str,
        outlet: Box<dyn Outlet>,
        name: &str,
        start: Start,
    ) -> Pump {
        let (tail, ambient) = (EventTail::new(store.clone()), Ambient::system());
        let (sender, spec) = watch::channel(Spec::default());
        let filter = Filter { kinds: vec!["widget".into()], ..Filter::default() };
        let render = Render::CloudEvents(cloudevents(name));
        let selection = Selection { filter, org: None, render, presenter: None };
        let state: Arc<SinkState> = Arc::default();
        let relay = Relay {
            id: sink.into(),
            store: store.clone(),
            ambient: ambient.clone(),
            source: Source::new(&tail, selection),
            outlet,
            start,
            backoff: pace::BROKER,
            park_after: None,
            spec,
            state: state.clone(),
        };
        let relay = Arc::new(tokio::sync::Mutex::new(relay));
        let (stop, store, sink) = (CancellationToken::new(), store.clone(), sink.to_owned());
        let until = stop.clone();
        let task = tokio::spawn(async move {
            lead(&store, &cursor_name(&sink), &Terms::embedded(), &until, |held| {
                let (relay, store, ambient) = (relay.clone(), store.clone(), ambient.clone());
                let sink = sink.clone();
                async move {
                    let (spec, fence) = (Spec::default(), held.fence());
                    let declared = bus::store::declare(&*store, &ambient, &sink, fence, &spec);
                    if let Err(error) = declared.await {
                        eprintln!("the sink cannot be declared: {error}");
                    }
                    relay.lock().await.run(&held).await;
                }
            })
            .await;
        });
        Pump { state, stop, task, _spec: sender }
    }

    pub fn delivered(&self) -> u64 {
        self.state.delivered.load(Ordering::Relaxed)
    }

    /// Waits until so many messages are delivered.
    pub async fn reaches(&self, count: u64, timeout: Duration) -> anyhow::Result<Instant> {
        let begun = Instant::now();
        while self.delivered() < count {
            anyhow::ensure!(
                begun.elapsed() < timeout,
                "only {} of {count} messages in {timeout:?}: {:?}",
                self.delivered(),
                self.state.condition()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Instant::now())
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}
