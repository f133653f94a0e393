//! Kruize's array `datasource` as `advisor.datasources`. It has passwords in it: what is wrong is
//! named by its place, and of what is in the array only names are quoted.

use std::collections::BTreeSet;

use advisor::config::Datasource;
use kernel::Error;
use serde_json::{Map, Value, json};

use super::{CLUSTER_TYPE, DATASOURCES, Given, Translated};
use crate::config::problem::Problem;
use crate::config::source::Setting;

/// The settings of one data source by their paths below it.
type Settings = Vec<(&'static [&'static str], Value)>;

/// What cannot be translated: its path, and why.
struct Wrong(String, String);

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        match error {
            Error::Invalid { field, message } => Wrong(field, message),
            other => Wrong(DATASOURCES.into(), other.to_string()),
        }
    }
}

impl Translated {
    pub(super) fn datasources(&mut self, given: &Given, tree: &Map<String, Value>) {
        let Some((text, origin)) = given.get(DATASOURCES) else { return };
        let mut problem = |Wrong(path, message)| {
            self.problems.push(Problem { path, message, origin: origin.clone() });
        };
        let Ok(Value::Array(all)) = serde_json::from_str(text) else {
            return problem(Wrong(DATASOURCES.into(), "must be a list of objects, as JSON".into()));
        };
        let openshift = given.get(CLUSTER_TYPE).is_some_and(|(text, _)| text == "openshift");
        let (mut names, mut verified) = (BTreeSet::new(), Vec::new());
        for (i, value) in all.into_iter().enumerate() {
            let path = format!("{DATASOURCES}[{i}]");
            let (name, settings) = match translate(&path, value, openshift, &mut self.notes) {
                Ok(found) => found,
                Err(wrong) => {
                    problem(wrong);
                    continue;
                }
            };
            if !names.insert(name.clone()) {
                problem(Wrong(format!("{path}.name"), format!("{name} is there already")));
                continue;
            }
            let has_tls = tree
                .get("advisor")
                .is_some_and(|advisor| !advisor["datasources"][&name]["tls"].is_null());
            let is_https = settings.iter().any(|(below, value)| {
                *below == ["url"] && value.as_str().is_some_and(|url| url.starts_with("https://"))
            });
            // With mutual TLS the existing service verifies, too.
            if is_https && !has_tls && !settings.iter().any(|(below, _)| below[0] == "tls") {
                verified.push(name.clone());
            }
            for (below, value) in settings {
                let path = ["advisor", "datasources", name.as_str()].into_iter();
                let path = path.chain(below.iter().copied()).map(str::to_owned).collect();
                let setting = Setting { path, text: String::new(), origin: origin.clone() };
                self.settings.push((setting, Some(value)));
            }
        }
        if !verified.is_empty() {
            self.notes.push(format!(
                "certificates are verified, unlike in Kruize, of: {}; set tls.ca_file in \
                 advisor.datasources.NAME, or tls.insecure_skip_verify = true to accept any",
                verified.join(", ")
            ));
        }
    }
}

/// The name of a data source and its settings.
fn translate(
    path: &str,
    value: Value,
    openshift: bool,
    notes: &mut Vec<String>,
) -> Result<(String, Settings), Wrong> {
    let mut source = Members::of(path.into(), value)?;
    let name = source.required("name")?;
    let provider = source.text("provider")?.unwrap_or_else(|| "prometheus".into());
    if !["prometheus", "thanos"].contains(&provider.to_lowercase().as_str()) {
        return Err(source.wrong("provider", "must be prometheus or thanos"));
    }
    let url = match (source.text("url")?, source.text("serviceName")?) {
        (Some(_), Some(_)) => {
            return Err(source.wrong("serviceName", "is there besides url; remove one"));
        }
        (Some(url), None) => url.trim().to_owned(),
        (None, Some(service)) => {
            let (scheme, port) = if openshift { ("https", 9091) } else { ("http", 9090) };
            let namespace = source.required("namespace")?;
            format!("{scheme}://{service}.{namespace}.svc.cluster.local:{port}")
        }
        (None, None) => {
            return Err(source.wrong("url", "must be given, or serviceName and namespace"));
        }
    };
    Datasource::at(&url).base_url(path)?;
    source.text("namespace")?;
    let mut settings = Settings::new();
    settings.push((&["url"], url.into()));
    let mut authentication = source.members("authentication")?;
    settings.extend(sign_in(&mut authentication, notes)?);
    authentication.finish()?;
    source.finish()?;
    Ok((name, settings))
}

