//! A list, then a watch of what comes after it, without end: a watch that is cut goes on from the
//! last version that it told, and only a version that the API server has forgotten means to list
//! again.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;

use super::Kubernetes;
use super::http::{Ask, Form, Said, refusal};
use super::paths::Collection;
use super::read::{self, Page};
use crate::cluster::{Refused, Told, Watched};

/// Objects to a page: of Jobs, some megabytes.
const PAGE: usize = 500;
/// A watch ends by itself after so long, and so does one whose server has forgotten it.
const WATCH_S: u64 = 290;
/// Bookmarks come every minute; a connection that brings nothing for longer is dead.
const SILENT: Duration = Duration::from_secs(100);
/// An object has at most 3 MB.
const LINE_BYTES_MAX: usize = 32 << 20;
/// How long after a failure it is tried again: twice as long each time, up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The same where only a person can help.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

pub struct Following {
    cluster: Kubernetes,
    what: Watched,
    namespace: Option<String>,
    at: At,
    failures: u32,
    /// To be done before anything else.
    rest: Option<Rest>,
}

enum At {
    Start,
    /// All up to this version has been told.
    Version(String),
    Open(String, Lines),
}

enum Rest {
    For(Duration),
    /// Until something happens to this CRD, and at least for so long.
    UntilCrd(String, Duration),
}

impl Following {
    pub fn new(cluster: Kubernetes, what: Watched, namespace: Option<String>) -> Following {
        Following { cluster, what, namespace, at: At::Start, failures: 0, rest: None }
    }

    pub async fn next(&mut self) -> Told {
        loop {
            if let Some(rest) = self.rest.take() {
                self.rest(rest).await;
            }
            match std::mem::replace(&mut self.at, At::Start) {
                At::Start => match self.list().await {
                    Ok((objects, version)) => {
                        self.at = At::Version(version);
                        return Told::All(objects);
                    }
                    Err(refused) => return self.trouble(refused),
                },
                At::Version(version) => match self.open(&version).await {
                    Ok(lines) => self.at = At::Open(version, lines),
                    // It is too old, or the kind has gone: the list will tell which.
                    Err(Refused::Conflict | Refused::NotFound) => {}
                    Err(refused) => {
                        // Who may list and not watch is told by lists, if rarely.
                        if matches!(refused, Refused::Away(_) | Refused::Busy(_)) {
                            self.at = At::Version(version);
                        }
                        return self.trouble(refused);
                    }
                },
                At::Open(version, mut lines) => match lines.next().await {
                    Some(line) => {
                        if let Some(told) = self.read(version, lines, &line) {
                            return told;
                        }
                    }
                    None => {
                        self.at = At::Version(version);
                        // A server that ends every watch at once is not asked without end.
                        self.failures += 1;
                        self.rest = (self.failures > 1).then(|| Rest::For(self.backoff(BACKOFF.1)));
                    }
                },
            }
        }
    }

    fn trouble(&mut self, refused: Refused) -> Told {
        self.failures += 1;
        let crd = Collection::watched(&self.what).ok().and_then(|collection| collection.crd);
        self.rest = Some(match (&refused, crd) {
            (Refused::Busy(Some(wait)), _) => Rest::For(*wait),
            (Refused::Busy(None) | Refused::Away(_) | Refused::Conflict, _) => {
                Rest::For(self.backoff(BACKOFF.1))
            }
            (Refused::NotFound, Some(crd)) => Rest::UntilCrd(crd, self.backoff(BACKOFF.1)),
            _ => Rest::For(self.backoff(BACKOFF_MAX)),
        });
        Told::Trouble(refused)
    }

    /// With jitter, so that not all watches come back in the same moment.
    fn backoff(&self, most: Duration) -> Duration {
        let doubled = BACKOFF.0.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled.min(most).mul_f64(0.5 + self.cluster.ambient.fraction() / 2.0)
    }

    async fn rest(&mut self, rest: Rest) {
        match rest {
            Rest::For(time) => tokio::time::sleep(time).await,
            Rest::UntilCrd(crd, at_least) => {
                tokio::time::sleep(at_least).await;
                if let Err(refused) = self.crd(&crd).await {
                    // Not allowed, as like as not: then by asking from time to time.
                    tracing::debug!(crd, %refused, "the CRD cannot be watched");
                    tokio::time::sleep(self.backoff(BACKOFF_MAX)).await;
                }
            }
        }
    }

