//! `mainstay work`: the queue, and why an object is stuck.

use std::collections::BTreeMap;

use kernel::Timestamp;
use kernel::queue::{QueueRow, State};
use serde::Deserialize;
use serde_json::json;

use super::get::key;
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, distance};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: due (is reconciled next), waiting (until its time), running, retrying (an attempt failed),
stopped (needs a person), paused (until it is resumed), pausing (paused, but an attempt is still
running). Objects that need no reconciling are not in the queue.

Examples:
  mainstay work                         what is due, running, retrying, stopped
  mainstay work --failing
  mainstay work --state stopped -o name | xargs -n1 mainstay work retry
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
    #[command(after_help = "\
Examples:
  mainstay work list --state retrying --org acme
  mainstay work list --key widget/ID -o yaml")]
    List(ListArgs),
    /// Reconcile an object now, whatever it waits for
    #[command(after_help = "\
Examples:
  mainstay work retry widget/ID
  mainstay work --state stopped -o name | xargs -n1 mainstay work retry")]
    Retry(One),
    /// Pause reconciling an object until it is resumed
    #[command(after_help = "\
Examples:
  mainstay work pause widget/ID --reason 'the disk is being changed'")]
    Pause {
        #[command(flatten)]
        one: One,
        /// The reason, for other operators
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Resume a paused object
    #[command(after_help = "\
Examples:
  mainstay work resume widget/ID")]
    Resume(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// The kind, or KIND/ID
    kind: String,
    /// The id, if KIND is only the kind
    id: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<RowState>,
    /// Only rows that have failed at least once
    #[arg(long)]
    failing: bool,
    /// Only paused rows
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

/// A row's state as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum RowState {
    Due,
    Waiting,
    Retrying,
    Running,
    Stopped,
    Paused,
    Pausing,
}

impl RowState {
    fn new(state: State, paused: bool, failing: bool) -> RowState {
        match (state, paused, failing) {
            (State::Running, true, _) => RowState::Pausing,
            (_, true, _) => RowState::Paused,
            (State::Running, ..) => RowState::Running,
            (State::Stopped, ..) => RowState::Stopped,
            (State::Ready | State::Waiting, _, true) => RowState::Retrying,
            (State::Ready, ..) => RowState::Due,
            (State::Waiting, ..) => RowState::Waiting,
        }
    }

    fn from_row(row: &QueueRow) -> RowState {
        RowState::new(row.state, row.paused, row.attempt > 0)
    }

    fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The server's filter that includes it; the rows are filtered again by their exact state.
    fn query(self) -> (&'static str, String) {
        match self {
            RowState::Due => ("state", "ready".into()),
            RowState::Retrying => ("failing", "true".into()),
            RowState::Paused | RowState::Pausing => ("paused", "true".into()),
            RowState::Waiting | RowState::Running | RowState::Stopped => ("state", self.word()),
        }
    }
}

#[derive(Deserialize)]
struct Page {
    rows: Vec<QueueRow>,
    #[serde(default)]
    counts: Vec<Count>,
}

#[derive(Deserialize)]
struct Count {
    kind: String,
    state: State,
    paused: bool,
    failing: bool,
    rows: i64,
}

impl Work {
    pub async fn run(self) -> Result<()> {
        match self.verb {
            None => list(self.list).await,
            Some(WorkVerb::List(args)) => list(args).await,
            Some(WorkVerb::Retry(one)) => one.act("retry", None, "will be reconciled now").await,
            Some(WorkVerb::Pause { one, reason }) => one.act("pause", reason, "is paused").await,
            Some(WorkVerb::Resume(one)) => one.act("resume", None, "is resumed").await,
        }
    }
}

impl One {
    async fn act(self, what: &str, reason: Option<String>, done: &str) -> Result<()> {
        let key = key(&self.kind, self.id.as_deref())?;
        let mut client = Client::new(&self.client)?;
        let body = reason.map(|reason| json!({ "reason": reason }));
        let url = client.url(&format!("/api/v1/work/{key}/{what}"), &[]);
        client.post(url, body.as_ref()).await?;
        output::say(&format!("{key} {done}"));
        Ok(())
    }
}

async fn list(args: ListArgs) -> Result<()> {
    let mut client = Client::new(&args.client)?;
    let mut query = vec![
        ("org", args.org),
        ("key", args.key),
        ("limit", Some(args.limit.to_string())),
        ("failing", args.failing.then(|| "true".to_owned())),
        ("paused", args.paused.then(|| "true".to_owned())),
    ];
    if let Some((name, value)) = args.state.map(RowState::query) {
        query.retain(|(other, _)| *other != name);
        query.push((name, Some(value)));
    }
    let mut page: Page = client.get(client.url("/api/v1/work", &query)).await?;
    let full = page.rows.len() >= args.limit;
    page.rows.retain(|row| args.state.is_none_or(|state| state == RowState::from_row(row)));
    let now = client.ambient.now();
    match args.client.output {
        Format::Json => output::print(&output::json(&page.rows))?,
        Format::Yaml => output::print(&output::yaml(&page.rows))?,
        Format::Name => output::print(
            &page.rows.iter().map(|row| format!("{}\n", row.key)).collect::<String>(),
        )?,
        Format::Table => {
            if !page.rows.is_empty() {
                let head = ["KEY", "STATE", "NEXT ATTEMPT", "FAILED", "ORG", "WHY"];
                output::print(&output::table(&head, page.rows.iter().map(|row| cells(row, now))))?;
            }
            if full {
                output::say(&format!("only the first {}; more with --limit", args.limit));
            }
            output::say(&summary(&page.counts));
        }
    }
    Ok(())
}

fn cells(row: &QueueRow, now: Timestamp) -> Vec<String> {
    let state = RowState::from_row(row);
    let next = match state {
        RowState::Due | RowState::Retrying | RowState::Waiting
            if row.due.seconds() <= now.seconds() =>
        {
            "now".into()
        }
        RowState::Due | RowState::Retrying | RowState::Waiting => distance(row.due, now),
        RowState::Running | RowState::Pausing | RowState::Stopped | RowState::Paused => {
            String::new()
        }
    };
    let running = matches!(state, RowState::Running | RowState::Pausing);
    let by = if running { format!("by {}", row.worker) } else { String::new() };
    let before = match row.reason.as_str() {
        "" => String::new(),
        reason if running => format!("before: {reason}"),
        reason => reason.to_owned(),
    };
    let parts = [by, row.note.clone(), before];
    let why = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let failed = if row.attempt == 0 { String::new() } else { format!("{}x", row.attempt) };
    vec![row.key.to_string(), state.word(), next, failed, row.org.clone(), why]
}

/// The whole queue, whatever was filtered: `widget: 3 due, 2 stopped`, a line per kind.
fn summary(counts: &[Count]) -> String {
    let mut kinds: BTreeMap<&str, BTreeMap<RowState, i64>> = BTreeMap::new();
    for count in counts {
        let state = RowState::new(count.state, count.paused, count.failing);
        *kinds.entry(&count.kind).or_default().entry(state).or_default() += count.rows;
    }
    if kinds.is_empty() {
        return "the queue is empty: nothing to reconcile".into();
    }
    let line = |(kind, states): (&str, BTreeMap<RowState, i64>)| {
        let states = states.iter().map(|(state, rows)| format!("{rows} {}", state.word()));
        format!("{kind}: {}", states.collect::<Vec<_>>().join(", "))
    };
    kinds.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Key;
    use kernel::change::Outcome;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn running() -> QueueRow {
        let mut row = QueueRow::new(Key::new("widget", "a"), "acme");
        row.claim("w1", 7, Timestamp(NOW.0 + 15_000));
        row
    }

    fn after(outcome: Outcome) -> QueueRow {
        running().complete(&outcome, NOW).expect("the row stays")
    }

    #[test]
    fn a_row_shows_its_state_its_next_attempt_and_why() {
        let later = Timestamp(NOW.0 + 240_000);
        let retry = Outcome::Retry { at: later, reason: "no region".into() };
        let stopped = after(Outcome::Stopped { reason: "no money".into() });
        let paused = QueueRow { paused: true, reason: "holiday".into(), ..stopped.clone() };
        let cases = [
            (running(), ["running", "", "", "by w1"]),
            (QueueRow { paused: true, ..running() }, ["pausing", "", "", "by w1"]),
            (after(Outcome::RequeueAt { at: NOW }), ["due", "now", "", ""]),
            (after(Outcome::RequeueAt { at: later }), ["waiting", "in 4m", "", ""]),
            (
                QueueRow { note: "4 of 9".into(), reason: "no region".into(), ..running() },
                ["running", "", "", "by w1; 4 of 9; before: no region"],
            ),
            (
                after(Outcome::Pending { at: later, note: "it builds".into() }),
                ["waiting", "in 4m", "", "it builds"],
            ),
            (after(retry), ["retrying", "in 4m", "1x", "no region"]),
            (stopped, ["stopped", "", "", "no money"]),
            (paused, ["paused", "", "", "holiday"]),
        ];
        for (row, [state, next, failed, why]) in cases {
            assert_eq!(cells(&row, NOW), ["widget/a", state, next, failed, "acme", why]);
            // As the server sends it and the client reads it.
            let sent = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<QueueRow>(&sent).unwrap(), row);
        }
    }

    #[test]
    fn counts_become_one_line_per_kind() {
        let count = |kind: &str, state, failing, rows| Count {
            kind: kind.into(),
            state,
            paused: false,
            failing,
            rows,
        };
        let counts = [
            count("widget", State::Ready, false, 3),
            count("widget", State::Ready, true, 1),
            count("widget", State::Waiting, true, 1),
            count("widget", State::Stopped, false, 1),
            count("other", State::Waiting, true, 2),
        ];
        assert_eq!(summary(&counts), "other: 2 retrying\nwidget: 3 due, 2 retrying, 1 stopped");
    }
}
