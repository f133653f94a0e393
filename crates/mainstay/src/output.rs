//! Output of commands: tables for people, JSON, YAML or names for scripts. Data goes to
//! stdout, messages to stderr.

use std::io::{IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use kernel::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// `name` is one key per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
    Name,
}

/// Writes data. A closed pipe (`| head`) ends the command without an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => Err(Error::file("stdout cannot be written", e)),
        Ok(()) => Ok(()),
    }
}

/// Prints a message for people; not part of the data.
pub fn say(text: &str) {
    // Without a stderr there is no one to read it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("our own types serialise") + "\n"
}

pub fn yaml<T: Serialize + ?Sized>(value: &T) -> String {
    serde_yaml_ng::to_string(value).expect("our own types serialise")
}

/// One item (an object, a row) or a list of them in the format that was asked for.
pub fn render(
    format: Format,
    items: &Value,
    head: &[&str],
    row: &dyn Fn(&Value) -> Vec<String>,
) -> String {
    let each = || match items {
        Value::Array(items) => items.iter().collect::<Vec<_>>(),
        one => vec![one],
    };
    match format {
        Format::Json => json(items),
        Format::Yaml => yaml(items),
        Format::Name => each().iter().map(|item| name(item) + "\n").collect(),
        Format::Table => table(head, each().into_iter().map(row)),
    }
}

/// The name of an item: an object's or a row's key, an event's subject, an entry's number, an
/// instance's id.
fn name(item: &Value) -> String {
    let fields = ["key", "subject", "seq", "id"].iter();
    fields.map(|field| text(&item[*field])).find(|name| !name.is_empty()).unwrap_or_default()
}

/// What the last column needs at the least for words to be readable in it.
const LAST_COLUMN_MIN: u16 = 24;

/// Aligned columns. In a window that is wide enough the last one is wrapped into it; the others
/// never are, so that keys can be copied, and nothing is ever cut.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let widths = table.column_max_content_widths();
    let needed: u16 = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    let window = table.width().filter(|_| std::io::stdout().is_terminal()).unwrap_or(0);
    if window >= needed + LAST_COLUMN_MIN {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        for column in table.column_iter_mut().take(widths.len().saturating_sub(1)) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    } else {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A cell of one line without control characters.
fn printable(cell: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    cell.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// A field as a cell: text as it is, nothing for null, else compact JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How long ago `at` (RFC 3339) was, or how far ahead it is: `5m`, `in 3s`.
pub fn ago(at: &Value, now: Timestamp) -> String {
    match serde_json::from_value::<Timestamp>(at.clone()) {
        Ok(at) => distance(at, now),
        Err(_) => text(at),
    }
}

/// The same of a timestamp; nothing for never.
pub fn distance(at: Timestamp, now: Timestamp) -> String {
    if at == Timestamp::MAX {
        return String::new();
    }
    let seconds = now.seconds() - at.seconds();
    let long = match seconds.abs() {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    };
    if seconds < 0 { format!("in {long}") } else { long }
}

/// What this program was called as, so that a line that it prints can be pasted.
pub fn program() -> String {
    let name = std::env::args().next().filter(|name| !name.is_empty());
    name.map_or_else(|| "mainstay".into(), |name| quoted(&name))
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_items_come_as_a_table_as_names_and_as_data() {
        let items =
            json!([{"key": "widget/a", "phase": "ready"}, {"key": "widget/b", "phase": "x"}]);
        let row = |item: &Value| vec![text(&item["key"]), text(&item["phase"])];
        let as_text = |format| render(format, &items, &["KEY", "PHASE"], &row);
        assert_eq!(as_text(Format::Table), "KEY       PHASE\nwidget/a  ready\nwidget/b  x\n");
        assert_eq!(as_text(Format::Name), "widget/a\nwidget/b\n");
        assert_eq!(serde_json::from_str::<Value>(&as_text(Format::Json)).unwrap(), items);
        assert_eq!(serde_yaml_ng::from_str::<Value>(&as_text(Format::Yaml)).unwrap(), items);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c\nd"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
    }

    #[test]
    fn times_are_shown_relative_to_now() {
        let now = Timestamp(1_700_000_000_000);
        let cases = [
            (0, "0s"),
            (-90, "90s"),
            (-600, "10m"),
            (-90_000, "25h"),
            (-864_000, "10d"),
            (5, "in 5s"),
        ];
        for (seconds, said) in cases {
            let at = Timestamp(now.0 + seconds * 1000).to_string();
            assert_eq!(ago(&json!(at), now), said);
        }
        assert_eq!(distance(Timestamp::MAX, now), "");
        assert_eq!(ago(&json!("soon"), now), "soon");
    }

    #[test]
    fn a_printed_word_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("target/release/mainstay"), "target/release/mainstay");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
