//! Merges the sources and reads the struct from them, collecting every problem.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::kruize::{self, Translated};
use super::problem::{Problem, Problems, join, unknown_key};
use super::source::{Layer, Origin, Origins, Setting, Sources, directory};
use super::{Config, show};

/// A configuration and where each of its values came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// What was given and has no effect.
    pub notes: Vec<String>,
    origins: Origins,
}

impl Loaded {
    pub fn origin(&self, path: &str) -> Origin {
        self.origins.of(path)
    }
}

/// More would not be read by anyone; a bound for the loop that finds them.
const PROBLEMS_MAX: usize = 20;

pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let mut layer = Layer::default();
    let usual = || sources.usual_file().filter(|path| path.exists());
    let file = sources.file.clone().or_else(usual);
    if let Some(path) = &file {
        layer.merge(Layer::of_file(path)?);
    }
    if let Some(data) = directory(&sources.env, "XDG_DATA_HOME", ".local/share") {
        // Where the default is on this machine: still the default.
        let dir = data.join("mainstay");
        layer.tree.entry("data_dir").or_insert_with(|| dir.to_string_lossy().into());
    }
    let defaults = serde_json::to_value(Config::default()).expect("the defaults serialise");
    let mut problems = Vec::new();
    for setting in sources.env_settings().iter().chain(&sources.flags) {
        let mut over = Layer::default();
        match value_of(setting, &defaults) {
            Ok(value) => over.set(setting, value),
            Err(problem) => problems.push(problem),
        }
        layer.merge(over);
    }
    let notes = take_over(&sources.env, &mut layer, &defaults, &mut problems);
    let mut config = read(&mut layer, &defaults, &mut problems);
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    if let Ok(rest) = config.data_dir.strip_prefix("~")
        && let Some(home) = sources.env.get("HOME").map(PathBuf::from)
        && home.is_absolute()
    {
        config.data_dir = home.join(rest);
    }
    Ok(Loaded { config, file, notes, origins: layer.origins })
}

/// Merges the settings of the existing service. What ours says otherwise is a problem that names both.
fn take_over(
    env: &BTreeMap<String, String>,
    layer: &mut Layer,
    defaults: &Value,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let Translated { settings, notes, problems: found } = kruize::translate(env, layer);
    problems.extend(found);
    for (setting, value) in settings {
        let value = match value.map_or_else(|| value_of(&setting, defaults), Ok) {
            Ok(value) => value,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let path = setting.path.join(".");
        let mut keys = setting.path.iter();
        let ours = keys.next().and_then(|key| layer.tree.get(key));
        let ours = keys.fold(ours, |ours, key| ours?.get(key));
        if ours.is_some_and(|ours| *ours != value) {
            let message = format!("has another value in {}; remove one", layer.origins.of(&path));
            problems.push(Problem { path, message, origin: setting.origin });
        } else if ours.is_none() {
            let mut over = Layer::default();
            over.set(&setting, value);
            layer.merge(over);
        }
    }
    notes
}

/// Text from the environment or a flag, as the type that its key has by default.
fn value_of(setting: &Setting, defaults: &Value) -> Result<Value, Problem> {
    let default = setting.path.iter().try_fold(defaults, |value, key| value.get(key));
    let text = setting.text.as_str();
    let toml = || {
        let document = toml::from_str::<toml::Table>(&format!("v = {text}")).ok()?;
        (document.len() == 1).then(|| serde_json::to_value(&document["v"]).ok())?
    };
    let problem = |what: &str| Problem {
        path: setting.path.join("."),
        message: format!("must be {what}"),
        origin: setting.origin.clone(),
    };
    match default {
        Some(Value::String(_)) => Ok(text.into()),
        Some(Value::Number(_)) => {
            toml().filter(Value::is_number).ok_or_else(|| problem("a number"))
        }
        Some(Value::Bool(_)) => text.parse().map(Value::Bool).map_err(|_| problem("true or false")),
        Some(Value::Array(_)) => match toml() {
            Some(list @ Value::Array(_)) => Ok(list),
            _ if text.starts_with('[') => Err(problem("a list as TOML writes it, [\"a\", \"b\"]")),
            _ => Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()),
        },
        Some(Value::Object(_)) => toml()
            .filter(Value::is_object)
            .ok_or_else(|| problem("a table as TOML writes it, { key = \"value\" }")),
        // A key with no default could be of any type; `read` falls back to the text.
        Some(Value::Null) | None => Ok(toml().unwrap_or_else(|| text.into())),
    }
}

