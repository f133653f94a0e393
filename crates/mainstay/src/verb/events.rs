//! `mainstay events`: what happened, and with `--follow` what happens.

use std::time::Duration;

use kernel::Backoff;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, ClientArgs, sse};
use crate::error::{Error, Result};
use crate::output::{self, Format, text};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay events --last 20
  mainstay events --kind widget --limit 20
  mainstay events --object widget/ID --follow
  mainstay events --after 1200 --follow -o json >> events.jsonl")]
pub struct Events {
    /// Begin after this number [default: the oldest that is kept; with --follow, from now on]
    #[arg(long, value_name = "N")]
    after: Option<i64>,
    /// Begin so many events before the newest
    #[arg(long, value_name = "N", conflicts_with = "after", value_parser = clap::value_parser!(i64).range(0..))]
    last: Option<i64>,
    /// Keep printing as they happen; resumes by itself when the connection is lost
    #[arg(short, long)]
    follow: bool,
    /// How many at the most; with --follow, without end
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Only of objects of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only of this object
    #[arg(long, value_name = "KIND/ID")]
    object: Option<String>,
    /// Only of this organisation
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Value>,
    next: Option<i64>,
}

/// The delays before a lost connection is opened again.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(15) };

impl Events {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        if self.follow {
            return self.follow(&mut client).await;
        }
        let after = match self.last {
            Some(last) => Some(self.before_newest(&mut client, last).await?),
            None => self.after,
        };
        let mut query = self.query(after);
        query.push(("limit", Some(self.limit.to_string())));
        let page: Page = client.get(client.url("/api/v1/events", &query)).await?;
        let full = page.events.len() >= self.limit;
        if page.events.is_empty() && self.client.output == Format::Table {
            output::say("nothing happened");
            return Ok(());
        }
        let head = ["SEQ", "TIME", "TYPE", "OBJECT", "ORG"];
        output::print(&output::render(
            self.client.output,
            &Value::Array(page.events),
            &head,
            &cells,
        ))?;
        if let (true, Some(next)) = (full, page.next) {
            output::say(&format!("there may be more: --after {next}, or --last N for the newest"));
        }
        Ok(())
    }

    /// Where to begin to see the last `many` events.
    async fn before_newest(&self, client: &mut Client, many: i64) -> Result<i64> {
        let query = [("after", Some("latest".into())), ("limit", Some("1".into()))];
        let newest = client.get::<Page>(client.url("/api/v1/events", &query)).await?.next;
        let oldest =
            client.get::<Page>(client.url("/api/v1/events", &[("limit", Some("1".into()))]));
        let oldest = oldest.await?.events.first().and_then(|event| event["sequence"].as_i64());
        let kept = oldest.map_or(0, |oldest| oldest - 1);
        Ok((newest.unwrap_or(0) - many).max(kept))
    }

    fn query(&self, after: Option<i64>) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("after", after.map(|after| after.to_string())),
            ("kind", self.kind.clone()),
            ("object", self.object.clone()),
            ("org", self.org.clone()),
        ]
    }

    /// Never ends by itself, except when the server says no.
    async fn follow(&self, client: &mut Client) -> Result<()> {
        // A number, so that nothing is missed if the connection is lost before the first event.
        let mut last = match self.after {
            Some(after) => Some(after),
            None => Some(self.before_newest(client, self.last.unwrap_or(0)).await?),
        };
        output::say("following; Ctrl-C ends it");
        let mut failures = 0;
        let mut connected_once = false;
        loop {
            let before = last;
            let error = match self.stream(client, &mut last, &mut connected_once).await {
                Ok(()) => None,
                Err(e @ Error::Unreachable { .. }) if connected_once => Some(e),
                Err(e) => return Err(e),
            };
            if last != before {
                failures = 0;
            }
            let why = error.map_or("it was closed".into(), |e| e.to_string());
            let delay = RECONNECT.without_jitter(failures);
            failures += 1;
            output::say(&format!("connection lost ({why}); reconnecting in {} s", delay.as_secs()));
            tokio::time::sleep(delay).await;
        }
    }

    /// One connection, until it ends.
    async fn stream(
        &self,
        client: &mut Client,
        last: &mut Option<i64>,
        connected: &mut bool,
    ) -> Result<()> {
        let resume = last.map(|last| last.to_string());
        let url = client.url("/api/v1/events", &self.query(*last));
        let accept = |request: reqwest::RequestBuilder| {
            let request = request.header("accept", "text/event-stream");
            match resume {
                Some(last) => request.header("last-event-id", last),
                None => request,
            }
        };
        let mut response = client.send(Method::GET, url, None, accept).await?;
        *connected = true;
        let mut reader = sse::Reader::default();
        while let Some(bytes) = response.chunk().await.map_err(|e| client.unreachable(e))? {
            for message in reader.read(&bytes) {
                let event: Value = serde_json::from_str(&message.data)
                    .map_err(|e| client.bad_response(format!("an event: {e}")))?;
                output::print(&line(self.client.output, &event))?;
                *last = message.id.and_then(|id| id.parse().ok()).or(*last);
            }
        }
        Ok(())
    }
}

fn cells(event: &Value) -> Vec<String> {
    ["sequence", "time", "type", "subject", "org"]
        .iter()
        .map(|field| text(&event[*field]))
        .collect()
}

/// An event on a line of its own, so that lines can be cut, counted and appended.
fn line(format: Format, event: &Value) -> String {
    match format {
        Format::Json => event.to_string(),
        Format::Yaml => format!("---\n{}", output::yaml(event)),
        Format::Name => text(&event["subject"]),
        Format::Table => {
            let cells = cells(event);
            format!("{:>8}  {:24}  {:32}  {}", cells[0], cells[1], cells[2], cells[3])
        }
    }
}
