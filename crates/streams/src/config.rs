//! The operator's configuration: `appconfig.yaml` in the format of the existing operator,
//! environment variables that override it (`ARCANE_OPERATOR__PROBES__ADDR`), and settings of our
//! own.

use std::path::Path;
use std::time::Duration;

use kernel::{Error, Result};
use serde_yaml_ng::Value;

use crate::model::settings::Settings;

const PREFIX: &str = "ARCANE_OPERATOR__";

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The address of health probes; empty for none.
    pub probes_addr: String,
    pub probes_shutdown: Duration,
    /// The address of metrics; empty for none.
    pub metrics_addr: String,
    pub log_level: String,
    pub cluster_name: String,
    /// Also exports metrics under the names of the existing operator.
    pub legacy_metrics: bool,
    /// The DogStatsD address of the existing operator (`DD_DOGSTATSD_URL`), if there is one.
    pub dogstatsd: Option<String>,
    /// The interval of DogStatsD counts, and the delay of the first.
    pub report_every: Duration,
    pub report_after: Duration,
    pub workers: usize,
    /// The watched namespaces; empty for all.
    pub namespaces: Vec<String>,
    pub lease: LeaseConfig,
    pub settings: Settings,
    /// Unknown keys.
    pub unknown: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseConfig {
    pub enabled: bool,
    /// Empty for the namespace of this pod, or `default`.
    pub namespace: String,
    pub name: String,
    /// Empty for the host name and a random part.
    pub holder: String,
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            probes_addr: ":8888".into(),
            probes_shutdown: Duration::from_secs(5),
            metrics_addr: ":9090".into(),
            log_level: "Info".into(),
            cluster_name: "arcane-cluster".into(),
            legacy_metrics: false,
            dogstatsd: None,
            report_every: Duration::from_secs(30),
            report_after: Duration::from_secs(5),
            workers: 16,
            namespaces: Vec::new(),
            lease: LeaseConfig {
                enabled: true,
                namespace: String::new(),
                name: "mainstay-operator".into(),
                holder: String::new(),
                duration: Duration::from_secs(10),
                renew_deadline: Duration::from_secs(7),
                retry_period: Duration::from_secs(2),
            },
            settings: Settings::default(),
            unknown: Vec::new(),
        }
    }
}

impl Config {
    /// Loads `appconfig.yaml` from a directory, if it exists, and the environment. The variable
    /// `APPLICATION_ENVIRONMENT` selects another file. A path to a file is read as it is.
    pub fn load(directory: &Path) -> Result<Config> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Config::from(directory, variables.collect())
    }

    pub fn from(directory: &Path, variables: Vec<(String, String)>) -> Result<Config> {
        let find = |wanted: &str| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
        };
        let environment = find("APPLICATION_ENVIRONMENT").filter(|name| !name.is_empty());
        let file = match environment {
            Some(name) => format!("appconfig.{}.yaml", name.to_lowercase()),
            None => "appconfig.yaml".into(),
        };
        let path = if directory.is_file() { directory.to_owned() } else { directory.join(&file) };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Error::invalid(file, format!("cannot be read: {error}")));
            }
        };
        let mut config = Config::default();
        config.file(&file, &text)?;
        config.variables(&variables)?;
        config.dogstatsd = find("DD_DOGSTATSD_URL").filter(|url| !url.is_empty()).map(Into::into);
        config.check()?;
        Ok(config)
    }

    fn file(&mut self, file: &str, text: &str) -> Result<()> {
        let sections: Value = serde_yaml_ng::from_str(text)
            .map_err(|error| Error::invalid(file, format!("is not valid YAML: {error}")))?;
        let sections = match sections {
            Value::Null => return Ok(()),
            Value::Mapping(sections) => sections,
            _ => return Err(Error::invalid(file, "must have sections, such as `probes:`")),
        };
        for (section, settings) in sections {
            let section = section.as_str().unwrap_or_default().to_owned();
            let settings = match settings {
                Value::Null => continue,
                Value::Mapping(settings) => settings,
                _ => {
                    self.unknown.push(section);
                    continue;
                }
            };
            for (name, value) in settings {
                let key = format!("{section}.{}", name.as_str().unwrap_or_default());
                let value = match value {
                    Value::Null => continue,
                    Value::String(text) => text,
                    Value::Sequence(items) => {
                        let texts = items.iter().filter_map(Value::as_str);
                        texts.collect::<Vec<_>>().join(",")
                    }
                    other => serde_yaml_ng::to_string(&other).unwrap_or_default().trim().into(),
                };
                self.set(&key, &value).map_err(|why| Error::invalid(key, why))?;
            }
        }
        Ok(())
    }

    /// In variables `-` is written `_`, and `__` separates the parts.
    fn variables(&mut self, variables: &[(String, String)]) -> Result<()> {
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(PREFIX) else { continue };
            let parts = path.split("__").map(|part| part.to_lowercase().replace('_', "-"));
            let key = parts.collect::<Vec<_>>().join(".");
            self.set(&key, value).map_err(|why| Error::invalid(name, why))?;
        }
        Ok(())
    }

    /// Returns what is wrong with an invalid value.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some((_, set)) = SETTINGS.iter().find(|(known, _)| *known == key) {
            return set(self, value);
        }
        // Unknown keys in our own sections are errors.
        let Some(section) = OUR_SECTIONS.iter().find(|section| key.starts_with(**section)) else {
            self.unknown.push(key.into());
            return Ok(());
        };
        let known = SETTINGS.iter().map(|(known, _)| *known);
        let known: Vec<_> = known.filter(|known| known.starts_with(section)).collect();
        Err(format!("is not a setting; known settings are {}", known.join(", ")))
    }

    fn check(&self) -> Result<()> {
        if let Some(url) = &self.dogstatsd
            && !["udp://", "unix://"].iter().any(|scheme| url.starts_with(scheme))
        {
            let message = format!("is {url:?}; write it as udp://host:8125 or unix:///path");
            return Err(Error::invalid("DD_DOGSTATSD_URL", message));
        }
        let LeaseConfig { duration, renew_deadline, retry_period, name, .. } = &self.lease;
        if self.workers == 0 || self.workers > 1000 {
            return Err(Error::invalid("operator.workers", "must be 1 to 1000"));
        }
        if name.is_empty() {
            return Err(Error::invalid("lease.name", "must not be empty"));
        }
        if duration.as_secs() < 2 {
            return Err(Error::invalid("lease.duration", "must be at least 2s"));
        }
        if renew_deadline.as_millis() * 10 > duration.as_millis() * 9 {
            let message = "must be at most nine tenths of lease.duration, after which another replica takes over";
            return Err(Error::invalid("lease.renew-deadline", message));
        }
        if *retry_period * 2 > *renew_deadline {
            let message =
                "must be at most half of lease.renew-deadline, so that one renewal may fail";
            return Err(Error::invalid("lease.retry-period", message));
        }
        Ok(())
    }
}

