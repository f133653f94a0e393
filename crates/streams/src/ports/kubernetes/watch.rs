//! Lists and then watches, without end. An interrupted watch resumes from the last resource
//! version; it lists again only if the API server no longer has that version.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;

use super::Kubernetes;
use super::http::{ErrorStatus, HttpRequest, Representation, api_error};
use super::paths::Collection;
use super::read::{self, Page};
use crate::model::watch::{ApiError, WatchEvent, WatchTarget};

/// Objects per page: some megabytes of Jobs.
const PAGE: usize = 500;
/// The timeout of a watch, in case the server has dropped it.
const WATCH_S: u64 = 290;
/// Bookmarks arrive every minute; a connection that is silent for longer is dead.
const SILENT: Duration = Duration::from_secs(100);
/// The longest line. An object has at most 3 MB.
const LINE_BYTES_MAX: usize = 32 << 20;
/// First and longest delay of retries; it doubles each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The longest delay of errors that only a person can resolve.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

pub struct Watch {
    api: Kubernetes,
    target: WatchTarget,
    namespace: Option<String>,
    state: State,
    failures: u32,
    /// A pause that is due before anything else.
    pause: Option<Pause>,
}

enum State {
    Start,
    /// Everything up to this resource version has been reported.
    Version(String),
    Open(String, Lines),
}

enum Pause {
    For(Duration),
    /// Until this CRD changes, and at least for the given time.
    UntilCrd(String, Duration),
}

