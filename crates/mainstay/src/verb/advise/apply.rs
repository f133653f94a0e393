//! Applies patches that a person has reviewed, after a comparison with the cluster as it is now.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use kernel::Error as KernelError;
use kubernetes::{ApplyOptions, Client, ObjectRef, kubeconfig};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::output;

const FIELD_MANAGER: &str = "mainstay-advisor";

#[derive(Debug, Args)]
pub struct Apply {
    /// Patches, or directories of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The kubeconfig [default: that of kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Show what would change, and let the API server check it
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Take the fields from their owners
    #[arg(long)]
    force_conflicts: bool,
}

/// A patch, and what it changes of the workload as it is now.
struct Planned {
    object: Value,
    name: ObjectRef,
    changes: Vec<String>,
}

impl Apply {
    pub async fn run(self) -> Result<()> {
        let mut files = Vec::new();
        for path in &self.paths {
            files.extend(patch_files(path)?);
        }
        let config = kubeconfig(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        let cluster = config.cluster_url.to_string();
        let client = Client::new(config)?;
        let mut planned = Vec::new();
        for file in &files {
            planned.push(plan(&client, file).await?);
        }
        planned.retain(|one| !one.changes.is_empty());
        if planned.is_empty() {
            output::say("nothing to do: the workloads are as the patches have them");
            return Ok(());
        }
        for Planned { name, changes, .. } in &planned {
            output::print(&format!("{name}"))?;
            for change in changes {
                output::print(&format!("  {change}"))?;
            }
        }
        if !self.dry_run && !self.yes {
            confirm(planned.len(), &cluster)?;
        }
        let options = ApplyOptions {
            field_manager: FIELD_MANAGER,
            force: self.force_conflicts,
            dry_run: self.dry_run,
        };
        let done = if self.dry_run { "can be applied" } else { "is applied" };
        for Planned { object, name, .. } in &planned {
            client.apply_with(object, options).await.map_err(conflict)?;
            output::say(&format!("{name} {done}"));
        }
        Ok(())
    }
}

/// The file itself, or the YAML files of a directory in the order of their names.
fn patch_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot = |e| Error::file(format!("{} cannot be read", path.display()), e);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_some_and(|of| of == "yaml" || of == "yml") {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        let why = format!("{} has no .yaml files", path.display());
        return Err(KernelError::invalid("PATH", why).into());
    }
    Ok(files)
}

async fn plan(client: &Client, file: &Path) -> Result<Planned> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|e| Error::file(format!("{shown} cannot be read"), e))?;
    let invalid = |why: String| KernelError::invalid(shown.to_string(), why);
    let mut object: Value =
        serde_yaml_ng::from_str(&text).map_err(|e| invalid(format!("is not YAML: {e}")))?;
    let name = ObjectRef::from_manifest(&object).map_err(|e| invalid(e.to_string()))?;
    let containers = containers(&object)
        .ok_or_else(|| invalid("is not a patch of a workload's containers".to_owned()))?;
    // Without this, an apply would try to create what is not there.
    let live = client.get(&name).await?;
    let live = live.ok_or_else(|| KernelError::NotFound(name.to_string()))?;
    let mut changes = Vec::new();
    for container in containers {
        let wanted = container["name"].as_str().unwrap_or_default();
        let mut found = self::containers(&live).into_iter().flatten();
        let Some(found) = found.find(|other| other["name"] == wanted) else {
            return Err(KernelError::invalid(
                shown.to_string(),
                format!("{name} has no container `{wanted}`"),
            )
            .into());
        };
        changes.extend(differences(wanted, &container["resources"], &found["resources"]));
    }
    keep_own(&mut object, &live);
    Ok(Planned { object, name, changes })
}

/// Adds the amounts that an earlier patch has set and this one does not name: an apply removes what its
/// manager no longer sends.
fn keep_own(object: &mut Value, live: &Value) {
    let managed = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut own = managed
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
        .filter_map(|entry| {
            let spec = &entry["fieldsV1"]["f:spec"];
            let template = spec.get("f:jobTemplate").map_or(spec, |job| &job["f:spec"]);
            template["f:template"]["f:spec"]["f:containers"].as_object()
        });
    let (Some(own), Some(wanted)) = (own.next(), containers_mut(object)) else { return };
    for found in containers(live).into_iter().flatten() {
        let Some(fields) = own.get(&format!("k:{}", json!({ "name": found["name"] }))) else {
            continue;
        };
        for section in ["requests", "limits"] {
            let fields = fields["f:resources"][format!("f:{section}")].as_object();
            for resource in fields.into_iter().flatten().filter_map(|it| it.0.strip_prefix("f:")) {
                let at = wanted.iter().position(|other| other["name"] == found["name"]);
                let at = at.unwrap_or_else(|| {
                    wanted.push(json!({ "name": found["name"] }));
                    wanted.len() - 1
                });
                let amount = &mut wanted[at]["resources"][section][resource];
                if amount.is_null() {
                    *amount = found["resources"][section][resource].clone();
                }
            }
        }
    }
}

fn containers_mut(object: &mut Value) -> Option<&mut Vec<Value>> {
    let path = if object["spec"].get("jobTemplate").is_some() {
        "/spec/jobTemplate/spec/template/spec/containers"
    } else {
        "/spec/template/spec/containers"
    };
    object.pointer_mut(path)?.as_array_mut()
}

/// The containers of a workload's pod template, wherever that is.
fn containers(object: &Value) -> Option<&Vec<Value>> {
    let spec = &object["spec"];
    let template = spec.get("jobTemplate").map_or(spec, |job| &job["spec"]);
    template["template"]["spec"]["containers"].as_array()
}

fn differences(container: &str, wanted: &Value, live: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for section in ["requests", "limits"] {
        for (resource, amount) in wanted[section].as_object().into_iter().flatten() {
            let (before, after) = (&live[section][resource], output::text(amount));
            if output::text(before) != after {
                let before =
                    if before.is_null() { "unset".to_owned() } else { output::text(before) };
                found.push(format!("{container}: {section}.{resource} {before} -> {after}"));
            }
        }
    }
    found
}

fn confirm(patches: usize, cluster: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        let why = "is required when nobody can be asked; try --dry-run first";
        return Err(KernelError::invalid("--yes", why).into());
    }
    let mut out = std::io::stderr().lock();
    // Without a terminal to write to, nobody answers.
    let _ = write!(out, "Apply {patches} patches to {cluster}? Their pods restart. [y/N] ");
    let _ = out.flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|e| Error::file("the answer cannot be read", e))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(KernelError::Conflict("nothing was applied".into()).into())
}

/// A conflict names the owner of the fields, and what to do.
fn conflict(error: KernelError) -> Error {
    match error {
        KernelError::Conflict(why) => KernelError::Conflict(format!(
            "{}. Change it where it is managed, or give --force-conflicts",
            why.trim_end()
        ))
        .into(),
        other => other.into(),
    }
}
