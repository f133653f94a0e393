//! `mainstay audit`: shows, verifies and archives the audit log.

use std::path::PathBuf;

use kernel::Class;
use kernel::log::{AuditCheck, AuditEntry, AuditPosition, LogHeads};
use serde::Deserialize;
use serde_json::Value;

use super::audit_archive::{self, Archive};
use crate::client::{Client, ClientArgs};
use crate::error::{Error, Result};
use crate::output::{self, Format, text};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mainstay audit --actor alice
  mainstay audit --target widget/ID -o json
  mainstay audit head                        note this somewhere else
  mainstay audit verify --noted 1200:4f0c…   and prove later that nothing before it changed
  mainstay audit archive 2025.jsonl --before 2026-01-01")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    verb: Option<AuditVerb>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum AuditVerb {
    /// Show entries, newest first
    #[command(after_help = "\
Examples:
  mainstay audit list --actor alice --limit 10
  mainstay audit list --after 0 -o json      from the first on")]
    List(ListArgs),
    /// Follow the chain of hashes from the first entry to the last
    ///
    /// From the last archived one, if there are archives.
    #[command(after_help = "\
Prints the last entry's number and hash. Note them where the server's owner cannot write: anyone who
can rewrite the whole database can also make a new chain, but not one that fits what was noted.

Examples:
  mainstay audit verify
  mainstay audit verify --noted 1200:4f0c…
  mainstay audit verify --archive 2024.jsonl --archive 2025.jsonl")]
    Verify {
        /// A head that was noted before, SEQ:HASH; may be repeated
        #[arg(long, value_name = "SEQ:HASH", value_parser = noted)]
        noted: Vec<(i64, String)>,
        /// An archive to verify, with all others that join it to the log; may be repeated
        #[arg(long = "archive", value_name = "FILE")]
        archives: Vec<PathBuf>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Move old entries from the store into a file
    #[command(after_help = "\
The file is written, synced, read back and verified before the server drops the entries. After an interruption, run the same command again: nothing is lost, and it completes what is
left. A file is never overwritten. Keep the file: `mainstay audit verify` needs no archive, but proves
nothing of the entries in one that is lost.

Examples:
  mainstay audit archive /archive/audit-2025.jsonl --before 2026-01-01
  mainstay audit verify --archive /archive/audit-2025.jsonl")]
    Archive(Archive),
    /// Print the last entry's number and hash
    #[command(after_help = "\
Examples:
  mainstay audit head >> noted.txt")]
    Head(ClientArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only what this subject did
    #[arg(long, value_name = "SUBJECT")]
    actor: Option<String>,
    /// Only what was done to this
    #[arg(long, value_name = "KIND/ID")]
    target: Option<String>,
    /// Only of this organisation
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    /// Begin after this entry, oldest first
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// Continue with those before this entry
    #[arg(long, value_name = "SEQ", conflicts_with = "after")]
    before: Option<i64>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Deserialize)]
pub(super) struct Entries<T> {
    pub entries: Vec<T>,
    archived: Option<i64>,
}

impl Audit {
    pub async fn run(self) -> Result<()> {
        match self.verb {
            None => list(self.list).await,
            Some(AuditVerb::List(args)) => list(args).await,
            Some(AuditVerb::Head(args)) => {
                let head = head(&mut Client::new(&args)?).await?;
                output::print(&match args.output {
                    Format::Json => output::json(&head),
                    Format::Yaml => output::yaml(&head),
                    Format::Name | Format::Table => {
                        format!("{}:{}", head.audit_seq, head.audit_hash)
                    }
                })
            }
            Some(AuditVerb::Archive(archive)) => archive.run().await,
            Some(AuditVerb::Verify { client, noted, archives }) => {
                let head = verify(&mut Client::new(&client)?, noted, archives).await?;
                output::print(&format!("{}:{}", head.audit_seq, head.audit_hash))
            }
        }
    }
}

async fn list(args: ListArgs) -> Result<()> {
    let mut client = Client::new(&args.client)?;
    let number = |n: Option<i64>| n.map(|n| n.to_string());
    let newest_first = args.after.is_none().then_some(args.before.unwrap_or(i64::MAX));
    let query = [
        ("actor", args.actor),
        ("target", args.target),
        ("org", args.org),
        ("after", number(args.after)),
        ("before", number(newest_first)),
        ("limit", Some(args.limit.to_string())),
    ];
    let page: Entries<Value> = client.get(client.url("/api/v1/audit", &query)).await?;
    if args.client.output == Format::Table {
        if let Some(archived) = page.archived {
            output::say(&format!("entries up to {archived} are in an archive"));
        }
        if page.entries.is_empty() {
            output::say("nothing found");
            return Ok(());
        }
    }
    let head = ["SEQ", "TIME", "ACTOR", "ACTION", "TARGET", "OUTCOME", "ORIGIN", "REQUEST"];
    let cells = |entry: &Value| {
        let inner = ["actor", "action", "target", "outcome", "origin", "request_id"];
        let inner = inner.iter().map(|field| text(&entry["entry"][*field]));
        [text(&entry["seq"]), text(&entry["at"])].into_iter().chain(inner).collect()
    };
    output::print(&output::render(args.client.output, &Value::Array(page.entries), &head, &cells))
}

