//! Hears of other replicas' commits. What is missed while the connection is away costs nothing
//! but time: due times, and the reader's own position, are the guarantee.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio_postgres::{AsyncMessage, Config};

use super::connect;
use crate::store::Hints;

/// The channel that every commit notifies, with the number of its last event.
pub const CHANNEL: &str = "mainstay";
const LISTEN: &str = "LISTEN mainstay";

const RECONNECT: Duration = Duration::from_millis(500);

pub async fn run(config: Config, hints: Arc<Hints>) {
    loop {
        if let Err(error) = listen(&config, &hints).await {
            tracing::warn!(error = super::chain(&error), "lost the PostgreSQL notifications");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(config: &Config, hints: &Hints) -> Result<(), Box<tokio_postgres::Error>> {
    let Ok(tls) = connect::tls() else { return Ok(()) };
    let (client, mut connection) = config.connect(tls).await?;
    let mut messages = futures::stream::poll_fn(move |cx| connection.poll_message(cx));
    let subscribe = client.batch_execute(LISTEN);
    let follow = async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(note) = message? {
                hints.hint_event(note.payload().parse().unwrap_or(0));
                hints.hint_work();
            }
        }
        Ok(())
    };
    let subscribed = async {
        subscribe.await?;
        // Whatever came while nobody listened.
        let row = client.query_one("SELECT event_seq FROM meta", &[]).await?;
        hints.hint_event(row.get(0));
        hints.hint_work();
        Ok::<(), Box<tokio_postgres::Error>>(())
    };
    futures::try_join!(follow, subscribed).map(|_| ())
}
