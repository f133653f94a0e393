//! Reports the streams of a cluster to a Mainstay server while this process leads.
//!
//! Compares what was sent with the index, so that changes coalesce while the server is unreachable
//! and no queue is needed. The index is locked for one pass, at most once a second and only after
//! changes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::outbound::{Outbound, Target};
use kernel::{Backoff, Error, Result};
use parking_lot::Mutex;
use reqwest::Method;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::index::Index;
use crate::model::class::Class;
use crate::model::stream::Stream;
use crate::model::{ClassName, Key};
use crate::reporting::report::{ClassReport, PATH, Report, Snapshot, StreamReport};

/// The interval of comparisons.
const INTERVAL: Duration = Duration::from_secs(1);
/// The delays after failed reports.
const RETRIES: Backoff = Backoff { first: INTERVAL, longest: Duration::from_secs(30) };
/// Limits of one report, so that servers accept it.
const STREAMS_MAX: usize = 200;
const BYTES_MAX: usize = 400 << 10;
/// Uids in one range of a snapshot: 40 bytes each.
const UIDS_MAX: usize = 5_000;

pub struct Reporter {
    url: Url,
    /// Read for each report, so that it can be rotated.
    token_file: PathBuf,
    /// The watched namespaces; empty for all.
    namespaces: Vec<String>,
    target: Target,
}

/// What the server has received.
#[derive(Default)]
struct Sent {
    classes: HashMap<ClassName, Arc<Class>>,
    streams: HashMap<Key, Arc<Stream>>,
    /// A snapshot has been sent.
    whole: bool,
    /// The version of the index that was sent completely.
    version: Option<u64>,
}

/// Changes that the server has not received.
#[derive(Default)]
struct Delta {
    classes: Vec<Arc<Class>>,
    streams: Vec<(Arc<Stream>, Arc<Class>)>,
    gone_classes: Vec<ClassName>,
    gone_streams: Vec<Key>,
}

impl Reporter {
    pub fn new(
        server: &Url,
        token_file: PathBuf,
        namespaces: &[String],
        outbound: &Outbound,
    ) -> Result<Reporter> {
        let url =
            server.join(PATH).map_err(|error| Error::invalid("connect", error.to_string()))?;
        let target = outbound.target("mainstay server");
        Ok(Reporter { url, token_file, namespaces: namespaces.into(), target })
    }

    /// Runs until `stop`. `acts` says whether this process leads and has listed everything.
    pub async fn run(self, index: &Mutex<Index>, acts: impl Fn() -> bool, stop: CancellationToken) {
        let mut sent = Sent::default();
        let mut failures = 0;
        let delay = |failures| tokio::time::sleep(RETRIES.without_jitter(failures));
        while stop.run_until_cancelled(delay(failures)).await.is_some() {
            if !acts() {
                // Another leader reports meanwhile, so everything is sent again.
                sent = Sent::default();
                continue;
            }
            let sent_all = stop.run_until_cancelled(self.send_changes(index, &mut sent)).await;
            failures = match sent_all {
                None => return,
                Some(Ok(())) => 0,
                Some(Err(error)) => {
                    let causes = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause = causes, "sending a report to the server failed");
                    failures + 1
                }
            };
        }
    }

    /// Sends all changes, in parts.
    async fn send_changes(&self, index: &Mutex<Index>, sent: &mut Sent) -> Result<()> {
        let (delta, version) = {
            let index = index.lock();
            if sent.version == Some(index.version()) {
                return Ok(());
            }
            (delta(&index, sent), index.version())
        };
        // A stream that was created again is sent with the next report, after the old one was
        // removed.
        let all = delta.gone_streams.is_empty();
        let classes = Report {
            classes: delta.classes.iter().map(|class| ClassReport::of(class)).collect(),
            ..Report::default()
        };
        if !classes.classes.is_empty() {
            self.send(&classes).await?;
            let named = delta.classes.into_iter().map(|class| (class.name.clone(), class));
            sent.classes.extend(named);
        }
        let mut rest = delta.streams.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut report, mut bytes, mut piece) = (Report::default(), 0, Vec::new());
            while let Some((stream, class)) =
                rest.next_if(|_| piece.len() < STREAMS_MAX && bytes < BYTES_MAX)
            {
                bytes += stream.spec.len() + 1024;
                report.streams.push(StreamReport::of(&stream, &class));
                piece.push(stream);
            }
            self.send(&report).await?;
            sent.streams.extend(piece.into_iter().map(|stream| (stream.key.clone(), stream)));
        }
        if !sent.whole {
            for whole in snapshots(sent, &self.namespaces) {
                self.send(&Report { whole: vec![whole], ..Report::default() }).await?;
            }
            sent.whole = true;
        }
        for piece in delta.gone_streams.chunks(STREAMS_MAX) {
            let of = |key: &Key| sent.streams.get(key).map(|stream| stream.uid.to_string());
            let gone = piece.iter().filter_map(of).collect();
            self.send(&Report { gone, ..Report::default() }).await?;
            piece.iter().for_each(|key| drop(sent.streams.remove(key)));
        }
        let of = |name: &ClassName| sent.classes.get(name).map(|class| class.uid.clone());
        let gone: Vec<String> = delta.gone_classes.iter().filter_map(of).collect();
        if !gone.is_empty() {
            self.send(&Report { gone, ..Report::default() }).await?;
            delta.gone_classes.iter().for_each(|name| drop(sent.classes.remove(name)));
        }
        sent.version = all.then_some(version);
        Ok(())
    }

    async fn send(&self, report: &Report) -> Result<()> {
        let token = std::fs::read_to_string(&self.token_file).map_err(|error| {
            let what = format!("{} cannot be read: {error}", self.token_file.display());
            Error::invalid("connect-token-file", what)
        })?;
        let request = self.target.request(Method::PUT, self.url.clone());
        let answer =
            self.target.http("report", request.bearer_auth(token.trim()).json(report)).await?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => {
                let said = kernel::outbound::body(answer, 64 << 10).await.unwrap_or_default();
                let said = String::from_utf8_lossy(&said).into_owned();
                Err(Error::unavailable("the server", format!("it responded with {status}: {said}")))
            }
        }
    }
}