fn sign_in(authentication: &mut Members, notes: &mut Vec<String>) -> Result<Settings, Wrong> {
    let kind = authentication.text("type")?.unwrap_or_else(|| "none".into()).to_lowercase();
    let mut given = authentication.members("credentials")?;
    let mut settings = Settings::new();
    let mut set = |value: Value| settings.push((&["authentication"], value));
    match kind.as_str() {
        "none" => {}
        "basic" => {
            let (username, password) = (given.required("username")?, given.required("password")?);
            set(json!({ "type": "basic", "username": username, "password": password }));
        }
        "bearer" => {
            let token = match given.text("tokenFilePath")? {
                Some(file) => json!({ "file": file }),
                None => given.required("token")?.into(),
            };
            set(json!({ "type": "bearer", "token": token }));
        }
        "apikey" | "api_key" => {
            if given.text("header")?.is_some() {
                notes.push(format!(
                    "without effect here: {}.header (it has none there, either; set \
                     advisor.datasources.NAME.authentication)",
                    given.path
                ));
            }
            set(json!({ "type": "api_key", "key": given.required("apiKey")? }));
        }
        "oauth2" => {
            let grant = given.text("grantType")?;
            if grant.is_some_and(|grant| grant != "client_credentials") {
                return Err(given.wrong("grantType", "must be client_credentials"));
            }
            set(json!({
                "type": "oauth2",
                "token_url": given.required("tokenEndpoint")?,
                "client_id": given.required("clientId")?,
                "client_secret": given.required("clientSecret")?,
            }));
        }
        "mtls" => {
            if given.text("keyPassword")?.is_some() {
                return Err(given.wrong("keyPassword", "is not read; the key must have none"));
            }
            let names: [(&[&str], [&str; 2], bool); 3] = [
                (&["tls", "client_cert_file"], ["cert", "clientCertPath"], true),
                (&["tls", "client_key_file"], ["key", "clientKeyPath"], true),
                (&["tls", "ca_file"], ["ca", "caCertPath"], false),
            ];
            for (ours, [name, other], required) in names {
                match given.text(other)? {
                    Some(file) => settings.push((ours, file.into())),
                    None if required => settings.push((ours, given.required(name)?.into())),
                    None => settings.extend(given.text(name)?.map(|file| (ours, file.into()))),
                }
            }
        }
        _ => {
            let known = "must be none, basic, bearer, apikey, oauth2 or mtls";
            return Err(authentication.wrong("type", known));
        }
    }
    given.finish()?;
    Ok(settings)
}

/// The members of an object. Each is taken out when it is read: what is left is not known here.
struct Members {
    path: String,
    left: Map<String, Value>,
}

impl Members {
    fn of(path: String, value: Value) -> Result<Members, Wrong> {
        match value {
            Value::Object(left) => Ok(Members { path, left }),
            Value::Null => Ok(Members { path, left: Map::new() }),
            _ => Err(Wrong(path, "must be an object".into())),
        }
    }

    fn members(&mut self, name: &str) -> Result<Members, Wrong> {
        let value = self.left.remove(name).unwrap_or_default();
        Members::of(format!("{}.{name}", self.path), value)
    }

