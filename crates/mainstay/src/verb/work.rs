//! `mainstay work`: the queue, for whoever wants to know why something does not get ahead.

use serde::Deserialize;
use serde_json::{Value, json};

use super::get::key;
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, ago, text};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay work                         what is due, running, retrying, stopped
  mainstay work --failing
  mainstay work list --state stopped -o name | xargs -n1 mainstay work retry
  mainstay work pause widget/ID --reason 'the disk is being changed'
  mainstay work resume widget/ID")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Work {
    #[command(subcommand)]
    verb: Option<WorkVerb>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum WorkVerb {
    /// Show rows of the queue
    List(ListArgs),
    /// Look at an object now, whatever it waits for
    Retry(One),
    /// Let nobody look at an object until it is resumed
    Pause(One),
    /// Go on with a paused object
    Resume(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// The kind, or KIND/ID
    kind: String,
    /// The id, if KIND is only the kind
    id: Option<String>,
    /// Why, for those who come after
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<State>,
    /// Only what has failed at least once
    #[arg(long)]
    failing: bool,
    /// Only what is paused
    #[arg(long)]
    paused: bool,
    /// Only of this organisation
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    /// Only this object
    #[arg(long, value_name = "KIND/ID")]
    key: Option<String>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum State {
    Ready,
    Waiting,
    Running,
    Stopped,
}

#[derive(Deserialize)]
struct Page {
    rows: Vec<Value>,
    #[serde(default)]
    counts: Vec<Value>,
}

impl Work {
    pub async fn run(self) -> Result<()> {
        match self.verb {
            None => list(self.list).await,
            Some(WorkVerb::List(args)) => list(args).await,
            Some(WorkVerb::Retry(one)) => one.act("retry", "will be looked at now").await,
            Some(WorkVerb::Pause(one)) => one.act("pause", "is paused").await,
            Some(WorkVerb::Resume(one)) => one.act("resume", "goes on").await,
        }
    }
}

impl One {
    async fn act(self, what: &str, done: &str) -> Result<()> {
        let key = key(&self.kind, self.id.as_deref())?;
        let mut client = Client::new(&self.client)?;
        let body = self.reason.map(|reason| json!({ "reason": reason }));
        let url = client.url(&format!("/api/v1/work/{key}/{what}"), &[]);
        client.post(url, body.as_ref()).await?;
        output::say(&format!("{key} {done}"));
        Ok(())
    }
}

async fn list(args: ListArgs) -> Result<()> {
    let mut client = Client::new(&args.client)?;
    let yes = |is: bool| is.then(|| "true".to_owned());
    let query = [
        ("state", args.state.map(|state| format!("{state:?}").to_lowercase())),
        ("failing", yes(args.failing)),
        ("paused", yes(args.paused)),
        ("org", args.org),
        ("key", args.key),
        ("limit", Some(args.limit.to_string())),
    ];
    let page: Page = client.get(client.url("/api/v1/work", &query)).await?;
    let now = client.ambient.now();
    let head = ["KEY", "STATE", "DUE", "FAILED", "LANE", "ORG", "WORKER", "WHY"];
    let person = args.client.output == Format::Table;
    if !(page.rows.is_empty() && person) {
        let row = |row: &Value| cells(row, now);
        output::print(&output::render(args.client.output, &Value::Array(page.rows), &head, &row))?;
    }
    if person {
        output::say(&summary(&page.counts));
    }
    Ok(())
}

fn cells(row: &Value, now: kernel::Timestamp) -> Vec<String> {
    let state = state(row);
    let due = if state == "stopped" { String::new() } else { ago(&row["due"], now) };
    let fields = ["attempt", "lane", "org", "worker", "reason"];
    [text(&row["key"]), state, due]
        .into_iter()
        .chain(fields.iter().map(|field| text(&row[*field])))
        .collect()
}

/// A row's state in a person's words: waiting after a failure is retrying.
fn state(row: &Value) -> String {
    let failed = row["attempt"].as_i64().unwrap_or(0) > 0;
    match (row["paused"] == true, row["state"].as_str().unwrap_or_default(), failed) {
        (true, state, _) => format!("paused ({state})"),
        (false, "waiting" | "ready", true) => "retrying".into(),
        (false, "ready", false) => "due".into(),
        (false, state, _) => state.into(),
    }
}

/// The whole queue, whatever was filtered: `widget: 3 due, 2 stopped`, a line per kind.
fn summary(counts: &[Value]) -> String {
    let mut kinds: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for count in counts {
        let row = json!({
            "paused": count["paused"],
            "state": count["state"],
            "attempt": i64::from(count["failing"] == true),
        });
        let said = format!("{} {}", text(&count["rows"]), state(&row));
        kinds.entry(text(&count["kind"])).or_default().push(said);
    }
    if kinds.is_empty() {
        return "the queue is empty: everything is as it should be".into();
    }
    let lines: Vec<String> =
        kinds.into_iter().map(|(kind, said)| format!("{kind}: {}", said.join(", "))).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_s_state_is_told_in_a_person_s_words() {
        let cases = [
            (json!({"state": "ready", "attempt": 0, "paused": false}), "due"),
            (json!({"state": "waiting", "attempt": 0, "paused": false}), "waiting"),
            (json!({"state": "waiting", "attempt": 3, "paused": false}), "retrying"),
            (json!({"state": "running", "attempt": 3, "paused": false}), "running"),
            (json!({"state": "stopped", "attempt": 3, "paused": false}), "stopped"),
            (json!({"state": "ready", "attempt": 0, "paused": true}), "paused (ready)"),
        ];
        for (row, said) in cases {
            assert_eq!(state(&row), said, "{row}");
        }
    }

    #[test]
    fn counts_become_one_line_per_kind() {
        let counts = [
            json!({"kind": "widget", "state": "ready", "paused": false, "failing": false, "rows": 3}),
            json!({"kind": "widget", "state": "stopped", "paused": false, "failing": true, "rows": 1}),
            json!({"kind": "other", "state": "waiting", "paused": false, "failing": true, "rows": 2}),
        ];
        assert_eq!(summary(&counts), "other: 2 retrying\nwidget: 3 due, 1 stopped");
    }
}