/// A stream that was created again counts as another one: the old one is gone.
fn delta(index: &Index, sent: &Sent) -> Delta {
    let mut delta = Delta::default();
    for class in index.classes() {
        if !sent.classes.get(&class.name).is_some_and(|sent| Arc::ptr_eq(sent, class)) {
            delta.classes.push(class.clone());
        }
    }
    for stream in index.streams() {
        match (sent.streams.get(&stream.key), index.class(&stream.key.class)) {
            (Some(sent), _) if Arc::ptr_eq(sent, stream) => {}
            (Some(sent), _) if sent.uid != stream.uid => {
                delta.gone_streams.push(stream.key.clone());
            }
            (_, Some(class)) => delta.streams.push((stream.clone(), class.clone())),
            (_, None) => {}
        }
    }
    let gone = sent.streams.keys().filter(|key| index.stream(key).is_none());
    delta.gone_streams.extend(gone.cloned());
    let gone = sent.classes.keys().filter(|name| index.class(name).is_none());
    delta.gone_classes.extend(gone.cloned());
    delta
}

/// Snapshots of everything that was sent, in adjacent ranges.
fn snapshots(sent: &Sent, namespaces: &[String]) -> Vec<Snapshot> {
    let ranges = |classes: bool, mut uids: Vec<String>| {
        uids.sort_unstable();
        let mut snapshots = Vec::new();
        let mut rest = &uids[..];
        let mut from = String::new();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(UIDS_MAX));
            let to = after.first().cloned().unwrap_or_default();
            let (namespaces, uids) = (namespaces.to_vec(), piece.to_vec());
            snapshots.push(Snapshot { classes, namespaces, from, to: to.clone(), uids });
            if after.is_empty() {
                return snapshots;
            }
            (rest, from) = (after, to);
        }
    };
    let classes = sent.classes.values().map(|class| class.uid.clone()).collect();
    let streams = sent.streams.values().map(|stream| stream.uid.to_string()).collect();
    [ranges(true, classes), ranges(false, streams)].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::CrdVersion;
    use crate::model::class::RawClass;
    use crate::model::settings::Settings;
    use crate::model::stream::RawStream;
    use crate::model::watch::Object;

    fn class() -> Class {
        let raw = json!({ "metadata": { "name": "p", "uid": "c1", "resourceVersion": "1" }, "spec": {
            "apiVersion": "v1", "kindRef": "P", "pluralName": "ps",
        } });
        Class::of(&serde_json::from_value::<RawClass>(raw).unwrap(), CrdVersion::V1)
    }

    fn stream(name: &str, uid: &str, version: u32) -> Object {
        let metadata = json!({
            "name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
        });
        let raw = json!({ "metadata": metadata, "spec": { "x": 1 } });
        Object::Stream(Stream::of(&serde_json::from_value::<RawStream>(raw).unwrap(), &class()))
    }

    fn record_delta(index: &Index, sent: &mut Sent) -> (usize, usize) {
        let delta = delta(index, sent);
        let counts = (delta.streams.len(), delta.gone_streams.len());
        for key in &delta.gone_streams {
            sent.streams.remove(key);
        }
        sent.streams.extend(delta.streams.into_iter().map(|(s, _)| (s.key.clone(), s)));
        counts
    }

    #[test]
    fn only_changes_since_the_last_report_are_sent() {
        let (mut index, mut sent) = (Index::new(Settings::default()), Sent::default());
        index.upsert(Object::Class(class()));
        index.upsert(stream("a", "u1", 1));
        index.upsert(stream("b", "u2", 2));
        assert_eq!(record_delta(&index, &mut sent), (2, 0));
        assert_eq!(record_delta(&index, &mut sent), (0, 0));
        index.upsert(stream("a", "u1", 3));
        assert_eq!(record_delta(&index, &mut sent), (1, 0));
        // Created again: the old one is removed first, the new one is sent with the next report.
        index.upsert(stream("a", "u3", 4));
        assert_eq!(record_delta(&index, &mut sent), (0, 1));
        assert_eq!(record_delta(&index, &mut sent), (1, 0));
        index.remove_streams("p");
        assert_eq!(record_delta(&index, &mut sent), (0, 2));
        assert!(sent.streams.is_empty());
    }

    #[test]
    fn ranges_are_adjacent_and_cover_everything() {
        let mut sent = Sent::default();
        let mut index = Index::new(Settings::default());
        index.upsert(Object::Class(class()));
        for i in 0..UIDS_MAX * 2 + 1 {
            index.upsert(stream(&format!("s{i}"), &format!("u{i:06}"), 1));
        }
        record_delta(&index, &mut sent);
        let all = snapshots(&sent, &[]);
        assert_eq!((all[0].classes, all[0].uids.len()), (true, 0));
        let streams = &all[1..];
        assert_eq!(streams.len(), 3);
        assert_eq!((streams[0].from.as_str(), streams[2].to.as_str()), ("", ""));
        for pair in streams.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
            assert_eq!(pair[1].uids[0], pair[1].from);
        }
        assert_eq!(streams.iter().map(|whole| whole.uids.len()).sum::<usize>(), UIDS_MAX * 2 + 1);
    }
}
