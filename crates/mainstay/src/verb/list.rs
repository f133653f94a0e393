//! `mainstay list` and `mainstay search`: many objects.

use kernel::query::PAGE_MAX;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::key_value;
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output::{self, Format, ago, text};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay list widget
  mainstay list widget --phase failed --label team=core --label tier=web
  mainstay list widget --all -o name | xargs -n1 mainstay get")]
pub struct List {
    /// The kind of object
    kind: String,
    #[command(flatten)]
    paging: Paging,
    /// Only in this phase
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Only of this owner
    #[arg(long, value_name = "SUBJECT")]
    owner: Option<String>,
    /// Only with exactly this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Words begin words of a name, a description or a label. Filters: kind: phase: owner: name:
label:KEY=VALUE depends-on:KIND/ID used-by:KIND/ID, both also through others

Examples:
  mainstay search blue
  mainstay search kind:widget phase:ready label:team=core
  mainstay search depends-on:widget/cq1v0c8h5g2s73d1q8pg")]
pub struct Search {
    /// Words and filters; all must hold
    #[arg(required = true)]
    query: Vec<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
struct Paging {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Continue where a page ended
    #[arg(long, value_name = "N")]
    after: Option<i64>,
    /// All of them, page by page
    #[arg(long, conflicts_with = "after")]
    all: bool,
}

#[derive(Deserialize)]
struct Page {
    objects: Vec<Value>,
    next: Option<i64>,
}

impl List {
    pub async fn run(self) -> Result<()> {
        let mut query = vec![
            ("kind", Some(self.kind)),
            ("phase", self.phase),
            ("owner", self.owner),
            ("name", self.name),
        ];
        let label = |(key, value): &(String, String)| ("label", Some(format!("{key}={value}")));
        query.extend(self.labels.iter().map(label));
        pages("/api/v1/objects", query, &self.paging, &self.client).await
    }
}

impl Search {
    pub async fn run(self) -> Result<()> {
        let query = vec![("q", Some(self.query.join(" ")))];
        pages("/api/v1/search", query, &self.paging, &self.client).await
    }
}

async fn pages(
    path: &str,
    query: Vec<(&str, Option<String>)>,
    paging: &Paging,
    args: &ClientArgs,
) -> Result<()> {
    let mut client = Client::new(args)?;
    let mut found = Vec::new();
    let mut after = paging.after;
    let progress = Progress::new();
    loop {
        let mut query = query.clone();
        let limit = if paging.all { PAGE_MAX } else { paging.limit };
        query.push(("limit", Some(limit.to_string())));
        query.push(("after", after.map(|after| after.to_string())));
        let url = client.url(path, &query);
        let page: Page =
            progress.during(&format!("{} so far", found.len()), client.ask(url)).await?;
        found.extend(page.objects);
        after = page.next;
        if !paging.all || after.is_none() {
            break;
        }
    }
    drop(progress);
    if found.is_empty() && args.output == Format::Table {
        output::say("nothing found");
        return Ok(());
    }
    output::print(&objects(args.output, &Value::Array(found), &client))?;
    if let Some(after) = after {
        output::say(&format!("there is more: --after {after}, or --all"));
    }
    Ok(())
}

/// One object or a list of them.
pub fn objects(format: Format, objects: &Value, client: &Client) -> String {
    let now = client.ambient.now();
    let head = ["KEY", "NAME", "PHASE", "OWNER", "ORG", "AGE", "LABELS"];
    output::render(format, objects, &head, &|object| {
        let phase = text(&object["phase"]);
        let gone = !object["deleted_at"].is_null() && phase != "deleted";
        let pairs = object["labels"].as_object().into_iter().flatten();
        let labels: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", text(value))).collect();
        vec![
            text(&object["key"]),
            text(&object["name"]),
            if gone { format!("{phase} (deleted)") } else { phase },
            text(&object["owner"]),
            text(&object["org"]),
            ago(&object["created_at"], now),
            labels.join(","),
        ]
    })
}
