//! The configuration as people read it: every value, redacted, with where it came from.

use serde_json::Value;

use super::problem::join;
use super::{Config, Loaded};

/// One value of the effective configuration.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    pub key: String,
    pub value: Value,
    pub origin: String,
}

/// Every value with its origin. Secrets redact themselves when they are serialised.
pub fn rows(loaded: &Loaded) -> Vec<Row> {
    let tree = serde_json::to_value(&loaded.config).expect("the configuration serialises");
    let row = |(key, value): (String, Value)| {
        let origin = loaded.origin(&key).to_string();
        Row { key, value, origin }
    };
    leaves(&tree).into_iter().map(row).collect()
}

/// The values of a tree by path, sections after the plain values.
pub fn leaves(tree: &Value) -> Vec<(String, Value)> {
    fn walk(path: &str, value: &Value, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(table) if path.is_empty() || !table.is_empty() => {
                let (tables, plain): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| nested(v));
                for (key, value) in plain.into_iter().chain(tables) {
                    walk(&join(path, key), value, out);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for (i, item) in items.iter().enumerate() {
                    walk(&format!("{path}[{i}]"), item, out);
                }
            }
            _ => out.push((path.into(), value.clone())),
        }
    }
    let mut out = Vec::new();
    walk("", tree, &mut out);
    out
}

fn nested(value: &Value) -> bool {
    value.is_object()
}

/// A configuration as a TOML file, with a note on each value.
pub fn toml_text(config: &Config, note: &dyn Fn(&str) -> Option<String>) -> String {
    let tree = serde_json::to_value(config).expect("the configuration serialises");
    let mut out = String::new();
    section("", &tree, note, &mut out);
    out
}

fn section(path: &str, tree: &Value, note: &dyn Fn(&str) -> Option<String>, out: &mut String) {
    let Value::Object(table) = tree else { return };
    let (tables, plain): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| nested(value));
    if !path.is_empty() && (!plain.is_empty() || tables.is_empty()) {
        out.push_str(&format!("\n[{path}]\n"));
    }
    for (key, value) in plain {
        let note = note(&join(path, key)).map(|note| format!("  # {note}")).unwrap_or_default();
        match toml::Value::try_from(without_nulls(value)) {
            Ok(value) => out.push_str(&format!("{key} = {value}{note}\n")),
            Err(_) => out.push_str(&format!("# {key} is not set{note}\n")),
        }
    }
    for (key, value) in tables {
        section(&join(path, key), value, note, out);
    }
}

/// TOML has no null: what is not set is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(table) => {
            let set = table.iter().filter(|(_, value)| !value.is_null());
            set.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        plain => plain.clone(),
    }
}

/// `docs/config.toml`: every key with its default.
pub fn default_document() -> String {
    const HEADER: &str = "\
# Every key of Mainstay's configuration, with its default. Generated from the code; a test keeps
# it true. An empty file is a whole configuration: write down only what differs.
#
# Read in this order, later wins: this file (--config FILE, else
# $XDG_CONFIG_HOME/mainstay/config.toml, else ~/.config/mainstay/config.toml), the environment
# (MAINSTAY_HTTP__BODY_BYTES_MAX=1000 sets http.body_bytes_max), flags (--listen, --data-dir,
# --database, --set http.body_bytes_max=1000). `mainstay config show` says what came from where.

";
    format!("{HEADER}{}", toml_text(&Config::default(), &|_| None))
}
