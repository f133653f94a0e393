//! Reads tables in the text format of PostgreSQL's COPY, to verify them without a database.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use super::{AuditVerifier, Manifest, TableEntry, damaged, files};
use crate::change::AuditDraft;
use crate::log::AuditEntry;
use crate::{Json, Result, Timestamp};

/// The file of a table.
pub fn file_name(table: &str) -> String {
    format!("{table}.copy")
}

/// Counts the rows of all tables, and verifies the audit log.
pub fn verify(dir: &Path, manifest: &Manifest) -> Result<()> {
    let mut audit = AuditVerifier::new(&manifest.heads);
    for table in &manifest.tables {
        let path = dir.join(file_name(&table.name));
        let file = File::open(&path).map_err(|e| files::failed(&path, "be read", e))?;
        let mut rows = 0;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|e| damaged(format!("{}: {e}", path.display())))?;
            rows += 1;
            if table.name == "audit" {
                audit.next(&audit_entry(table, &line)?)?;
            }
        }
        if rows != table.rows {
            let (name, expected) = (&table.name, table.rows);
            return Err(damaged(format!("{name} has {rows} rows, {expected} expected")));
        }
    }
    audit.end(&manifest.heads)
}

fn audit_entry(table: &TableEntry, line: &str) -> Result<AuditEntry> {
    let fields: Vec<String> = line.split('\t').map(unescape).collect();
    let text = |name: &str| -> Result<String> {
        let at = table.columns.iter().position(|column| column == name);
        let field = at.and_then(|at| fields.get(at)).cloned();
        field.ok_or_else(|| damaged(format!("the table audit has no {name}")))
    };
    let number = |name: &str| -> Result<i64> {
        text(name)?
            .parse()
            .map_err(|_| damaged(format!("{name} of an audit entry is not a number")))
    };
    Ok(AuditEntry {
        seq: number("seq")?,
        at: Timestamp(number("at")?),
        entry: AuditDraft {
            actor: text("actor")?,
            action: text("action")?,
            target: text("target")?,
            org: text("org")?,
            origin: text("origin")?,
            outcome: text("outcome")?,
            request_id: text("request_id")?,
            before: Json::stored(text("before")?)?,
            after: Json::stored(text("after")?)?,
        },
        hash: text("hash")?,
    })
}

/// The escapes that COPY writes. There are others that it only reads.
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next() {
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a\tb\\n\nc\\"), "a\tb\\n\nc\\");
        assert_eq!(unescape("plain ü"), "plain ü");
    }
}