    /// A blank text is one that is not given.
    fn text(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
            Some(_) => Err(self.wrong(name, "must be a text")),
        }
    }

    fn required(&mut self, name: &str) -> Result<String, Wrong> {
        self.text(name)?.ok_or_else(|| self.wrong(name, "must be given"))
    }

    fn finish(self) -> Result<(), Wrong> {
        match self.left.keys().next() {
            Some(name) => Err(self.wrong(name, "is not known here; remove it")),
            None => Ok(()),
        }
    }

    fn wrong(&self, name: &str, why: &str) -> Wrong {
        Wrong(format!("{}.{name}", self.path), why.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, shown};
    use crate::config::rows;

    const SECRET: &str = "hunter2";

    #[test]
    fn data_sources_become_ours_and_no_secret_is_shown() {
        let env: &[(&str, &str)] = &[
            ("k8stype", "openshift"),
            (
                "datasource",
                r#"[{ "name": "a", "provider": "prometheus", "serviceName": "prometheus-k8s",
                      "namespace": "openshift-monitoring", "url": "", "authentication": {
                      "type": "bearer", "credentials": { "tokenFilePath": "/token" } } },
                    { "name": "b", "provider": "Thanos", "serviceName": "", "namespace": "",
                      "url": "http://thanos:9090", "authentication": {} },
                    { "name": "c", "url": "https://c", "authentication": { "type": "basic",
                      "credentials": { "username": "u", "password": "hunter2" } } },
                    { "name": "d", "url": "https://d", "authentication": { "type": "apikey",
                      "credentials": { "apiKey": "hunter2", "header": "X-Key" } } },
                    { "name": "e", "url": "https://e", "authentication": { "type": "OAUTH2",
                      "credentials": { "tokenEndpoint": "https://i/token", "clientId": "me",
                      "clientSecret": "hunter2", "grantType": "client_credentials" } } },
                    { "name": "f", "url": "https://f", "authentication": { "type": "mtls",
                      "credentials": { "cert": "/cert", "clientKeyPath": "/key", "ca": "/ca" } } },
                    { "name": "g", "url": "http://g", "authentication": { "type": "bearer",
                      "credentials": { "token": "hunter2" } } }]"#,
            ),
        ];
        let file = "[advisor.datasources.c.tls]\ninsecure_skip_verify = true\n";
        let loaded = loaded(file, env).unwrap();
        for (key, value) in [
            ("a.url", r#""https://prometheus-k8s.openshift-monitoring.svc.cluster.local:9091""#),
            ("a.authentication.token.file", r#""/token""#),
            ("b.url", r#""http://thanos:9090""#),
            ("c.authentication.username", r#""u""#),
            ("d.authentication.header", r#""Authorization""#),
            ("e.authentication.token_url", r#""https://i/token""#),
            ("e.authentication.client_id", r#""me""#),
            ("f.tls.client_cert_file", r#""/cert""#),
            ("f.tls.client_key_file", r#""/key""#),
            ("f.tls.ca_file", r#""/ca""#),
            ("g.authentication.type", r#""bearer""#),
        ] {
            let row = shown(&loaded, &format!("advisor.datasources.{key}"));
            assert_eq!(row, format!("{value} env datasource"), "{key}");
        }
        let [header, certificates] = &loaded.notes[..] else { panic!("{:?}", loaded.notes) };
        assert!(header.contains("datasource[3].authentication.credentials.header"), "{header}");
        assert!(certificates.contains("of: a, d, e; set tls.ca_file"), "{certificates}");
        let everything = format!("{:?} {:?} {:?}", loaded, loaded.notes, rows(&loaded));
        assert!(!everything.contains(SECRET), "{everything}");
        assert!(loaded.config.advisor.check().is_ok());
    }

    #[test]
    fn those_in_our_own_file_and_in_that_of_the_existing_service_are_read() {
        let file = "[[datasource]]\nname = \"p\"\nserviceName = \"prom\"\nnamespace = \"mon\"\n\
                    [advisor.datasources.p]\nconcurrency_max = 3\n";
        let loaded = loaded(file, &[]).unwrap();
        let url = shown(&loaded, "advisor.datasources.p.url");
        assert_eq!(url, r#""http://prom.mon.svc.cluster.local:9090" config.toml:1"#);
        assert_eq!(shown(&loaded, "advisor.datasources.p.concurrency_max"), "3 config.toml:6");
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kruize.json");
        let text = r#"{ "datasource": [{ "name": "p", "url": "http://p" }] }"#;
        std::fs::write(&path, text).unwrap();
        let env = [("KRUIZE_CONFIG_FILE".to_owned(), path.display().to_string())].into();
        let sources = crate::config::Sources { env, ..Default::default() };
        let loaded = crate::config::load(&sources).unwrap();
        assert_eq!(shown(&loaded, "advisor.datasources.p.url"), r#""http://p" kruize.json:1"#);
        // What is not an object is not quoted.
        std::fs::write(&path, format!("{SECRET:?}")).unwrap();
        let problem = crate::config::load(&sources).unwrap_err().to_string();
        assert!(problem.contains("cannot be read") && !problem.contains(SECRET), "{problem}");
    }

    #[test]
    fn what_cannot_be_translated_is_named_and_nothing_of_it_is_quoted() {
        let credentials = |kind: &str, text: &str| {
            let authentication = format!(r#"{{ "type": "{kind}", "credentials": {{ {text} }} }}"#);
            format!(r#"[{{ "name": "p", "url": "http://p", "authentication": {authentication} }}]"#)
        };
        for (text, expected) in [
            ("hunter2".into(), "datasource: must be a list"),
            (r#"["hunter2"]"#.into(), "datasource[0]: must be an object"),
            (r#"[{ "url": "http://p" }]"#.into(), "datasource[0].name: must be given"),
            (r#"[{ "name": "p" }]"#.into(), "datasource[0].url: must be given, or serviceName"),
            (
                r#"[{ "name": "p", "serviceName": "s" }]"#.into(),
                "datasource[0].namespace: must be given",
            ),
            (
                r#"[{ "name": "p", "url": "http://p", "serviceName": "s" }]"#.into(),
                "datasource[0].serviceName: is there besides url",
            ),
            (
                r#"[{ "name": "p", "url": "http://u:hunter2@p" }]"#.into(),
                "datasource[0].url: must not contain credentials",
            ),
            (
                r#"[{ "name": "p", "url": "http://p", "provider": "hunter2" }]"#.into(),
                "datasource[0].provider: must be prometheus or thanos",
            ),
            (
                r#"[{ "name": "p", "url": "http://p" }, { "name": "p", "url": "http://q" }]"#
                    .into(),
                "datasource[1].name: p is there already",
            ),
            (
                r#"[{ "name": "p", "url": "http://p", "timeout": "hunter2" }]"#.into(),
                "datasource[0].timeout: is not known here",
            ),
            (credentials("kerberos", ""), "datasource[0].authentication.type: must be none"),
            (
                credentials("basic", r#""username": "u", "password": 4242"#),
                "authentication.credentials.password: must be a text",
            ),
            (
                credentials("bearer", r#""token": "hunter2", "scope": "hunter2""#),
                "authentication.credentials.scope: is not known here",
            ),
            (
                credentials("oauth2", r#""grantType": "hunter2""#),
                "credentials.grantType: must be client_credentials",
            ),
            (
                credentials("mtls", r#""cert": "/c", "key": "/k", "keyPassword": "hunter2""#),
                "credentials.keyPassword: is not read",
            ),
        ] {
            let text: String = text;
            let problem = loaded("", &[("datasource", &text)]).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
            assert!(!problem.contains(SECRET) && !problem.contains("4242"), "{problem}");
        }
        let file = "[advisor.datasources.p]\nurl = \"http://q\"\n\
                    authentication = { type = \"bearer\", token = \"other\" }\n";
        let text = credentials("bearer", r#""token": "hunter2""#);
        let problems = loaded(file, &[("datasource", &text)]).unwrap_err();
        for (key, line) in [("url", 2), ("authentication", 3)] {
            let problem = format!("env datasource: advisor.datasources.p.{key}: has another value");
            assert!(problems.contains(&problem), "{problems}");
            assert!(problems.contains(&format!("config.toml:{line}; remove one")), "{problems}");
        }
        assert!(!problems.contains(SECRET) && !problems.contains("other\""), "{problems}");
    }
}
