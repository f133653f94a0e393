//! Settings of Kruize, which the advisor takes the place of, as ours: from its environment variables,
//! its JSON file (`KRUIZE_CONFIG_FILE`) and the top level of our own file. What ours says as well must
//! be the same.

mod datasources;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::LISTEN_DEFAULT;
use super::problem::Problem;
use super::source::{Layer, Origin, Setting};

/// What a setting is here.
enum Meaning {
    /// These settings of ours have its value.
    Ours(&'static [&'static str]),
    /// It is a part of several, or decides about them.
    Part,
    /// Why it is not needed.
    Nothing(&'static str),
}
use Meaning::{Nothing, Ours, Part};

const FILE: &str = "KRUIZE_CONFIG_FILE";
const ENABLED: &str = "isKafkaEnabled";
/// The later one wins.
const SERVERS: [&str; 2] = ["kafkaBootstrapServers", "KAFKA_BOOTSTRAP_SERVERS"];
const INPUT_TOPIC: &str = "BULK_INPUT_TOPIC";
const GROUP: &str = "KAFKA_CONSUMER_GROUP_ID";
const PORT: &str = "AUTOTUNE_SERVER_PORT";
const INCLUDE: &str = "KAFKA_RESPONSE_FILTER_INCLUDE";
const DATASOURCES: &str = "datasource";
/// `openshift` or another; decides how services are addressed.
const CLUSTER_TYPE: &str = "k8stype";
/// Of the sink and the consumer that they make.
const NAME: &str = "kruize";

const SETTINGS: [(&str, Meaning); 22] = [
    (ENABLED, Part),
    (SERVERS[0], Part),
    (SERVERS[1], Part),
    (INPUT_TOPIC, Part),
    (GROUP, Part),
    (PORT, Part),
    (DATASOURCES, Part),
    (CLUSTER_TYPE, Part),
    ("KAFKA_TOPICS", Ours(&["advisor.topics.only"])),
    (
        INCLUDE,
        Ours(&[
            "advisor.topics.recommendations_include",
            "advisor.topics.error_include",
            "advisor.topics.summary_include",
        ]),
    ),
    ("bulkapilimit", Ours(&["advisor.containers_max"])),
    ("bulkresultslimit", Ours(&["advisor.results_max"])),
    ("experimentNameFormat", Ours(&["advisor.experiment_name"])),
    ("deletepartitionsthreshold", Ours(&["advisor.jobs_days"])),
    ("plots", Ours(&["advisor.plots"])),
    ("KAFKA_RESPONSE_FILTER_EXCLUDE", Nothing("it has no effect there, either")),
    ("bulkThreadPoolSize", Nothing("a job reads as fast as its data source answers")),
    ("KRUIZE_HTTP_THREAD_POOL_COUNT", Nothing("requests need no thread each")),
    ("experimentsURL", Nothing("a job calls no REST API")),
    ("recommendationsURL", Nothing("a job calls no REST API")),
    ("testUseOnlycacheJobInMemory", Nothing("jobs are always stored")),
    ("jobFilterToDB", Nothing("jobs are stored whole")),
];

/// Values by the paths of ours.
#[derive(Default)]
pub struct Translated {
    pub settings: Vec<(Setting, Option<Value>)>,
    /// What has no effect, for people.
    pub notes: Vec<String>,
    pub problems: Vec<Problem>,
}

/// Finds the settings, and takes those at the top level of our own file out of it.
pub fn translate(env: &BTreeMap<String, String>, layer: &mut Layer) -> Translated {
    let mut all = Translated::default();
    let mut given = Given::default();
    for (name, _) in &SETTINGS {
        if let Some(value) = layer.tree.remove(*name) {
            given.add(name, &value, layer.origins.of(name));
        }
    }
    if let Some(path) = env.get(FILE) {
        all.read_file(path, &mut given);
    }
    for (name, _) in &SETTINGS {
        if let Some(text) = env.get(*name) {
            given.add(name, &text.as_str().into(), Origin::Env((*name).into()));
        }
    }
    all.simple(&given);
    all.kafka(&given, &layer.tree);
    all.port(&given, layer);
    all.datasources(&given, &layer.tree);
    all
}