const OUR_SECTIONS: [&str; 3] = ["operator.", "recovery.", "lease."];

type Setter = fn(&mut Config, &str) -> Result<(), String>;

/// All keys, and how each is parsed.
const SETTINGS: [(&str, Setter); 27] = [
    ("probes.addr", |c, v| put(&mut c.probes_addr, address(v))),
    ("probes.shutdown-timeout", |c, v| put(&mut c.probes_shutdown, duration(v))),
    // Accepted for compatibility: the timeout of a request is not configurable.
    ("probes.write-timeout", |_, v| duration(v).map(drop)),
    ("probes.read-timeout", |_, v| duration(v).map(drop)),
    ("periodic-metrics-reporter.initial-delay", |c, v| put(&mut c.report_after, duration(v))),
    ("periodic-metrics-reporter.report-interval", |c, v| put(&mut c.report_every, positive(v))),
    ("telemetry.log-level", |c, v| put(&mut c.log_level, Ok(v.into()))),
    ("telemetry.cluster-name", |c, v| put(&mut c.cluster_name, Ok(v.into()))),
    ("telemetry.metrics-bind-address", |c, v| put(&mut c.metrics_addr, address(v))),
    ("telemetry.legacy-metrics", |c, v| put(&mut c.legacy_metrics, boolean(v))),
    ("operator.workers", |c, v| put(&mut c.workers, number(v))),
    ("operator.namespaces", |c, v| {
        let names = v.split(',').map(str::trim).filter(|name| !name.is_empty());
        put(&mut c.namespaces, Ok(names.map(str::to_owned).collect()))
    }),
    ("operator.backfills-max", |c, v| put(&mut c.settings.backfills_max, limit(v))),
    ("operator.requests-kept", |c, v| put(&mut c.settings.requests_kept, number(v))),
    ("operator.restarts-per-minute", |c, v| put(&mut c.settings.restarts_per_minute, limit(v))),
    ("operator.other-quiet", |c, v| put(&mut c.settings.other_quiet_s, duration_s(v))),
    ("recovery.first", |c, v| put(&mut c.settings.recovery.first_s, positive_s(v))),
    ("recovery.longest", |c, v| put(&mut c.settings.recovery.longest_s, positive_s(v))),
    ("recovery.attempts", |c, v| put(&mut c.settings.recovery.attempts, number(v))),
    ("recovery.stable", |c, v| put(&mut c.settings.recovery.stable_s, duration_s(v))),
    ("lease.enabled", |c, v| put(&mut c.lease.enabled, boolean(v))),
    ("lease.namespace", |c, v| put(&mut c.lease.namespace, Ok(v.into()))),
    ("lease.name", |c, v| put(&mut c.lease.name, Ok(v.into()))),
    ("lease.holder", |c, v| put(&mut c.lease.holder, Ok(v.into()))),
    ("lease.duration", |c, v| put(&mut c.lease.duration, positive(v))),
    ("lease.renew-deadline", |c, v| put(&mut c.lease.renew_deadline, positive(v))),
    ("lease.retry-period", |c, v| put(&mut c.lease.retry_period, positive(v))),
];

fn put<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

