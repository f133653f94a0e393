//! Events of a given size, and stores that are full of them.

use bus::config::Mode;
use bus::model::{Message, Template};
use bus::ports::out::cloudevents::CloudEvents;
use kernel::change::EventDraft;
use kernel::log::EventFilter;
use kernel::{Ambient, Change, Json, Key, Store};

/// How many objects the events are about.
const OBJECTS: usize = 1000;
/// Changes per call of the store, and about so many bytes.
const CHUNK: usize = 2048;
const CHUNK_BYTES: usize = 16 << 20;
const NOISE_BYTES: usize = 1 << 20;

/// Text that does not compress.
pub struct Noise(String);

impl Noise {
    pub fn new() -> Noise {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(LETTERS[usize::from(state.to_le_bytes()[3] & 63)])
        };
        Noise(std::iter::repeat_with(next).take(NOISE_BYTES).collect())
    }

    /// An event of an object whose data has this size.
    pub fn event(&self, n: usize, bytes: usize) -> Change {
        // The same text again only after a megabyte: beyond what lz4 looks back.
        let from = n * 1024 % (NOISE_BYTES - bytes);
        let without_text = r#"{"n":0000000,"text":""}"#.len();
        let text = &self.0[from..from + bytes - without_text];
        let data = Json::stored(format!(r#"{{"n":{:07},"text":"{text}"}}"#, 1_000_000 + n));
        let event = EventDraft {
            kind: "mainstay.widget.ready".into(),
            subject: Key::new("widget", &format!("bench-{:04}", n % OBJECTS)),
            org: "acme".into(),
            data: Some(data.expect("letters are JSON")),
        };
        Change { event: Some(event), ..Change::default() }
    }
}

/// Commits events, many at a time.
pub async fn fill(store: &dyn Store, count: usize, bytes: usize) -> anyhow::Result<()> {
    let (noise, ambient) = (Noise::new(), Ambient::system());
    let chunk = (CHUNK_BYTES / bytes).clamp(1, CHUNK);
    for from in (0..count).step_by(chunk) {
        let events = from..(from + chunk).min(count);
        let changes = events.map(|n| noise.event(n, bytes)).collect();
        for verdict in store.commit_all(changes, ambient.now()).await? {
            verdict?;
        }
    }
    Ok(())
}

/// Writes events as the relay does by default.
pub fn cloudevents(name: &str) -> CloudEvents {
    let template = |text: &str| Template::parse(text).expect("it is valid");
    CloudEvents {
        mode: Mode::Structured,
        name: Some(template(name)),
        routing_key: Some(template("{type}")),
        url: "http://127.0.0.1".into(),
        bytes_max: bus::config::MESSAGE_BYTES_MAX,
    }
}

/// The messages of the first events of a store, as the relay would send them.
pub async fn messages(store: &dyn Store, name: &str, count: usize) -> anyhow::Result<Vec<Message>> {
    let (cloudevents, filter) = (cloudevents(name), EventFilter::default());
    let mut messages: Vec<Message> = Vec::with_capacity(count);
    while messages.len() < count {
        let after = messages.last().map_or(0, |last| last.seq);
        let events = store.events(after, &filter, 1000).await?;
        anyhow::ensure!(!events.is_empty(), "the store has only {} events", messages.len());
        let rest = count - messages.len();
        let page = events.iter().take(rest).map(|event| cloudevents.message(event, &event.data, 0));
        messages.extend(page);
    }
    Ok(messages)
}