/// The name of a sink or consumer that our own settings have for this already.
fn named<'t>(
    tree: &'t Map<String, Value>,
    section: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Option<&'t str> {
    let all = tree.get("bus")?.get(section)?.as_object()?;
    all.iter().find(|(_, one)| is_it(one)).map(|(name, _)| name.as_str())
}

/// The settings that were found: the text of each, and where it is.
#[derive(Default)]
struct Given(BTreeMap<&'static str, (String, Origin)>);

impl Given {
    fn add(&mut self, name: &'static str, value: &Value, origin: Origin) {
        let text = match value {
            Value::String(text) => text.trim().to_owned(),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
                texts.collect::<Vec<_>>().join(",")
            }
            Value::Null => String::new(),
            other => other.to_string(),
        };
        if !text.is_empty() {
            self.0.insert(name, (text, origin));
        }
    }

    fn get(&self, name: &str) -> Option<(&str, &Origin)> {
        self.0.get(name).map(|(text, origin)| (text.as_str(), origin))
    }
}

impl Translated {
    fn read_file(&mut self, path: &str, given: &mut Given) {
        let origin = Origin::File { path: path.into(), line: 1 };
        let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
        // First any value: an error about its type would quote it.
        let parsed = read.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| error.to_string())
        });
        let members = match parsed.map(|value| value.as_object().cloned()) {
            Ok(Some(members)) => members,
            wrong => {
                let error = wrong.err().unwrap_or_else(|| "it is not an object".into());
                let message = format!("cannot be read ({FILE}): {error}");
                return self.problems.push(Problem { path: String::new(), message, origin });
            }
        };
        let mut unknown = Vec::new();
        for (name, value) in &members {
            match SETTINGS.iter().find(|(known, _)| known == name) {
                Some((known, _)) => given.add(known, value, origin.clone()),
                None => unknown.push(name.as_str()),
            }
        }
        if !unknown.is_empty() {
            self.notes
                .push(format!("{path} has settings that are not read: {}", unknown.join(", ")));
        }
    }

    fn simple(&mut self, given: &Given) {
        let mut without_effect = Vec::new();
        for (name, meaning) in &SETTINGS {
            let Some((text, origin)) = given.get(name) else { continue };
            match meaning {
                Ours(paths) => paths.iter().for_each(|path| self.set(path, text, origin)),
                Nothing(why) => without_effect.push(format!("{name} ({why})")),
                Part => {}
            }
        }
        if !without_effect.is_empty() {
            self.notes.push(format!("without effect here: {}", without_effect.join(", ")));
        }
    }

    fn set(&mut self, path: &str, text: &str, origin: &Origin) {
        let path = path.split('.').map(str::to_owned).collect();
        self.settings.push((Setting { path, text: text.into(), origin: origin.clone() }, None));
    }

    /// Below `bus`.
    fn bus(&mut self, path: [&str; 2], below: &[&str], value: Value, origin: &Origin) {
        let path = ["bus"].into_iter().chain(path).chain(below.iter().copied());
        let path = path.map(str::to_owned).collect();
        let setting = Setting { path, text: String::new(), origin: origin.clone() };
        self.settings.push((setting, Some(value)));
    }

    /// A sink for the topics, and a consumer of requests.
    fn kafka(&mut self, given: &Given, tree: &Map<String, Value>) {
        let is_ours = |sink: &Value| sink["renderer"] == NAME;
        let our_sink = named(tree, "sinks", is_ours);
        let servers = SERVERS.iter().rev().find_map(|name| given.get(name));
        let enabled = given.get(ENABLED);
        let off = enabled.is_some_and(|(text, _)| !text.eq_ignore_ascii_case("true"));
        let Some((brokers, origin)) = servers.filter(|_| !off) else {
            if let (Some((_, origin)), false, None) = (enabled, off, our_sink) {
                let message = format!("is true, but {} is not set", SERVERS[1]);
                let path = ENABLED.into();
                self.problems.push(Problem { path, message, origin: origin.clone() });
            }
            let unused = [SERVERS[0], SERVERS[1], INPUT_TOPIC, GROUP];
            let unused: Vec<&str> =
                unused.into_iter().filter(|name| given.get(name).is_some()).collect();
            if !unused.is_empty() {
                self.notes
                    .push(format!("without effect here: {} (Kafka is off)", unused.join(", ")));
            }
            return;
        };
        let brokers: Value =
            brokers.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
        let sink = ["sinks", our_sink.unwrap_or(NAME)];
        self.bus(sink, &["renderer"], NAME.into(), origin);
        self.bus(sink, &["kafka", "brokers"], brokers.clone(), origin);
        let include = given.get(INCLUDE).filter(|(text, _)| !text.contains("experiments"));
        if include.is_some() {
            self.notes
                .push(format!("{INCLUDE} has no `experiments`: no recommendation is published"));
        }
        let Some((topic, origin)) = given.get(INPUT_TOPIC) else { return };
        let Some(identity) = tree.get("advisor").and_then(|advisor| advisor.get("open_as")) else {
            self.notes.push(format!(
                "without effect here: {INPUT_TOPIC} (set advisor.open_as, as whom its requests are \
                 carried out, or bus.consumers.NAME.kafka.topics)"
            ));
            return;
        };
        let reads_it = |consumer: &Value| !consumer["kafka"]["topics"][topic].is_null();
        let consumer = ["consumers", named(tree, "consumers", reads_it).unwrap_or(NAME)];
        self.bus(consumer, &["kafka", "brokers"], brokers, origin);
        for (member, value) in identity.as_object().into_iter().flatten() {
            self.bus(consumer, &["kafka", "topics", topic, member], value.clone(), origin);
        }
        let command = ["kafka", "topics", topic, "command"];
        self.bus(consumer, &command, "bulk-job.create".into(), origin);
        if let Some((group, origin)) = given.get(GROUP) {
            self.bus(consumer, &["kafka", "group"], group.into(), origin);
        }
    }

    /// It says the port; on which address is ours to say.
    fn port(&mut self, given: &Given, layer: &Layer) {
        let Some((text, origin)) = given.get(PORT) else { return };
        // What Kubernetes sets in the pods of a namespace with a Service named `autotune-server`.
        if text.starts_with("tcp://") {
            return;
        }
        let Ok(port) = text.parse::<u16>() else {
            let (path, message) = (PORT.into(), "must be a port".into());
            return self.problems.push(Problem { path, message, origin: origin.clone() });
        };
        let ours = layer.tree.get("listen").and_then(Value::as_str);
        let mut listen = ours.and_then(|text| text.parse().ok()).unwrap_or(LISTEN_DEFAULT);
        if ours.is_some() && listen.port() == port {
            return;
        }
        listen.set_port(port);
        let setting =
            Setting { path: vec!["listen".into()], text: String::new(), origin: origin.clone() };
        self.settings.push((setting, Some(json!(listen))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loaded, Sources, load, rows};

    type Pairs = &'static [(&'static str, &'static str)];

    pub fn loaded(file: &str, env: &[(&str, &str)]) -> Result<Loaded, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, file).unwrap();
        let env = env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let sources = Sources { file: Some(path), env, ..Sources::default() };
        load(&sources).map_err(|problems| problems.to_string())
    }

    /// The value of a key as `config show` has it, and where it is from.
    pub fn shown(loaded: &Loaded, key: &str) -> String {
        let row = rows(loaded).into_iter().find(|row| row.key == key);
        let row = row.unwrap_or_else(|| panic!("there is no {key}"));
        let origin = row.origin.rsplit('/').next().unwrap_or_default().to_owned();
        format!("{} {origin}", row.value)
    }

    #[test]
    fn settings_of_the_existing_service_become_ours_and_say_where_they_are_from() {
        let file = "kafkaBootstrapServers = \"a:1, b:2\"\nbulkapilimit = 700\n\
                    [advisor.open_as]\nsubject = \"all\"\norg = \"acme\"\n";
        let env: Pairs = &[
            ("isKafkaEnabled", "true"),
            ("KAFKA_TOPICS", "recommendations-topic, summary-topic"),
            ("KAFKA_RESPONSE_FILTER_INCLUDE", "summary,experiments|status"),
            ("BULK_INPUT_TOPIC", "bulk.input"),
            ("KAFKA_CONSUMER_GROUP_ID", "7"),
            ("experimentNameFormat", "%namespace%|%containername%"),
            ("deletepartitionsthreshold", "16"),
            ("AUTOTUNE_SERVER_PORT", "9191"),
            ("bulkThreadPoolSize", "3"),
            ("KAFKA_RESPONSE_FILTER_EXCLUDE", "x"),
        ];
        let loaded = loaded(file, env).unwrap();
        for (key, expected) in [
            ("bus.sinks.kruize.renderer", r#""kruize" config.toml:1"#),
            ("bus.sinks.kruize.kafka.brokers", r#"["a:1","b:2"] config.toml:1"#),
            ("bus.consumers.kruize.kafka.brokers", r#"["a:1","b:2"] env BULK_INPUT_TOPIC"#),
            ("bus.consumers.kruize.kafka.group", r#""7" env KAFKA_CONSUMER_GROUP_ID"#),
            (
                "bus.consumers.kruize.kafka.topics.bulk.input.command",
                r#""bulk-job.create" env BULK_INPUT_TOPIC"#,
            ),
            (
                "bus.consumers.kruize.kafka.topics.bulk.input.subject",
                r#""all" env BULK_INPUT_TOPIC"#,
            ),
            (
                "advisor.topics.only",
                r#"["recommendations-topic","summary-topic"] env KAFKA_TOPICS"#,
            ),
            (
                "advisor.topics.error_include",
                r#""summary,experiments|status" env KAFKA_RESPONSE_FILTER_INCLUDE"#,
            ),
            ("advisor.containers_max", "700 config.toml:2"),
            (
                "advisor.experiment_name",
                r#""%namespace%|%containername%" env experimentNameFormat"#,
            ),
            ("advisor.jobs_days", "16 env deletepartitionsthreshold"),
            ("listen", r#""127.0.0.1:9191" env AUTOTUNE_SERVER_PORT"#),
        ] {
            assert_eq!(shown(&loaded, key), expected);
        }
        let [note] = &loaded.notes[..] else { panic!("{:?}", loaded.notes) };
        assert!(note.contains("bulkThreadPoolSize (") && note.contains("_EXCLUDE ("), "{note}");
        assert!(loaded.config.bus.check().is_ok() && loaded.config.advisor.check().is_ok());
    }

    #[test]
    fn our_own_settings_may_say_the_same_and_nothing_else() {
        let file = "listen = \"0.0.0.0:9191\"\n[advisor]\ncontainers_max = 700\n\
                    [bus.sinks.kruize.kafka]\nbrokers = [\"a:1\"]\ntransactions = false\n";
        let env: Pairs = &[
            ("bulkapilimit", "700"),
            ("KAFKA_BOOTSTRAP_SERVERS", "a:1"),
            ("AUTOTUNE_SERVER_PORT", "9191"),
        ];
        let same = loaded(file, env).unwrap();
        assert_eq!(shown(&same, "listen"), r#""0.0.0.0:9191" config.toml:1"#);
        assert_eq!(shown(&same, "advisor.containers_max"), "700 config.toml:3");
        assert_eq!(shown(&same, "bus.sinks.kruize.kafka.transactions"), "false config.toml:6");
        let env: Pairs = &[
            ("bulkapilimit", "1000"),
            ("KAFKA_BOOTSTRAP_SERVERS", "b:1"),
            ("AUTOTUNE_SERVER_PORT", "8080"),
        ];
        let problems = loaded(file, env).unwrap_err();
        assert_eq!(problems.lines().count(), 3, "{problems}");
        for (name, key, line) in [
            ("bulkapilimit", "advisor.containers_max", 3),
            ("KAFKA_BOOTSTRAP_SERVERS", "bus.sinks.kruize.kafka.brokers", 5),
            ("AUTOTUNE_SERVER_PORT", "listen", 1),
        ] {
            let both = |problem: &&str| {
                problem.starts_with(&format!("env {name}: {key}: has another value in "))
                    && problem.ends_with(&format!("config.toml:{line}; remove one"))
            };
            assert!(problems.lines().any(|problem| both(&problem)), "{name}: {problems}");
        }
    }

    #[test]
    fn kafka_is_on_if_there_are_servers_unless_it_is_switched_off() {
        let off: Pairs = &[("KAFKA_BOOTSTRAP_SERVERS", "a:1"), ("isKafkaEnabled", "false")];
        let off = loaded("", off).unwrap();
        assert!(off.config.bus.sinks.is_empty());
        assert_eq!(off.notes, ["without effect here: KAFKA_BOOTSTRAP_SERVERS (Kafka is off)"]);
        let problem = loaded("", &[("isKafkaEnabled", "true")]).unwrap_err();
        assert!(problem.contains("KAFKA_BOOTSTRAP_SERVERS is not set"), "{problem}");
        // One of ours that publishes already is not joined by another.
        let file = "[bus.sinks.sizes]\nrenderer = \"kruize\"\n[bus.sinks.sizes.kafka]\n\
                    brokers = [\"a:1\"]\n";
        let env: Pairs = &[("KAFKA_BOOTSTRAP_SERVERS", "a:1"), ("isKafkaEnabled", "true")];
        let names: Vec<String> = loaded(file, env).unwrap().config.bus.sinks.into_keys().collect();
        assert_eq!(names, ["sizes"]);
        assert!(loaded(file, &[("isKafkaEnabled", "true")]).is_ok());
        let problem = loaded(file, &[("KAFKA_BOOTSTRAP_SERVERS", "b:1")]).unwrap_err();
        assert!(
            problem.contains(": bus.sinks.sizes.kafka.brokers: has another value"),
            "{problem}"
        );
        let env: Pairs =
            &[("KAFKA_BOOTSTRAP_SERVERS", "a:1"), ("KAFKA_RESPONSE_FILTER_INCLUDE", "summary")];
        let notes = loaded("", env).unwrap().notes;
        assert!(notes[0].ends_with("no recommendation is published"), "{notes:?}");
        // Requests from a topic have nobody in whose name they are carried out.
        let env: Pairs = &[("KAFKA_BOOTSTRAP_SERVERS", "a:1"), ("BULK_INPUT_TOPIC", "in")];
        let loaded = loaded("", env).unwrap();
        assert!(loaded.config.bus.consumers.is_empty() && loaded.config.bus.sinks.len() == 1);
        assert!(loaded.notes[0].contains("set advisor.open_as"), "{:?}", loaded.notes);
    }

    #[test]
    fn its_own_file_is_read_and_what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kruize.json");
        let text = r#"{ "kafkaBootstrapServers": "a:1", "isKafkaEnabled": true, "bulkapilimit": 9,
                        "plots": "true", "local": "true", "experimentNameFormat": "" }"#;
        std::fs::write(&path, text).unwrap();
        let env = |more: &[(&str, &str)]| {
            let file = ("KRUIZE_CONFIG_FILE".to_owned(), path.display().to_string());
            let more = more.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            Sources { env: more.chain([file]).collect(), ..Sources::default() }
        };
        let loaded = load(&env(&[("bulkapilimit", "10")])).unwrap();
        assert_eq!(shown(&loaded, "advisor.containers_max"), "10 env bulkapilimit");
        assert_eq!(shown(&loaded, "bus.sinks.kruize.kafka.brokers"), r#"["a:1"] kruize.json:1"#);
        assert!(loaded.notes[0].ends_with("settings that are not read: local"));
        for (name, text, why) in [
            ("bulkapilimit", "many", "advisor.containers_max: must be a number"),
            ("AUTOTUNE_SERVER_PORT", "99999", "must be a port"),
            ("KRUIZE_CONFIG_FILE", "/nowhere", "cannot be read (KRUIZE_CONFIG_FILE)"),
        ] {
            let mut sources = env(&[]);
            sources.env.insert(name.into(), text.into());
            let problem = load(&sources).unwrap_err().to_string();
            assert!(problem.contains(why), "{problem}");
        }
        // Not the server's: what Kubernetes sets for a Service of that name.
        let kubernetes = env(&[("AUTOTUNE_SERVER_PORT", "tcp://10.0.0.1:8080")]);
        assert_eq!(load(&kubernetes).unwrap().config.listen, super::LISTEN_DEFAULT);
    }
}
