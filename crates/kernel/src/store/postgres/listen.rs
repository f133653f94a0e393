//! Listens for other replicas' commits. A missed notification costs only time:
//! due times, and the reader's own position, are the guarantee.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio_postgres::{AsyncMessage, Config};

use super::connect;
use crate::error::chain;
use crate::store::Wakeups;

/// The channel that every commit notifies.
pub const CHANNEL: &str = "mainstay";
const LISTEN: &str = "LISTEN mainstay";

/// The payload of a commit's notification.
pub struct Note {
    /// The number of its last event.
    pub event_seq: i64,
    /// Whether it made rows due.
    pub woke: bool,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.event_seq, u8::from(self.woke))
    }
}

impl Note {
    /// Treats a note that cannot be parsed as work: a superfluous claim does no harm.
    fn parse(text: &str) -> Note {
        let (seq, woke) = text.split_once(' ').unwrap_or((text, "1"));
        Note { event_seq: seq.parse().unwrap_or(0), woke: woke != "0" }
    }
}

const RECONNECT: Duration = Duration::from_millis(500);

pub async fn run(config: Config, wakeups: Arc<Wakeups>) {
    loop {
        if let Err(error) = listen(&config, &wakeups).await {
            tracing::warn!(
                error = chain(&error),
                "lost the PostgreSQL notification connection; reconnecting"
            );
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(config: &Config, wakeups: &Wakeups) -> Result<(), Box<tokio_postgres::Error>> {
    let Ok(tls) = connect::tls() else { return Ok(()) };
    let (client, mut connection) = config.connect(tls).await?;
    let mut messages = futures::stream::poll_fn(move |cx| connection.poll_message(cx));
    let subscribe = client.batch_execute(LISTEN);
    let follow = async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(note) = message? {
                let note = Note::parse(note.payload());
                wakeups.notify_event(note.event_seq);
                if note.woke {
                    wakeups.notify_work();
                }
            }
        }
        Ok(())
    };
    let subscribed = async {
        subscribe.await?;
        // Catches up on commits before the subscription.
        let row = client.query_one("SELECT event_seq FROM meta", &[]).await?;
        wakeups.notify_event(row.get(0));
        wakeups.notify_work();
        Ok::<(), Box<tokio_postgres::Error>>(())
    };
    futures::try_join!(follow, subscribed).map(|_| ())
}