/// Parses durations as Go writes them: `15s`, `1m30s`, `250ms`.
fn duration(value: &str) -> Result<Duration, String> {
    let wrong = || format!("is {value:?}; write it as 15s, 1m30s or 250ms");
    let mut rest = value.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut whole = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (count, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_s = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        let count: f64 = count.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(count * unit_s).map_err(|_| wrong())?;
        whole = whole.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if value.trim().is_empty() { Err(wrong()) } else { Ok(whole) }
}

fn positive(value: &str) -> Result<Duration, String> {
    match duration(value)? {
        Duration::ZERO => Err("must be more than 0s".into()),
        time => Ok(time),
    }
}

/// Less than a second counts as one.
fn positive_s(value: &str) -> Result<u64, String> {
    Ok(positive(value)?.as_secs().max(1))
}

fn duration_s(value: &str) -> Result<u64, String> {
    Ok(duration(value)?.as_secs())
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("is {value:?}; it must be a whole number"))
}

/// 0 means no limit.
fn limit(value: &str) -> Result<Option<usize>, String> {
    Ok(Some(number(value)?).filter(|limit| *limit > 0))
}

fn boolean(value: &str) -> Result<bool, String> {
    match value.trim().to_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("is {value:?}; it must be true or false")),
    }
}

/// `:8888` binds all addresses.
fn address(value: &str) -> Result<String, String> {
    let port = value.rsplit_once(':').map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        _ if value.is_empty() => Ok(String::new()),
        Some(Ok(_)) => Ok(value.into()),
        _ => Err(format!("is {value:?}; write it as :8888 or 127.0.0.1:8888")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<Config> {
        let mut config = Config::default();
        config.file("appconfig.yaml", file)?;
        let variables: Vec<_> =
            variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        config.variables(&variables)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn the_configuration_of_the_existing_operator_is_accepted() {
        let file = "probes: {addr: ':8081', read-timeout: 15s, write-timeout: 15s, \
                    shutdown-timeout: 5s}\n\
                    periodic-metrics-reporter: {initial-delay: 5s, report-interval: 1m30s}\n\
                    telemetry: {log-level: Info, cluster-name: prod, \
                    metrics-bind-address: ':9191'}\n";
        let config = read(
            file,
            &[
                ("ARCANE_OPERATOR__TELEMETRY__CLUSTER_NAME", "staging"),
                ("ARCANE_OPERATOR__PERIODIC_METRICS_REPORTER__INITIAL_DELAY", "250ms"),
                ("OTHER", "x"),
            ],
        );
        let config = config.unwrap();
        assert_eq!(config.probes_addr, ":8081");
        assert_eq!(config.metrics_addr, ":9191");
        assert_eq!(config.cluster_name, "staging");
        assert_eq!(config.report_every, Duration::from_secs(90));
        assert_eq!(config.report_after, Duration::from_millis(250));
        assert!(config.unknown.is_empty(), "{:?}", config.unknown);
    }

    #[test]
    fn unknown_keys_are_named_and_ignored() {
        let config = read("telemetry: {colour: red}\nmore: {x: 1}\n", &[]).unwrap();
        assert_eq!(config.unknown, ["telemetry.colour", "more.x"]);
    }

    #[test]
    fn errors_name_the_key_and_a_valid_value() {
        let said = |file: &str| read(file, &[]).unwrap_err().to_string();
        assert_eq!(
            said("lease: {duration: 15}"),
            "lease.duration: is \"15\"; write it as 15s, 1m30s or 250ms"
        );
        assert_eq!(
            said("telemetry: {legacy-metrics: perhaps}"),
            "telemetry.legacy-metrics: is \"perhaps\"; it must be true or false"
        );
        assert_eq!(
            said("probes: {addr: 8888}"),
            "probes.addr: is \"8888\"; write it as :8888 or 127.0.0.1:8888"
        );
        assert!(said("recovery: {frist: 1s}").contains("recovery.first"));
        assert!(said("lease: {renew-deadline: 10s}").starts_with("lease.renew-deadline: must be"));
        let variable = [("ARCANE_OPERATOR__OPERATOR__WORKERS", "many")];
        assert_eq!(
            read("", &variable).unwrap_err().to_string(),
            "ARCANE_OPERATOR__OPERATOR__WORKERS: is \"many\"; it must be a whole number"
        );
    }

    #[test]
    fn a_limit_of_zero_means_no_limit() {
        let config = read("operator: {backfills-max: 0, restarts-per-minute: 5}", &[]).unwrap();
        assert_eq!(config.settings.backfills_max, None);
        assert_eq!(config.settings.restarts_per_minute, Some(5));
    }

    #[test]
    fn the_environment_selects_the_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("appconfig.yaml"), "operator: {workers: 1}").unwrap();
        let other = directory.path().join("appconfig.production.yaml");
        std::fs::write(other, "operator: {workers: 2, namespaces: [a, b]}").unwrap();
        assert_eq!(Config::from(directory.path(), Vec::new()).unwrap().workers, 1);
        let production = vec![("APPLICATION_ENVIRONMENT".into(), "Production".into())];
        let config = Config::from(directory.path(), production).unwrap();
        assert_eq!((config.workers, config.namespaces), (2, vec!["a".into(), "b".into()]));
    }
}
