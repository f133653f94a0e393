//! The sources of values. Each becomes a tree of values, with the position where each
//! value was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems, join};

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Env(String),
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// All inputs of the configuration, passed in for tests.
#[derive(Default)]
pub struct Sources {
    /// As `--config` named it. None: [`Sources::usual_file`], if it exists.
    pub file: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub flags: Vec<Setting>,
}

/// One value given outside a file: by the environment or by a flag.
#[derive(Clone)]
pub struct Setting {
    pub path: Vec<String>,
    pub text: String,
    pub origin: Origin,
}

/// Variables that begin like ours and configure something else: the client, the tests, and what
/// Kubernetes sets in every pod of a namespace with a Service named `mainstay`.
const OTHERS: [&str; 6] = ["SERVER", "TOKEN", "CONTEXT", "CONFIG", "BIN", "PORT"];
const OTHERS_BEGIN: [&str; 4] = ["TEST_", "SERVERS_", "SERVICE_", "PORT_"];

impl Sources {
    /// The process's own environment.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Setting>) -> Sources {
        Sources { file, env: std::env::vars().collect(), flags }
    }

    /// `$XDG_CONFIG_HOME/mainstay/config.toml`.
    pub fn usual_file(&self) -> Option<PathBuf> {
        Some(directory(&self.env, "XDG_CONFIG_HOME", ".config")?.join("mainstay/config.toml"))
    }

    /// `MAINSTAY_HTTP__BODY_BYTES_MAX` sets `http.body_bytes_max`.
    pub fn env_settings(&self) -> Vec<Setting> {
        let setting = |(name, text): (&String, &String)| {
            let rest = name.strip_prefix("MAINSTAY_")?;
            let other = OTHERS.contains(&rest) || OTHERS_BEGIN.iter().any(|b| rest.starts_with(b));
            (!other).then(|| Setting {
                path: rest.split("__").map(str::to_lowercase).collect(),
                text: text.clone(),
                origin: Origin::Env(name.clone()),
            })
        };
        self.env.iter().filter_map(setting).collect()
    }
}

/// A directory of the XDG specification, by its variable or below the home directory.
pub fn directory(env: &BTreeMap<String, String>, xdg: &str, home: &str) -> Option<PathBuf> {
    let set = |name: &str| env.get(name).filter(|path| Path::new(path).is_absolute());
    set(xdg).map(PathBuf::from).or_else(|| Some(Path::new(set("HOME")?).join(home)))
}

/// Values, and where each was written. Cannot be printed: it holds secrets in the clear.
#[derive(Default)]
pub struct Layer {
    pub tree: Map<String, Value>,
    pub origins: Origins,
}

/// Where values were written, by path.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Layer {
    /// Reads a file. Problems say the line, never what is in it: it may be a secret.
    pub fn of_file(path: &Path) -> Result<Layer, Problems> {
        let problem = |line, message| {
            let origin = Origin::File { path: path.into(), line };
            Problems(vec![Problem { path: String::new(), message, origin }])
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| problem(1, format!("cannot be read: {e}")))?;
        let line_of = |at: usize| 1 + text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count();
        let table = DeTable::parse(&text).map_err(|e| {
            problem(e.span().map_or(1, |span| line_of(span.start)), e.message().to_owned())
        })?;
        let mut layer = Layer::default();
        let mut at = |key: String, offset| {
            layer.origins.0.insert(key, Origin::File { path: path.into(), line: line_of(offset) });
        };
        layer.tree = table_value("", table.get_ref(), &mut at);
        Ok(layer)
    }

    pub fn set(&mut self, setting: &Setting, value: Value) {
        let Some((leaf, parents)) = setting.path.split_last() else { return };
        let mut table = &mut self.tree;
        for parent in parents {
            let entry = table.entry(parent.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !entry.is_object() {
                *entry = Value::Object(Map::new());
            }
            let Value::Object(inner) = entry else { return };
            table = inner;
        }
        table.insert(leaf.clone(), value);
        let path = setting.path.join(".");
        self.origins.replace(path, setting.origin.clone());
    }

    /// `over` wins, key by key; lists are replaced whole.
    pub fn merge(&mut self, over: Layer) {
        merge_tables(&mut self.tree, over.tree);
        for (path, origin) in over.origins.0 {
            if is_table(&self.tree, &path) {
                self.origins.0.insert(path, origin);
            } else {
                self.origins.replace(path, origin);
            }
        }
    }
}

impl Origins {
    /// A value was set as a whole: what was written inside the one before is gone.
    fn replace(&mut self, path: String, origin: Origin) {
        let below = |other: &str| {
            other.strip_prefix(&path).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        self.0.retain(|other, _| !below(other));
        self.0.insert(path, origin);
    }

    /// Where the value at `path` was written, or what it is part of.
    pub fn of(&self, path: &str) -> Origin {
        let mut path = path;
        loop {
            if let Some(origin) = self.0.get(path) {
                return origin.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Origin::Default,
            }
        }
    }
}

fn is_table(tree: &Map<String, Value>, path: &str) -> bool {
    let mut parts = path.split('.');
    let first = parts.next().and_then(|key| tree.get(key));
    parts.fold(first, |value, key| value?.get(key)).is_some_and(Value::is_object)
}

fn merge_tables(into: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(over)) => merge_tables(into, over),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn table_value(
    path: &str,
    table: &DeTable<'_>,
    at: &mut dyn FnMut(String, usize),
) -> Map<String, Value> {
    let mut map = Map::new();
    for (key, value) in table {
        let path = join(path, key.get_ref());
        at(path.clone(), key.span().start);
        map.insert(key.get_ref().to_string(), toml_value(&path, value.get_ref(), at));
    }
    map
}

fn toml_value(path: &str, value: &DeValue<'_>, at: &mut dyn FnMut(String, usize)) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Datetime(at) => Value::from(at.to_string()),
        DeValue::Table(table) => Value::Object(table_value(path, table, at)),
        DeValue::Array(array) => {
            let item = |(i, item): (usize, &toml::Spanned<DeValue<'_>>)| {
                let path = format!("{path}[{i}]");
                at(path.clone(), item.span().start);
                toml_value(&path, item.get_ref(), at)
            };
            Value::Array(array.iter().enumerate().map(item).collect())
        }
    }
}
