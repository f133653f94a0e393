//! `mainstay stream downtime …`: suspends many streams under one name and resumes the same ones
//! later. Labels and annotations are those of the kubectl plugin, so that either can end what the
//! other started.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use kernel::Ambient;
use serde_json::{Value, json};
use streams::kubectl::Client;
use streams::kubectl::find::{FoundStream, Scope, is_called};
use streams::kubectl::write::valid_downtime;
use streams::model::class::Class;
use streams::model::{DOWNTIME, DOWNTIME_BEGIN};

use super::{ClusterArgs, display_name, list};
use crate::error::{Error, Result};
use crate::output::{self, Format, ago, text};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Suspend all streams with a name prefix, until the downtime is stopped
    Declare(Declare),
    /// Resume the streams of a downtime
    Stop(One),
    /// List the downtimes
    List(ClusterArgs),
    /// List the streams of a downtime
    Details(One),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mainstay stream downtime declare db-move --prefix sales- --dry-run
  mainstay stream downtime declare db-move --prefix sales- -A
  mainstay stream downtime stop db-move -A

Streams that are suspended already, or part of another downtime, are not changed: they are not
resumed when this downtime ends.")]
pub struct Declare {
    /// Name of the downtime
    key: String,
    /// Prefix of the streams' names; empty for all streams
    #[arg(long, value_name = "TEXT")]
    prefix: String,
    /// Only streams of this class or kind
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only print which streams would be suspended
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub struct One {
    /// Name of the downtime
    key: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl Verb {
    pub async fn run(self) -> Result<()> {
        match self {
            Verb::Declare(verb) => verb.run().await,
            Verb::Stop(verb) => verb.stop().await,
            Verb::Details(verb) => verb.details().await,
            Verb::List(args) => list_all(&args).await,
        }
    }
}

impl Declare {
    async fn run(self) -> Result<()> {
        valid_downtime(&self.key)?;
        let (client, scope) = self.cluster.open().await?;
        let of = |class: &Class| self.class.as_deref().is_none_or(|name| is_called(class, name));
        let listing = client.streams(&scope, &of, "").await?;
        let named =
            listing.streams.into_iter().filter(|f| f.object_name().name.starts_with(&self.prefix));
        let (taken, left): (Vec<FoundStream>, Vec<FoundStream>) =
            named.partition(|found| !found.suspended() && found.downtime().is_none());
        for found in &left {
            let why = match found.downtime() {
                Some(key) if key == self.key => "is part of it already".to_owned(),
                Some(key) => format!("is part of the downtime {key}"),
                None => "is suspended already".to_owned(),
            };
            output::say(&format!("not changed: {} {why}", display_name(found)));
        }
        if taken.is_empty() {
            output::say("no stream was suspended");
            return Ok(());
        }
        let now = jiff::Timestamp::now();
        let (key, client, dry_run) = (&self.key, &client, self.dry_run);
        let done = each(&taken, async |found: &FoundStream| {
            if dry_run { Ok(()) } else { client.declare_downtime(found, key, now).await.map(drop) }
        });
        let rows = done.await?;
        output::print(&list::table(self.cluster.output, &Value::Array(rows)))?;
        if self.cluster.output == Format::Table {
            let me = output::program();
            output::say(&if dry_run {
                format!("{} streams would be suspended", taken.len())
            } else {
                format!(
                    "{} streams are being suspended; `{me} stream downtime stop {key}` resumes them",
                    taken.len()
                )
            });
        }
        Ok(())
    }
}

/// Applies a change to each stream; an error of one does not affect the others.
async fn each(
    streams: &[FoundStream],
    act: impl AsyncFn(&FoundStream) -> kernel::Result<()>,
) -> Result<Vec<Value>> {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for found in streams {
        match act(found).await {
            Ok(()) => rows.push(list::row(found)),
            Err(error) => failed.push(format!("{}: {error}", display_name(found))),
        }
    }
    if failed.is_empty() {
        Ok(rows)
    } else {
        let text = failed.join("\n");
        let done = rows.len();
        Err(Error::Kernel(kernel::Error::Conflict(format!(
            "{done} streams were changed; failed:\n{text}"
        ))))
    }
}

async fn of_downtimes(
    client: &Client,
    scope: &Scope,
    key: Option<&str>,
) -> Result<Vec<FoundStream>> {
    let selector = match key {
        Some(key) => format!("&labelSelector={}%3D{key}", DOWNTIME.replace('/', "%2F")),
        None => format!("&labelSelector={}", DOWNTIME.replace('/', "%2F")),
    };
    Ok(client.streams(scope, &|_| true, &selector).await?.streams)
}

impl One {
    async fn open(&self) -> Result<(Client, Vec<FoundStream>)> {
        valid_downtime(&self.key)?;
        let (client, scope) = self.cluster.open().await?;
        let found = of_downtimes(&client, &scope, Some(&self.key)).await?;
        if found.is_empty() {
            let place = match &scope {
                Scope::Everywhere => "in any namespace".to_owned(),
                Scope::Namespace(name) => format!("in namespace {name}; use -A for all"),
            };
            let message = format!("no stream is part of a downtime called {} {place}", self.key);
            return Err(kernel::Error::coded(0, kernel::Class::NotFound, message).into());
        }
        Ok((client, found))
    }

    async fn stop(self) -> Result<()> {
        let (client, found) = self.open().await?;
        let client = &client;
        let end = async |found: &FoundStream| client.end_downtime(found).await.map(drop);
        let rows = each(&found, end).await?;
        let count = rows.len();
        output::print(&list::table(self.cluster.output, &Value::Array(rows)))?;
        if self.cluster.output == Format::Table {
            output::say(&format!("resumed {count} streams"));
        }
        Ok(())
    }

    async fn details(self) -> Result<()> {
        let (_, found) = self.open().await?;
        let rows = found.iter().map(|found| {
            let mut row = list::row(found);
            row["downtime_begin"] = json!(found.annotation(DOWNTIME_BEGIN));
            row
        });
        output::print(&list::table(self.cluster.output, &rows.collect()))
    }
}

async fn list_all(args: &ClusterArgs) -> Result<()> {
    let (client, scope) = args.open().await?;
    let found = of_downtimes(&client, &scope, None).await?;
    let rows = downtimes(&found);
    if rows.is_empty() && args.output == Format::Table {
        output::say("there is no downtime");
        return Ok(());
    }
    let now = Ambient::system().now();
    let head = ["DOWNTIME", "STREAMS", "SINCE", "NAMESPACES"];
    output::print(&output::render(args.output, &Value::Array(rows), &head, &|one| {
        let namespaces = one["namespaces"].as_array().into_iter().flatten().map(text);
        vec![
            text(&one["key"]),
            text(&one["streams"]),
            ago(&one["begin"], now),
            namespaces.collect::<Vec<_>>().join(", "),
        ]
    }))
}

/// One row per downtime, with the earliest start of its streams.
fn downtimes(found: &[FoundStream]) -> Vec<Value> {
    let mut by_key: BTreeMap<&str, Vec<&FoundStream>> = BTreeMap::new();
    for one in found {
        by_key.entry(one.downtime().unwrap_or_default()).or_default().push(one);
    }
    let row = |(key, of): (&str, Vec<&FoundStream>)| {
        let begin = of.iter().filter_map(|found| found.annotation(DOWNTIME_BEGIN)).min();
        let mut namespaces: Vec<&str> =
            of.iter().map(|found| &*found.object_name().namespace).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        json!({ "key": key, "streams": of.len(), "begin": begin, "namespaces": namespaces })
    };
    by_key.into_iter().map(row).collect()
}