/// Reads the struct. What is wrong is noted and taken out, and the rest is read again, so that
/// all problems come at once.
fn read(layer: &mut Layer, defaults: &Value, problems: &mut Vec<Problem>) -> Config {
    while problems.len() < PROBLEMS_MAX {
        let tree = Value::Object(layer.tree.clone());
        let error = match serde_path_to_error::deserialize::<_, Config>(tree) {
            Ok(config) => return config,
            Err(error) => error,
        };
        let path = error.path().to_string();
        let message = error.inner().to_string();
        let mut problem = problem(path, message, defaults);
        problem.origin = layer.origins.of(&problem.path);
        let Some(place) = place(&mut layer.tree, &problem.path) else {
            problems.push(problem);
            break;
        };
        let given = !matches!(problem.origin, Origin::File { .. } | Origin::Default);
        match place.take() {
            // It may have looked like a number and be meant as text.
            value @ (Value::Number(_) | Value::Bool(_)) if given => {
                *place = value.to_string().into()
            }
            _ => {
                remove(&mut layer.tree, &problem.path);
                problems.push(problem);
            }
        }
    }
    Config::default()
}

fn problem(path: String, message: String, defaults: &Value) -> Problem {
    let origin = Origin::Default;
    if message.starts_with("unknown field") {
        let mut quoted = message.split('`').skip(1).step_by(2);
        let unknown = quoted.next().unwrap_or_default();
        let siblings: Vec<&str> = quoted.collect();
        let suffix =
            |path: &str| path.strip_suffix(unknown).map(|p| p.trim_end_matches('.').to_owned());
        let parent = suffix(&path).unwrap_or(if path == "." { String::new() } else { path });
        let everywhere: Vec<String> = show::leaves(defaults).into_iter().map(|(p, _)| p).collect();
        let message = unknown_key(unknown, &parent, &siblings, &everywhere);
        return Problem { path: join(&parent, unknown), message, origin };
    }
    let numbers = ["usize", "u64", "u32", "u16", "u8"];
    let message = numbers.iter().fold(message, |message, number| {
        message.replace(&format!("expected {number}"), "expected a whole number, 0 or more")
    });
    let message = message.replace(
        "invalid socket address syntax",
        "must be an address and a port, such as 127.0.0.1:8080",
    );
    Problem { path, message, origin }
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}

