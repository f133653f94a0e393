//! Lists and then watches, without end. An interrupted watch resumes from the last resource
//! version; it lists again only if the API server no longer has that version.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;
use kernel::Backoff;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::ErrorResponse;
use crate::{
    ApiError, Client, Collection, HttpRequest, NamespacedName, ObjectMeta, Revision, segment,
};

/// Objects per page: some megabytes of Jobs.
const PAGE: usize = 500;
/// The timeout of a watch, in case the server has dropped it.
const WATCH_S: u64 = 290;
/// Bookmarks arrive every minute; a connection that is silent for longer is dead.
const SILENT: Duration = Duration::from_secs(100);
/// The longest line. An object has at most 3 MB.
const LINE_BYTES_MAX: usize = 32 << 20;
/// The delays of retries.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// The delays after errors that only a person can resolve.
const BACKOFF_LONG: Backoff = Backoff { longest: Duration::from_secs(30), ..BACKOFF };

#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<T> {
    /// All objects that exist; any other that was known has been deleted.
    Snapshot(Vec<T>),
    Upserted(Box<T>),
    /// Name, uid and the revision of the deletion.
    Deleted(NamespacedName, Box<str>, Revision),
    /// The objects cannot be watched now; the watch retries.
    Error(ApiError),
}

impl<T> WatchEvent<T> {
    /// The objects that the event reports.
    pub fn objects(&self) -> &[T] {
        match self {
            WatchEvent::Snapshot(objects) => objects,
            WatchEvent::Upserted(object) => std::slice::from_ref(object),
            WatchEvent::Deleted(..) | WatchEvent::Error(_) => &[],
        }
    }
}

/// Which objects of a collection to watch, and how much of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// None for all.
    pub namespace: Option<String>,
    /// None for all.
    pub label_selector: Option<String>,
    pub metadata_only: bool,
}

/// A parsed object.
pub struct Decoded<T> {
    pub metadata: ObjectMeta,
    /// None if the watcher has no use for it.
    pub object: Option<T>,
}

impl<T> Decoded<T> {
    /// An object that is no longer of use counts as deleted.
    fn into_event(self) -> WatchEvent<T> {
        match self.object {
            Some(object) => WatchEvent::Upserted(object.into()),
            None => {
                let ObjectMeta { uid, .. } = &self.metadata;
                let uid = uid.as_str().into();
                WatchEvent::Deleted(self.metadata.object_name(), uid, self.metadata.revision())
            }
        }
    }
}

type Decode<T> = Box<dyn Fn(&str) -> serde_json::Result<Decoded<T>> + Send + Sync>;

impl Client {
    /// Lists a collection and then watches it, without end. An object that `decode` cannot parse is
    /// logged and ignored.
    pub fn watch<T: Send + 'static>(
        &self,
        collection: Collection,
        options: ListOptions,
        decode: impl Fn(&str) -> serde_json::Result<Decoded<T>> + Send + Sync + 'static,
    ) -> BoxStream<'static, WatchEvent<T>> {
        let watch = Watch {
            client: self.clone(),
            collection,
            options,
            decode: Box::new(decode),
            state: State::Start,
            failures: 0,
            pause: None,
        };
        futures::stream::unfold(watch, async |mut watch| Some((watch.next().await, watch))).boxed()
    }
}

/// A page of a list. Objects are parsed one at a time: an invalid one does not affect the others.
#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// A line of a watch.
#[derive(Deserialize)]
struct WatchLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Returns none if it is not a Kubernetes object.
fn metadata<T>(json: &str) -> Option<Decoded<T>> {
    #[derive(Deserialize)]
    struct Any {
        metadata: ObjectMeta,
    }
    let any: Any = serde_json::from_str(json).ok()?;
    Some(Decoded { metadata: any.metadata, object: None })
}