impl Watch {
    pub fn new(api: Kubernetes, target: WatchTarget, namespace: Option<String>) -> Watch {
        Watch { api, target, namespace, state: State::Start, failures: 0, pause: None }
    }

    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if let Some(pause) = self.pause.take() {
                self.wait_out(pause).await;
            }
            match std::mem::replace(&mut self.state, State::Start) {
                State::Start => match self.list().await {
                    Ok((objects, version)) => {
                        self.state = State::Version(version);
                        return WatchEvent::Snapshot(objects);
                    }
                    Err(error) => return self.failed(error),
                },
                State::Version(version) => match self.open(&version).await {
                    Ok(lines) => self.state = State::Open(version, lines),
                    // The version is too old, or the kind is gone: the list shows which.
                    Err(ApiError::Conflict | ApiError::NotFound) => {}
                    Err(error) => {
                        // Without permission to watch, repeated lists report changes.
                        if matches!(error, ApiError::Unreachable(_) | ApiError::Throttled(_)) {
                            self.state = State::Version(version);
                        }
                        return self.failed(error);
                    }
                },
                State::Open(version, mut lines) => match lines.next().await {
                    Some(line) => {
                        if let Some(event) = self.read(version, lines, &line) {
                            return event;
                        }
                    }
                    None => {
                        self.state = State::Version(version);
                        // Does not spin on a server that ends every watch at once.
                        self.failures += 1;
                        self.pause =
                            (self.failures > 1).then(|| Pause::For(self.backoff(BACKOFF.1)));
                    }
                },
            }
        }
    }

    fn failed(&mut self, error: ApiError) -> WatchEvent {
        self.failures += 1;
        let crd = Collection::of_target(&self.target).ok().and_then(|collection| collection.crd);
        self.pause = Some(match (&error, crd) {
            (ApiError::Throttled(Some(wait)), _) => Pause::For(*wait),
            (ApiError::Throttled(None) | ApiError::Unreachable(_) | ApiError::Conflict, _) => {
                Pause::For(self.backoff(BACKOFF.1))
            }
            (ApiError::NotFound, Some(crd)) => Pause::UntilCrd(crd, self.backoff(BACKOFF.1)),
            _ => Pause::For(self.backoff(BACKOFF_MAX)),
        });
        WatchEvent::Error(error)
    }

    /// With jitter, so that watches do not resume at the same moment.
    fn backoff(&self, most: Duration) -> Duration {
        let doubled = BACKOFF.0.saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        doubled.min(most).mul_f64(0.5 + self.api.ambient.fraction() / 2.0)
    }

    async fn wait_out(&mut self, pause: Pause) {
        match pause {
            Pause::For(time) => tokio::time::sleep(time).await,
            Pause::UntilCrd(crd, at_least) => {
                tokio::time::sleep(at_least).await;
                if let Err(error) = self.crd(&crd).await {
                    // Probably not allowed: falls back to polling.
                    tracing::debug!(crd, %error, "watching the CRD failed; polling");
                    tokio::time::sleep(self.backoff(BACKOFF_MAX)).await;
                }
            }
        }
    }

    /// Waits until the CRD is created or changes.
    async fn crd(&mut self, name: &str) -> Result<(), ApiError> {
        let path = format!(
            "{}?watch=true&timeoutSeconds={WATCH_S}&allowWatchBookmarks=true&\
             fieldSelector=metadata.name%3D{name}",
            Collection::crds().path(None)
        );
        loop {
            let http = HttpRequest {
                representation: Representation::Metadata,
                ..HttpRequest::get(path.clone())
            };
            let mut lines = Lines::of(self.opened(http).await?);
            while let Some(line) = lines.next().await {
                match serde_json::from_slice::<read::WatchLine<'_>>(&line) {
                    Ok(line) if line.kind == "BOOKMARK" => {}
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(ApiError::Unreachable(error.to_string())),
                }
            }
        }
    }

    async fn list(&mut self) -> Result<(Vec<crate::model::watch::Object>, String), ApiError> {
        let path = Collection::of_target(&self.target)?.path(self.namespace.as_deref());
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{path}?limit={PAGE}");
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&super::paths::segment(&next));
            }
            let page = self.api.http(self.http(path, Representation::MetadataList)).await?;
            let page: Page<'_> = serde_json::from_slice(&page)
                .map_err(|error| ApiError::Unreachable(format!("invalid list: {error}")))?;
            for item in &page.items {
                let decoded = read::decode_watched(&self.target, item.get());
                objects.extend(decoded.and_then(|decoded| decoded.object));
            }
            next = page.metadata.next;
            if next.is_empty() {
                objects.shrink_to_fit();
                return Ok((objects, page.metadata.resource_version));
            }
        }
    }

    /// Only the metadata of secrets is requested.
    fn http(&self, path: String, metadata: Representation) -> HttpRequest {
        match self.target {
            WatchTarget::Secrets => {
                HttpRequest { representation: metadata, ..HttpRequest::get(path) }
            }
            _ => HttpRequest::get(path),
        }
    }

    async fn open(&mut self, version: &str) -> Result<Lines, ApiError> {
        let path = Collection::of_target(&self.target)?.path(self.namespace.as_deref());
        // Spreads the ends of watches over a minute.
        let seconds = WATCH_S - (self.api.ambient.fraction() * 60.0) as u64;
        let path = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            super::paths::segment(version)
        );
        Ok(Lines::of(self.opened(self.http(path, Representation::Metadata)).await?))
    }

    async fn opened(
        &mut self,
        http: HttpRequest,
    ) -> Result<http::Response<kube::client::Body>, ApiError> {
        let opened = tokio::time::timeout(super::REQUEST, self.api.open(http)).await;
        opened
            .unwrap_or_else(|_| Err(ApiError::Unreachable("no response to a watch request".into())))
    }

    /// Parses a line of the watch and remembers where to resume.
    fn read(&mut self, version: String, lines: Lines, line: &[u8]) -> Option<WatchEvent> {
        let Ok(line) = serde_json::from_slice::<read::WatchLine<'_>>(line) else {
            tracing::warn!(resource = ?self.target, "invalid line in a watch");
            self.state = State::Version(version);
            self.failures += 1;
            self.pause = Some(Pause::For(self.backoff(BACKOFF.1)));
            return None;
        };
        let json = line.object.get();
        if line.kind == "ERROR" {
            let status_error = serde_json::from_str::<ErrorStatus>(json).unwrap_or_default();
            if status_error.code == 410 {
                return None;
            }
            self.state = State::Version(version);
            return Some(self.failed(api_error(status_error.code, status_error, None)));
        }
        self.failures = 0;
        let decoded = match line.kind {
            "BOOKMARK" | "DELETED" => read::metadata(json),
            _ => read::decode_watched(&self.target, json),
        };
        let Some(decoded) = decoded else {
            self.state = State::Open(version, lines);
            return None;
        };
        self.state = State::Open(decoded.version.clone(), lines);
        match line.kind {
            "BOOKMARK" => None,
            "DELETED" => Some(decoded.into_deleted()),
            _ => Some(decoded.into_event()),
        }
    }
}

/// The lines of a streamed response.
struct Lines {
    chunks: BoxStream<'static, Result<Bytes, String>>,
    held: BytesMut,
    /// There is no newline before this offset.
    looked: usize,
}

impl Lines {
    fn of(answer: http::Response<kube::client::Body>) -> Lines {
        let chunks = answer.into_body().into_data_stream();
        let chunks = chunks.map(|chunk| chunk.map_err(|error| error.to_string())).boxed();
        Lines { chunks, held: BytesMut::new(), looked: 0 }
    }

    /// Returns none at the end of the response, whatever ended it.
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
                    tracing::debug!(error, "watch interrupted");
                    return None;
                }
                _ => return None,
            }
        }
    }
}
