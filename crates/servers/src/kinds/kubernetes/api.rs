//! The few requests that set a cluster up, as its administrator.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{Place, wire};

pub struct Api {
    url: String,
    credentials: Vec<String>,
    /// What is sent: a definition may be longer than an argument.
    body: PathBuf,
}

impl Api {
    pub fn new(place: &Place) -> Result<Api> {
        let file = |name: &str| place.dir.join("pki").join(name).display().to_string();
        let pairs = [("--cacert", "ca.crt"), ("--cert", "admin.crt"), ("--key", "admin.key")];
        let credentials = pairs.iter().flat_map(|(flag, name)| [(*flag).to_owned(), file(name)]);
        let url = format!("https://127.0.0.1:{}", place.port("api")?);
        Ok(Api { url, credentials: credentials.collect(), body: place.dir.join("request.yaml") })
    }

    fn call(&self, path: &str, more: &[&str]) -> Result<String> {
        let url = format!("{}{path}", self.url);
        let mut args: Vec<&str> = self.credentials.iter().map(String::as_str).collect();
        args.extend(more);
        args.push(&url);
        wire::curl(&args)
    }

    pub fn get(&self, path: &str) -> Result<String> {
        self.call(path, &[])
    }

    fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list: Value = serde_json::from_str(&self.get(path)?)?;
        serde_json::from_value(list["items"].take())
            .with_context(|| format!("{path} is not a list"))
    }

    /// Creates what the YAML documents say, each unless it is there already.
    pub fn create(&self, path: &str, yaml: &str) -> Result<()> {
        let has_words = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        for document in yaml.split("\n---").filter(|document| document.lines().any(has_words)) {
            std::fs::write(&self.body, document)?;
            let (kind, body) =
                ("Content-Type: application/yaml", format!("@{}", self.body.display()));
            let made = self.call(path, &["--header", kind, "--data-binary", &body]);
            match made {
                Err(error) if !error.to_string().contains("AlreadyExists") => {
                    return Err(error.context(format!("{path} does not take {document}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether every kind that was added can be used.
    pub fn established(&self) -> Result<()> {
        for crd in self.list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")? {
            if !is(&crd, "Established") {
                bail!("{} is not established", crd["metadata"]["name"]);
            }
        }
        Ok(())
    }

    /// Whether pods can be made, and have somewhere to run.
    pub fn populated(&self, nodes: &[&str]) -> Result<()> {
        self.get("/api/v1/namespaces/default/serviceaccounts/default")?;
        self.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")?;
        let known = self.list("/api/v1/nodes")?;
        let ready = known.iter().filter(|node| is(node, "Ready")).count();
        // A new one is closed until the controllers have seen that it is ready.
        let open = known.iter().filter(|node| node["spec"]["taints"].is_null()).count();
        if ready.min(open) < nodes.len() {
            bail!("{ready} nodes are ready and {open} open of {}", nodes.len());
        }
        Ok(())
    }
}

fn is(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter().any(|one| one["type"] == condition && one["status"] == "True")
    })
}