    /// Until the CRD is there or changes.
    async fn crd(&mut self, name: &str) -> Result<(), Refused> {
        let path = format!(
            "{}?watch=true&timeoutSeconds={WATCH_S}&allowWatchBookmarks=true&\
             fieldSelector=metadata.name%3D{name}",
            Collection::crds().path(None)
        );
        loop {
            let ask = Ask { form: Form::Metadata, ..Ask::get(path.clone()) };
            let mut lines = Lines::of(self.opened(ask).await?);
            while let Some(line) = lines.next().await {
                match serde_json::from_slice::<read::Line<'_>>(&line) {
                    Ok(line) if line.kind == "BOOKMARK" => {}
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(Refused::Away(error.to_string())),
                }
            }
        }
    }

    async fn list(&mut self) -> Result<(Vec<crate::cluster::Object>, String), Refused> {
        let path = Collection::watched(&self.what)?.path(self.namespace.as_deref());
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{path}?limit={PAGE}");
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&super::paths::segment(&next));
            }
            let page = self.cluster.ask(self.ask(path, Form::MetadataList)).await?;
            let page: Page<'_> = serde_json::from_slice(&page)
                .map_err(|error| Refused::Away(format!("the list cannot be read: {error}")))?;
            for item in &page.items {
                let seen = read::watched(&self.what, item.get());
                objects.extend(seen.and_then(|seen| seen.object));
            }
            next = page.metadata.next;
            if next.is_empty() {
                objects.shrink_to_fit();
                return Ok((objects, page.metadata.resource_version));
            }
        }
    }

    /// Of secrets nobody needs to see more than that they are there.
    fn ask(&self, path: String, metadata: Form) -> Ask {
        match self.what {
            Watched::Secrets => Ask { form: metadata, ..Ask::get(path) },
            _ => Ask::get(path),
        }
    }

    async fn open(&mut self, version: &str) -> Result<Lines, Refused> {
        let path = Collection::watched(&self.what)?.path(self.namespace.as_deref());
        // Not all at once, all the time.
        let seconds = WATCH_S - (self.cluster.ambient.fraction() * 60.0) as u64;
        let path = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            super::paths::segment(version)
        );
        Ok(Lines::of(self.opened(self.ask(path, Form::Metadata)).await?))
    }

    async fn opened(&mut self, ask: Ask) -> Result<http::Response<kube::client::Body>, Refused> {
        let opened = tokio::time::timeout(super::REQUEST, self.cluster.open(ask)).await;
        opened.unwrap_or_else(|_| Err(Refused::Away("a watch is not answered".into())))
    }

    /// A line of the watch; where to go on from it is remembered.
    fn read(&mut self, version: String, lines: Lines, line: &[u8]) -> Option<Told> {
        let Ok(line) = serde_json::from_slice::<read::Line<'_>>(line) else {
            tracing::warn!(what = ?self.what, "a watch brought a line that cannot be read");
            self.at = At::Version(version);
            self.failures += 1;
            self.rest = Some(Rest::For(self.backoff(BACKOFF.1)));
            return None;
        };
        let json = line.object.get();
        if line.kind == "ERROR" {
            let said = serde_json::from_str::<Said>(json).unwrap_or_default();
            if said.code == 410 {
                return None;
            }
            self.at = At::Version(version);
            return Some(self.trouble(refusal(said.code, said, None)));
        }
        self.failures = 0;
        let seen = match line.kind {
            "BOOKMARK" | "DELETED" => read::metadata(json),
            _ => read::watched(&self.what, json),
        };
        let Some(seen) = seen else {
            self.at = At::Open(version, lines);
            return None;
        };
        self.at = At::Open(seen.version.clone(), lines);
        match line.kind {
            "BOOKMARK" => None,
            "DELETED" => Some(seen.gone()),
            _ => Some(seen.told()),
        }
    }
}

/// The lines of an answer, as they come.
struct Lines {
    chunks: BoxStream<'static, Result<Bytes, String>>,
    held: BytesMut,
    /// No end of a line is before this.
    looked: usize,
}

impl Lines {
    fn of(answer: http::Response<kube::client::Body>) -> Lines {
        let chunks = answer.into_body().into_data_stream();
        let chunks = chunks.map(|chunk| chunk.map_err(|error| error.to_string())).boxed();
        Lines { chunks, held: BytesMut::new(), looked: 0 }
    }

    /// None at the end, however it came.
    async fn next(&mut self) -> Option<BytesMut> {
        loop {
            if let Some(end) = self.held[self.looked..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.held.split_to(self.looked + end + 1);
                line.truncate(line.len() - 1);
                self.looked = 0;
                return Some(line);
            }
            self.looked = self.held.len();
            let chunk = tokio::time::timeout(SILENT, self.chunks.next()).await;
            match chunk {
                Ok(Some(Ok(chunk))) if self.held.len() + chunk.len() <= LINE_BYTES_MAX => {
                    self.held.extend_from_slice(&chunk);
                }
                Ok(Some(Err(error))) => {
                    tracing::debug!(error, "a watch was cut");
                    return None;
                }
                _ => return None,
            }
        }
    }
}
