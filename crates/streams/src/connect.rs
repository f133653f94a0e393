//! Tells a Mainstay server of the streams, for as long as this process is the one that acts.
//!
//! What was told is compared with what is: so changes run together while the server is away, and
//! nothing is kept for it but that. Beside everything else, and never in its way: the index is held
//! for one walk through it, at most once a second and only if something changed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::outbound::{Outbound, Target};
use kernel::{Error, Result};
use parking_lot::Mutex;
use reqwest::Method;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::index::Index;
use crate::model::class::Class;
use crate::model::stream::Stream;
use crate::model::{ClassName, Key};
use crate::report::{ClassReport, PATH, Report, StreamReport, Whole};

/// How often what is, is compared with what was told.
const EVERY: Duration = Duration::from_secs(1);
/// Between attempts, when the server does not take it.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// In one report, so that it stays below what servers take.
const STREAMS_MAX: usize = 200;
const BYTES_MAX: usize = 400 << 10;
/// Uids in one range of a whole report: 40 bytes each.
const UIDS_MAX: usize = 5_000;

pub struct Connect {
    url: Url,
    /// Read for each report, so that it can be replaced.
    token_file: PathBuf,
    /// All that is seen; everything, if there are none.
    namespaces: Vec<String>,
    target: Target,
}

/// What the server has been told.
#[derive(Default)]
struct Told {
    classes: HashMap<ClassName, Arc<Class>>,
    streams: HashMap<Key, Arc<Stream>>,
    /// That this is all there is.
    whole: bool,
    /// The index of which it has been told all.
    version: Option<u64>,
}

/// What it has not been told.
#[derive(Default)]
struct News {
    classes: Vec<Arc<Class>>,
    streams: Vec<(Arc<Stream>, Arc<Class>)>,
    gone_classes: Vec<ClassName>,
    gone_streams: Vec<Key>,
}

impl Connect {
    pub fn new(
        server: &Url,
        token_file: PathBuf,
        namespaces: &[String],
        outbound: &Outbound,
    ) -> Result<Connect> {
        let url =
            server.join(PATH).map_err(|error| Error::invalid("connect", error.to_string()))?;
        let target = outbound.target("mainstay server");
        Ok(Connect { url, token_file, namespaces: namespaces.into(), target })
    }

    /// Until `stop`. `acts` says whether this process is the one that speaks for the cluster, and
    /// knows all of it.
    pub async fn run(self, index: &Mutex<Index>, acts: impl Fn() -> bool, stop: CancellationToken) {
        let mut told = Told::default();
        let mut wait = EVERY;
        while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            if !acts() {
                // Whoever acts meanwhile tells more: all is told again.
                told = Told::default();
                continue;
            }
            let spoken = stop.run_until_cancelled(self.tell(index, &mut told)).await;
            wait = match spoken {
                None => return,
                Some(Ok(())) => EVERY,
                Some(Err(error)) => {
                    let causes = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause = causes, "the server was not told of the streams");
                    (wait * 2).min(AGAIN_MAX)
                }
            };
        }
    }

    /// All that is new, a piece at a time.
    async fn tell(&self, index: &Mutex<Index>, told: &mut Told) -> Result<()> {
        let (news, version) = {
            let index = index.lock();
            if told.version == Some(index.version()) {
                return Ok(());
            }
            (news(&index, told), index.version())
        };
        // One that was made anew is told with the next, after the old one has gone.
        let all = news.gone_streams.is_empty();
        let classes = Report {
            classes: news.classes.iter().map(|class| ClassReport::of(class)).collect(),
            ..Report::default()
        };
        if !classes.classes.is_empty() {
            self.send(&classes).await?;
            let named = news.classes.into_iter().map(|class| (class.name.clone(), class));
            told.classes.extend(named);
        }
        let mut rest = news.streams.into_iter().peekable();
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
            told.streams.extend(piece.into_iter().map(|stream| (stream.key.clone(), stream)));
        }
        if !told.whole {
            for whole in wholes(told, &self.namespaces) {
                self.send(&Report { whole: vec![whole], ..Report::default() }).await?;
            }
            told.whole = true;
        }
        for piece in news.gone_streams.chunks(STREAMS_MAX) {
            let of = |key: &Key| told.streams.get(key).map(|stream| stream.uid.to_string());
            let gone = piece.iter().filter_map(of).collect();
            self.send(&Report { gone, ..Report::default() }).await?;
            piece.iter().for_each(|key| drop(told.streams.remove(key)));
        }
        let of = |name: &ClassName| told.classes.get(name).map(|class| class.uid.clone());
        let gone: Vec<String> = news.gone_classes.iter().filter_map(of).collect();
        if !gone.is_empty() {
            self.send(&Report { gone, ..Report::default() }).await?;
            news.gone_classes.iter().for_each(|name| drop(told.classes.remove(name)));
        }
        told.version = all.then_some(version);
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
                Err(Error::unavailable("the server", format!("it answered {status}: {said}")))
            }
        }
    }
}