struct Watch<T> {
    client: Client,
    collection: Collection,
    options: ListOptions,
    decode: Decode<T>,
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

impl<T: Send + 'static> Watch<T> {
    async fn next(&mut self) -> WatchEvent<T> {
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
                        self.pause = (self.failures > 1).then(|| Pause::For(self.delay(BACKOFF)));
                    }
                },
            }
        }
    }

    fn failed(&mut self, error: ApiError) -> WatchEvent<T> {
        self.failures += 1;
        self.pause = Some(match (&error, &self.collection.crd) {
            (ApiError::Throttled(Some(wait)), _) => Pause::For(*wait),
            (ApiError::Throttled(None) | ApiError::Unreachable(_) | ApiError::Conflict, _) => {
                Pause::For(self.delay(BACKOFF))
            }
            (ApiError::NotFound, Some(crd)) => Pause::UntilCrd(crd.clone(), self.delay(BACKOFF)),
            _ => Pause::For(self.delay(BACKOFF_LONG)),
        });
        WatchEvent::Error(error)
    }

    fn delay(&self, backoff: Backoff) -> Duration {
        backoff.delay(self.failures.saturating_sub(1), self.client.ambient.fraction())
    }

    async fn wait_out(&mut self, pause: Pause) {
        match pause {
            Pause::For(time) => tokio::time::sleep(time).await,
            Pause::UntilCrd(crd, at_least) => {
                tokio::time::sleep(at_least).await;
                if let Err(error) = self.crd(&crd).await {
                    // Probably not allowed: falls back to polling.
                    tracing::debug!(crd, %error, "watching the CRD failed; polling");
                    tokio::time::sleep(self.delay(BACKOFF_LONG)).await;
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
            let mut lines = self.lines(HttpRequest::watch(path.clone(), true)).await?;
            while let Some(line) = lines.next().await {
                match serde_json::from_slice::<WatchLine<'_>>(&line) {
                    Ok(line) if line.kind == "BOOKMARK" => {}
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(ApiError::Unreachable(error.to_string())),
                }
            }
        }
    }

    async fn list(&mut self) -> Result<(Vec<T>, String), ApiError> {
        let path = self.path();
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{path}limit={PAGE}");
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&segment(&next));
            }
            let page = HttpRequest::list(path, self.options.metadata_only);
            let page = self.client.send(page).await?;
            let page: Page<'_> = serde_json::from_slice(&page)
                .map_err(|error| ApiError::Unreachable(format!("invalid list: {error}")))?;
            for item in &page.items {
                objects.extend(self.decode(item.get()).and_then(|decoded| decoded.object));
            }
            next = page.metadata.next;
            if next.is_empty() {
                objects.shrink_to_fit();
                return Ok((objects, page.metadata.resource_version));
            }
        }
    }

    /// The path with the beginning of its query.
    fn path(&self) -> String {
        let mut path = self.collection.path(self.options.namespace.as_deref());
        path.push('?');
        if let Some(selector) = &self.options.label_selector {
            path.push_str(&format!("labelSelector={}&", segment(selector)));
        }
        path
    }

    async fn open(&mut self, version: &str) -> Result<Lines, ApiError> {
        // Spreads the ends of watches over a minute.
        let seconds = WATCH_S - (self.client.ambient.fraction() * 60.0) as u64;
        let path = format!(
            "{}watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            self.path(),
            segment(version)
        );
        self.lines(HttpRequest::watch(path, self.options.metadata_only)).await
    }

    async fn lines(&mut self, request: HttpRequest) -> Result<Lines, ApiError> {
        Ok(Lines::of(self.client.open(request).await?))
    }

    /// Parses an object. Of one that cannot be parsed only the metadata is returned.
    fn decode(&self, json: &str) -> Option<Decoded<T>> {
        let decoded = (self.decode)(json).inspect_err(|error| {
            let object = metadata::<T>(json).map(|decoded| decoded.metadata.object_name());
            let object = object.map(|name| name.to_string()).unwrap_or_default();
            tracing::warn!(object, %error, "ignoring an object that cannot be parsed");
        });
        decoded.ok().or_else(|| metadata(json))
    }

    /// Parses a line of the watch and remembers where to resume.
    fn read(&mut self, version: String, lines: Lines, line: &[u8]) -> Option<WatchEvent<T>> {
        let Ok(line) = serde_json::from_slice::<WatchLine<'_>>(line) else {
            tracing::warn!(resource = self.collection.plural, "invalid line in a watch");
            self.state = State::Version(version);
            self.failures += 1;
            self.pause = Some(Pause::For(self.delay(BACKOFF)));
            return None;
        };
        let json = line.object.get();
        if line.kind == "ERROR" {
            let error = serde_json::from_str::<ErrorResponse>(json).unwrap_or_default();
            if error.code == 410 {
                return None;
            }
            self.state = State::Version(version);
            return Some(self.failed(error.into()));
        }
        self.failures = 0;
        let decoded = match line.kind {
            "BOOKMARK" | "DELETED" => metadata(json),
            _ => self.decode(json),
        };
        let Some(decoded) = decoded else {
            self.state = State::Open(version, lines);
            return None;
        };
        self.state = State::Open(decoded.metadata.resource_version.clone(), lines);
        (line.kind != "BOOKMARK").then(|| decoded.into_event())
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