pub(super) async fn head(client: &mut Client) -> Result<LogHeads> {
    client.get(client.url("/api/v1/audit/head", &[])).await
}

/// Verifies the archives, then the log. Reads the head first, then every entry up to it: later ones
/// are ignored.
async fn verify(
    client: &mut Client,
    mut noted: Vec<(i64, String)>,
    archives: Vec<PathBuf>,
) -> Result<LogHeads> {
    let head = head(client).await?;
    let archived = if archives.is_empty() {
        if let Some((seq, _)) = noted.iter().find(|(seq, _)| *seq <= head.archived.seq) {
            let message = format!("entry {seq} is in an archive; name it with --archive");
            return Err(kernel::Error::invalid("noted", message).into());
        }
        0
    } else {
        let joined = audit_archive::verify(archives, noted.clone(), head.archived.clone()).await?;
        // An archive that the server does not know of yet must fit, too.
        noted.extend(joined.iter().map(|AuditPosition { seq, hash }| (*seq, hash.clone())));
        joined.len()
    };
    let mut check = AuditCheck::after(&head.archived);
    let progress = Progress::new();
    while check.head().audit_seq < head.audit_seq {
        let page = page(client, &progress, check.head().audit_seq, head.audit_seq).await?;
        if page.is_empty() {
            break;
        }
        walk(&mut check, &page, head.audit_seq, &noted)?;
    }
    check.end(&head)?;
    if let Some((seq, _)) = noted.iter().find(|(seq, _)| *seq > head.audit_seq) {
        return Err(replaced(format!(
            "entry {seq} was noted, but the log ends at {}",
            head.audit_seq
        )));
    }
    let (seq, before) = (head.audit_seq, head.archived.seq);
    output::say(&match (before, archived) {
        (0, _) => format!("the audit log is whole: {seq} entries"),
        (_, 0) => format!(
            "the audit log is whole from entry {} on: {} entries; those before are archived",
            before + 1,
            seq - before
        ),
        (_, files) => format!(
            "the audit log is whole: {seq} entries, {before} of them archived; verified {files} archives"
        ),
    });
    Ok(head)
}

/// The entries after `after`, the first 500.
pub(super) async fn page(
    client: &mut Client,
    progress: &Progress,
    after: i64,
    last: i64,
) -> Result<Vec<AuditEntry>> {
    let query = [("after", Some(after.to_string())), ("limit", Some("500".into()))];
    let url = client.url("/api/v1/audit", &query);
    let message = format!("{after} of {last} entries");
    let page: Entries<AuditEntry> = progress.during(&message, client.ask(url)).await?;
    Ok(page.entries)
}

fn walk(
    check: &mut AuditCheck,
    entries: &[AuditEntry],
    last: i64,
    noted: &[(i64, String)],
) -> Result<()> {
    for entry in entries.iter().take_while(|entry| entry.seq <= last) {
        check.next(entry)?;
        if noted.iter().any(|(seq, hash)| *seq == entry.seq && *hash != entry.hash) {
            let seq = entry.seq;
            return Err(replaced(format!(
                "entry {seq}, or one before it, was replaced: its hash is not the noted one"
            )));
        }
    }
    // Nothing taken from a page means that its first entry is past the end: a gap up to there.
    match entries.first() {
        Some(first) if first.seq > last => Ok(check.next(first)?),
        _ => Ok(()),
    }
}

pub(super) fn replaced(message: String) -> Error {
    let message = format!("the audit log is not whole: {message}");
    Error::Server { class: Class::Terminal, message, field: None, request_id: None }
}

fn noted(text: &str) -> Result<(i64, String), String> {
    let pair =
        text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash.to_owned())));
    pair.ok_or_else(|| "must be SEQ:HASH, as `mainstay audit head` prints it".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Timestamp;
    use kernel::change::AuditDraft;

    #[test]
    fn a_rewritten_log_does_not_fit_what_was_noted_before() {
        let mut head = LogHeads::default();
        let draft = |actor: &str| AuditDraft { actor: actor.into(), ..AuditDraft::default() };
        let entries: Vec<AuditEntry> = ["a", "b", "c"]
            .iter()
            .map(|actor| head.append_audit(draft(actor), Timestamp(1)))
            .collect();
        let right = (2, entries[1].hash.clone());
        let wrong = (2, "0".repeat(64));
        let check = |noted: &(i64, String)| {
            walk(&mut AuditCheck::default(), &entries, 3, std::slice::from_ref(noted))
        };
        assert!(check(&right).is_ok());
        let error = check(&wrong).unwrap_err();
        assert!(error.to_string().contains("entry 2"), "{error}");
        assert_eq!(error.class().exit_code(), 1);
    }

    #[test]
    fn a_missing_entry_is_named() {
        let mut head = LogHeads::default();
        let entries: Vec<AuditEntry> =
            (0..3).map(|i| head.append_audit(AuditDraft::default(), Timestamp(i))).collect();
        let error = walk(&mut AuditCheck::default(), &entries[1..], 3, &[]).unwrap_err();
        assert!(error.to_string().contains("entry 1 is missing"), "{error}");
    }
}