fn place<'t>(tree: &'t mut serde_json::Map<String, Value>, path: &str) -> Option<&'t mut Value> {
    let mut steps = steps(path);
    let first = tree.get_mut(steps.next()?)?;
    steps.try_fold(first, |value, step| match value {
        Value::Object(table) => table.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(tree: &mut serde_json::Map<String, Value>, path: &str) {
    let Some(end) = path.rfind(['.', '[']) else {
        tree.remove(path);
        return;
    };
    let leaf = path[end + 1..].trim_end_matches(']');
    match place(tree, &path[..end]) {
        Some(Value::Object(table)) => drop(table.remove(leaf)),
        Some(Value::Array(items)) => {
            if let Some(i) = leaf.parse::<usize>().ok().filter(|i| *i < items.len()) {
                items.remove(i);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        file: &'static str,
        env: &'static [(&'static str, &'static str)],
        flags: &'static [(&'static str, &'static str)],
    }

    fn load_case(case: &Case) -> Result<(Loaded, tempfile::TempDir), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, case.file).unwrap();
        let flag = |(path, text): &(&str, &str)| Setting {
            path: path.split('.').map(str::to_owned).collect(),
            text: (*text).into(),
            origin: Origin::Flag(format!("--{path}")),
        };
        let sources = Sources {
            file: Some(path),
            env: case.env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            flags: case.flags.iter().map(flag).collect(),
        };
        let named = dir.path().to_string_lossy().into_owned();
        match load(&sources) {
            Ok(loaded) => Ok((loaded, dir)),
            Err(problems) => Err(problems.to_string().replace(&(named + "/"), "")),
        }
    }

    #[test]
    fn flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_the_default() {
        const FILE: &str = "\n[driver]\nlease_s = 1\n";
        const ENV: &[(&str, &str)] = &[("MAINSTAY_DRIVER__LEASE_S", "2")];
        const FLAGS: &[(&str, &str)] = &[("driver.lease_s", "3")];
        let cases = [
            (Case { file: "", env: &[], flags: &[] }, 15, "default"),
            (Case { file: FILE, env: &[], flags: &[] }, 1, "config.toml:3"),
            (Case { file: FILE, env: ENV, flags: &[] }, 2, "env MAINSTAY_DRIVER__LEASE_S"),
            (Case { file: "", env: ENV, flags: &[] }, 2, "env MAINSTAY_DRIVER__LEASE_S"),
            (Case { file: FILE, env: ENV, flags: FLAGS }, 3, "flag --driver.lease_s"),
            (Case { file: FILE, env: &[], flags: FLAGS }, 3, "flag --driver.lease_s"),
        ];
        for (case, value, origin) in cases {
            let (loaded, _dir) = load_case(&case).unwrap();
            assert_eq!(loaded.config.driver.lease_s, value);
            let said = loaded.origin("driver.lease_s").to_string();
            assert!(said.ends_with(origin), "{said} is not {origin}");
            assert_eq!(loaded.config.driver.slots, 256, "its neighbour stays");
            assert_eq!(loaded.origin("retention.events_days"), Origin::Default);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place_and_with_what_is_meant() {
        type Env = &'static [(&'static str, &'static str)];
        let cases: [(&str, Env, &[&str]); 9] = [
            (
                "[driver]\nslotz = 3\n",
                &[],
                &["config.toml:2: driver.slotz: there is no such key; did you mean driver.slots?"],
            ),
            ("lease_s = 3\n", &[], &["config.toml:1: lease_s:", "did you mean driver.lease_s?"]),
            ("[drivers]\nslots = 3\n", &[], &["config.toml:1: drivers:", "did you mean driver?"]),
            ("zzz = 3\n", &[], &["zzz:", "there are listen, data_dir,"]),
            ("[driver]\nslots = 'x'\n", &[], &["config.toml:2: driver.slots:", "a whole number"]),
            ("[driver]\nslots = -1\n", &[], &["config.toml:2: driver.slots:", "-1"]),
            ("listen = \"here\"\n", &[], &["config.toml:1: listen:", "such as 127.0.0.1:8080"]),
            (
                "",
                &[("MAINSTAY_DRIVER__SLOTS", "many")],
                &["env MAINSTAY_DRIVER__SLOTS: driver.slots: must be a number"],
            ),
            (
                "",
                &[("MAINSTAY_LISTN", "x")],
                &["env MAINSTAY_LISTN: listn:", "did you mean listen?"],
            ),
        ];
        for (file, env, parts) in cases {
            let said = load_case(&Case { file, env, flags: &[] }).map(|_| ()).unwrap_err();
            for part in parts {
                assert!(said.contains(part), "`{part}` is not in: {said}");
            }
        }
    }

    #[test]
    fn all_problems_come_at_once() {
        let file = "zzz = 1\n[driver]\nslotz = 3\nlease_s = 'x'\n";
        let env = &[("MAINSTAY_RETENTION__EVENTS", "3")];
        let said = load_case(&Case { file, env, flags: &[] }).map(|_| ()).unwrap_err();
        assert_eq!(said.lines().count(), 4, "{said}");
    }

    #[test]
    fn a_file_that_is_not_toml_is_refused_by_line_and_shows_nothing_of_itself() {
        let file = "listen = '127.0.0.1:1'\ndatabase = 'postgres://u:hunter2@h/d\n";
        let said = load_case(&Case { file, env: &[], flags: &[] }).map(|_| ()).unwrap_err();
        assert!(said.starts_with("config.toml:2: ") && !said.contains("hunter2"), "{said}");
    }

    #[test]
    fn a_file_that_was_named_must_be_there_and_the_usual_one_need_not() {
        let mut sources =
            Sources { file: Some("/nowhere/at/all.toml".into()), ..Sources::default() };
        assert!(load(&sources).unwrap_err().to_string().contains("cannot be read"));
        sources.file = None;
        sources.env = BTreeMap::from([("XDG_CONFIG_HOME".into(), "/nowhere".into())]);
        assert!(load(&sources).unwrap().file.is_none());
    }

    #[test]
    fn variables_that_are_not_ours_are_left_alone() {
        let env = &[
            ("MAINSTAY_TOKEN", "x"),
            ("MAINSTAY_TEST_POSTGRES", "x"),
            ("MAINSTAY_SERVICE_HOST", "10.0.0.1"),
            ("MAINSTAY_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("OTHER", "x"),
        ];
        assert!(load_case(&Case { file: "", env, flags: &[] }).is_ok());
    }

    #[test]
    fn a_key_without_a_default_takes_text_even_if_it_looks_like_a_number() {
        let env = &[
            ("MAINSTAY_HTTP__TLS__CERT_FILE", "123"),
            ("MAINSTAY_HTTP__TLS__KEY_FILE", "key.pem"),
        ];
        let (loaded, _dir) = load_case(&Case { file: "", env, flags: &[] }).unwrap();
        assert_eq!(loaded.config.http.tls.unwrap().cert_file, PathBuf::from("123"));
    }

    #[test]
    fn the_data_directory_is_below_the_home_directory_or_where_xdg_says() {
        let dir = |env: &'static [(&str, &str)], file: &'static str| {
            load_case(&Case { file, env, flags: &[] }).unwrap().0.config.data_dir
        };
        assert_eq!(dir(&[("HOME", "/h")], ""), PathBuf::from("/h/.local/share/mainstay"));
        assert_eq!(
            dir(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")], ""),
            PathBuf::from("/d/mainstay")
        );
        assert_eq!(dir(&[("HOME", "/h")], "data_dir = '~/x'"), PathBuf::from("/h/x"));
        assert_eq!(dir(&[("HOME", "/h")], "data_dir = '~'"), PathBuf::from("/h/"));
    }

    #[test]
    fn the_password_of_the_database_is_never_shown() {
        let env = &[("MAINSTAY_DATABASE", "postgres://u:hunter2@h/d")];
        let (loaded, _dir) = load_case(&Case { file: "", env, flags: &[] }).unwrap();
        let rows = serde_json::to_string(&show::rows(&loaded)).unwrap();
        let toml = show::toml_text(&loaded.config, &|_| None);
        for shown in [rows, toml, format!("{loaded:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert!(loaded.config.database.url().unwrap().unwrap().contains("hunter2"));
    }

    #[test]
    fn a_secret_comes_from_anywhere_in_every_notation_and_only_its_source_is_shown() {
        let file = "[fleet.ams]\ntoken = { file = '/s' }\n[fleet.prometheus]\ntoken = 'hunter2'\n";
        let env = &[
            ("MAINSTAY_FLEET__KEYCLOAK__CLIENT_SECRET", "{ file = \"hunter2\" }"),
            ("MAINSTAY_FLEET__DNS__SECRET_ACCESS_KEY__VAULT", "kv/data/dns#key"),
            ("MAINSTAY_DATABASE__ENV", "DB"),
        ];
        let flags = &[("fleet.dns.access_key_id.env", "ID"), ("vault.token", "123")];
        let (loaded, _dir) = load_case(&Case { file, env, flags }).unwrap();
        let rows = show::rows(&loaded);
        let row = |key: &str| {
            let row = rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("{key}"));
            (row.value.as_str().unwrap(), row.origin.rsplit('/').next().unwrap())
        };
        assert_eq!(row("fleet.ams.token.file"), ("/s", "config.toml:2"));
        assert_eq!(row("fleet.prometheus.token"), ("[redacted]", "config.toml:4"));
        let name = "env MAINSTAY_FLEET__KEYCLOAK__CLIENT_SECRET";
        assert_eq!(row("fleet.keycloak.client_secret"), ("[redacted]", name), "a text, as it is");
        assert_eq!(row("fleet.dns.secret_access_key.vault").0, "kv/data/dns#key");
        assert_eq!(row("fleet.dns.access_key_id.env").0, "ID");
        assert_eq!(row("database.env"), ("DB", "env MAINSTAY_DATABASE__ENV"));
        assert_eq!(row("vault.token"), ("[redacted]", "flag --vault.token"));
        let toml = show::toml_text(&loaded.config, &|_| None);
        for shown in [&serde_json::to_string(&rows).unwrap(), &toml, &format!("{loaded:?}")] {
            assert!(!shown.contains("hunter2") && !shown.contains("123"), "{shown}");
        }
        let again: Config = toml::from_str(&toml).unwrap();
        assert_eq!(show::toml_text(&again, &|_| None), toml, "what is shown can be read");
    }

    #[test]
    fn a_wrong_secret_is_named_by_its_key_and_not_shown() {
        for (file, parts) in [
            (
                "[fleet.ams]\ntoken = 98765\n",
                ["config.toml:2: fleet.ams.token: ", "text in quotes"],
            ),
            (
                "[fleet.ams]\ntoken = { flie = '98765' }\n",
                ["config.toml:2: fleet.ams.token.flie: ", "did you mean fleet.ams.token.file?"],
            ),
            (
                "[fleet.ams]\ntoken = { vault = 'kv' }\n",
                ["config.toml:2: fleet.ams.token.vault: ", "MOUNT/PATH#FIELD"],
            ),
            (
                "[fleet.dns]\naccess_key_id_file = '/98765'\n",
                ["fleet.dns.access_key_id_file: ", "write access_key_id = { file = \"/path\" }"],
            ),
        ] {
            let said = load_case(&Case { file, env: &[], flags: &[] }).map(|_| ()).unwrap_err();
            for part in parts {
                assert!(said.contains(part) && !said.contains("98765"), "`{part}`: {said}");
            }
        }
    }

    #[test]
    fn the_examples_of_the_page_on_secrets_can_be_read() {
        let page = include_str!("../../../../docs/secrets.md");
        let examples: Vec<&str> = page.split("```toml\n").skip(1).collect();
        for example in &examples {
            let (example, _) = example.split_once("```").unwrap();
            let config: Config =
                toml::from_str(example).unwrap_or_else(|e| panic!("{e}: {example}"));
            config.vault.check().unwrap();
        }
        assert!(examples.len() >= 6);
    }

    #[test]
    fn the_default_document_is_the_default() {
        let document = show::default_document();
        let sources = Sources { file: None, ..Sources::default() };
        let text = show::toml_text(&load(&sources).unwrap().config, &|_| None);
        assert!(document.ends_with(&text), "{document}");
        let parsed: Config = toml::from_str(&document).unwrap();
        assert_eq!(show::toml_text(&parsed, &|_| None), text);
    }
}