/// A stream that was made anew under its name is another: the old one is gone.
fn news(index: &Index, told: &Told) -> News {
    let mut news = News::default();
    for class in index.classes() {
        if !told.classes.get(&class.name).is_some_and(|known| Arc::ptr_eq(known, class)) {
            news.classes.push(class.clone());
        }
    }
    for stream in index.streams() {
        let known = told.streams.get(&stream.key);
        match (known, index.class(&stream.key.class)) {
            (Some(known), _) if Arc::ptr_eq(known, stream) => {}
            (Some(known), _) if known.uid != stream.uid => {
                news.gone_streams.push(stream.key.clone());
            }
            (_, Some(class)) => news.streams.push((stream.clone(), class.clone())),
            (_, None) => {}
        }
    }
    let gone = told.streams.keys().filter(|key| index.stream(key).is_none());
    news.gone_streams.extend(gone.cloned());
    let gone = told.classes.keys().filter(|name| index.class(name).is_none());
    news.gone_classes.extend(gone.cloned());
    news
}

/// Everything that was told, in ranges that touch each other.
fn wholes(told: &Told, namespaces: &[String]) -> Vec<Whole> {
    let ranges = |classes: bool, mut uids: Vec<String>| {
        uids.sort_unstable();
        let mut wholes = Vec::new();
        let mut rest = &uids[..];
        let mut from = String::new();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(UIDS_MAX));
            let to = after.first().cloned().unwrap_or_default();
            let (namespaces, uids) = (namespaces.to_vec(), piece.to_vec());
            wholes.push(Whole { classes, namespaces, from, to: to.clone(), uids });
            if after.is_empty() {
                return wholes;
            }
            (rest, from) = (after, to);
        }
    };
    let classes = told.classes.values().map(|class| class.uid.clone()).collect();
    let streams = told.streams.values().map(|stream| stream.uid.to_string()).collect();
    [ranges(true, classes), ranges(false, streams)].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Object;
    use crate::model::Line;
    use crate::model::class::RawClass;
    use crate::model::settings::Settings;
    use crate::model::stream::RawStream;

    fn class() -> Class {
        let raw = json!({ "metadata": { "name": "p", "uid": "c1", "resourceVersion": "1" }, "spec": {
            "apiVersion": "v1", "kindRef": "P", "pluralName": "ps",
        } });
        Class::of(serde_json::from_value::<RawClass>(raw).unwrap(), Line::V1)
    }

    fn stream(name: &str, uid: &str, version: u32) -> Object {
        let metadata = json!({
            "name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
        });
        let raw = json!({ "metadata": metadata, "spec": { "x": 1 } });
        Object::Stream(Stream::of(serde_json::from_value::<RawStream>(raw).unwrap(), &class()))
    }

    fn known(index: &Index, told: &mut Told) -> (usize, usize) {
        let news = news(index, told);
        let counts = (news.streams.len(), news.gone_streams.len());
        for key in &news.gone_streams {
            told.streams.remove(key);
        }
        told.streams.extend(news.streams.into_iter().map(|(s, _)| (s.key.clone(), s)));
        counts
    }

    #[test]
    fn only_what_changed_since_is_news() {
        let (mut index, mut told) = (Index::new(Settings::default()), Told::default());
        index.learnt(Object::Class(class()));
        index.learnt(stream("a", "u1", 1));
        index.learnt(stream("b", "u2", 2));
        assert_eq!(known(&index, &mut told), (2, 0));
        assert_eq!(known(&index, &mut told), (0, 0));
        index.learnt(stream("a", "u1", 3));
        assert_eq!(known(&index, &mut told), (1, 0));
        // Made anew: the old one goes first, the new one is told with the next.
        index.learnt(stream("a", "u3", 4));
        assert_eq!(known(&index, &mut told), (0, 1));
        assert_eq!(known(&index, &mut told), (1, 0));
        index.forget_streams("p");
        assert_eq!(known(&index, &mut told), (0, 2));
        assert!(told.streams.is_empty());
    }

    #[test]
    fn ranges_cover_everything_and_touch_each_other() {
        let mut told = Told::default();
        let mut index = Index::new(Settings::default());
        index.learnt(Object::Class(class()));
        for i in 0..UIDS_MAX * 2 + 1 {
            index.learnt(stream(&format!("s{i}"), &format!("u{i:06}"), 1));
        }
        known(&index, &mut told);
        let all = wholes(&told, &[]);
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
