//! `mainstay audit archive`: moves old entries of the audit log from the store into a file.
//!
//! Every step can be interrupted: what is written has another name until it is whole, and the server
//! drops entries only after the file was verified. Run again with a whole file, it does what is left.

use std::path::{Path, PathBuf};

use kernel::audit_archive::{ArchiveWriter, Header, read, remove_part};
use kernel::files::blocking;
use kernel::log::{AuditEntry, AuditPosition, LogHeads};
use kernel::{Ambient, Timestamp};
use serde_json::{Value, json};

use super::audit::{Entries, head, page, replaced};
use crate::client::{Client, ClientArgs};
use crate::error::Result;
use crate::output;
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub struct Archive {
    /// A new file, or the one that an interrupted run of this command wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Archive the entries before this day (UTC) or time
    #[arg(long, value_name = "DATE", value_parser = date)]
    before: Timestamp,
    #[command(flatten)]
    client: ClientArgs,
}

impl Archive {
    pub async fn run(self) -> Result<()> {
        let mut client = Client::new(&self.client)?;
        let head = head(&mut client).await?;
        let file = self.file.display();
        let there = tokio::fs::try_exists(&self.file).await;
        let header = if there.map_err(|e| failed(&self.file, e))? {
            let path = self.file.clone();
            let header =
                blocking(move || remove_part(&path).and_then(|_| read(&path, |_| {}))).await?;
            if header.before() != head.archived && header.after() != head.archived {
                return Err(kernel::Error::Conflict(format!(
                    "{file} is another archive: it has the entries {} to {}, but the log is archived up \
                     to {}; name a new file",
                    header.first, header.last, head.archived.seq
                ))
                .into());
            }
            header
        } else {
            let Some(last) = last_before(&mut client, &head, self.before).await? else {
                output::say("nothing to archive: there is no entry before that");
                return Ok(());
            };
            self.write(&mut client, &head, last).await?
        };
        let position = json!(header.after());
        client.post(client.url("/api/v1/audit/archive", &[]), Some(&position)).await?;
        output::say(&format!(
            "{file} has the entries {} to {}, verified; the log continues from there",
            header.first, header.last
        ));
        output::print(&format!("{}:{}", header.last, header.hash_after))
    }

    async fn write(
        &self,
        client: &mut Client,
        head: &LogHeads,
        last: AuditPosition,
    ) -> Result<Header> {
        let keys: Value = client.get(client.url("/api/v1/objects/installation/keys", &[])).await?;
        let installation = keys["spec"]["installation-key"].as_str().unwrap_or_default();
        let made_at = Ambient::system().now();
        let header =
            Header::new(installation.to_owned(), made_at, head.archived.clone(), last.clone());
        let path = self.file.clone();
        let mut writer = blocking(move || ArchiveWriter::create(&path, &header)).await?;
        let (mut after, progress) = (head.archived.seq, Progress::new());
        while after < last.seq {
            let mut entries = page(client, &progress, after, last.seq).await?;
            entries.retain(|entry| entry.seq <= last.seq);
            let Some(newest) = entries.last() else { break };
            after = newest.seq;
            writer = blocking(move || writer.add(&entries).map(|()| writer)).await?;
        }
        Ok(blocking(move || writer.finish()).await?)
    }
}

/// Finds the last entry before a time by halving: clocks that were set back cost a few entries more
/// or less, never the order.
async fn last_before(
    client: &mut Client,
    head: &LogHeads,
    time: Timestamp,
) -> Result<Option<AuditPosition>> {
    let (mut old, mut new, mut found) = (head.archived.seq, head.audit_seq + 1, None);
    while new - old > 1 {
        let middle = old + (new - old) / 2;
        let query = [("after", Some((middle - 1).to_string())), ("limit", Some("1".into()))];
        let page: Entries<AuditEntry> = client.get(client.url("/api/v1/audit", &query)).await?;
        match page.entries.into_iter().next() {
            Some(entry) if entry.at < time => {
                old = middle;
                found = Some(AuditPosition { seq: entry.seq, hash: entry.hash });
            }
            _ => new = middle,
        }
    }
    Ok(found)
}

/// Verifies archives, and that they follow each other from the first entry to the last that was
/// archived. Returns where each of them ends.
pub async fn verify(
    files: Vec<PathBuf>,
    noted: Vec<(i64, String)>,
    archived: AuditPosition,
) -> Result<Vec<AuditPosition>> {
    blocking(move || {
        let mut headers = Vec::new();
        for file in &files {
            let mut wrong = None;
            let header = read(file, |entry| {
                if noted.iter().any(|(seq, hash)| *seq == entry.seq && *hash != entry.hash) {
                    wrong.get_or_insert(entry.seq);
                }
            })?;
            if let Some(seq) = wrong {
                let file = file.display();
                return Err(replaced(format!(
                    "entry {seq} in {file}, or one before it, was replaced: its hash is not the noted one"
                )));
            }
            headers.push(header);
        }
        headers.sort_by_key(|header| header.first);
        let mut end = AuditPosition::default();
        for header in &headers {
            if header.first > end.seq + 1 {
                return Err(missing(end.seq + 1, header.first - 1));
            }
            if header.before() != end {
                return Err(replaced(format!(
                    "the archive that begins with entry {} does not follow the one before",
                    header.first
                )));
            }
            if header.last == archived.seq && header.after() != archived {
                return Err(replaced(format!(
                    "the archive that ends with entry {} is not the one that the server knows",
                    header.last
                )));
            }
            end = header.after();
        }
        if end.seq < archived.seq {
            return Err(missing(end.seq + 1, archived.seq));
        }
        Ok(headers.iter().map(Header::after).collect())
    })
    .await
}

fn missing(first: i64, last: i64) -> crate::error::Error {
    let message =
        format!("the entries {first} to {last} are in none of the archives; name all of them");
    kernel::Error::invalid("archive", message).into()
}

fn date(text: &str) -> Result<Timestamp, String> {
    let time = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    serde_json::from_value(Value::String(time)).map_err(|_| {
        "must be a day, as in 2026-01-31, or a time, as in 2026-01-31T12:00:00Z".into()
    })
}

fn failed(path: &Path, source: std::io::Error) -> crate::error::Error {
    crate::error::Error::file(format!("{} cannot be read", path.display()), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_a_day_or_a_time() {
        assert_eq!(date("2023-11-14"), Ok(Timestamp(1_699_920_000_000)));
        assert_eq!(date("2023-11-14T22:13:20Z"), Ok(Timestamp(1_700_000_000_000)));
        assert!(date("yesterday").unwrap_err().contains("2026-01-31"));
    }
}
