//! Reads a template from what YAML or JSON says.

use serde_json::Value;

use super::{
    Action, Approval, Certificate, EntryPoint, External, GeneratedSecret, Group, Member,
    Permissions, Price, ResourceTemplate, StatusEndpoint, Template,
};
use crate::model::expression::RESERVED;
use crate::model::fields::{Fields, text};
use crate::model::parameter::Parameter;
use crate::model::problem::Problems;
use crate::model::refs::{NAME_RULE, is_label, is_name};

/// Beyond this, counts say the same in fewer lines.
pub const RESOURCES_MAX: usize = 20_000;
pub const PARAMETERS_MAX: usize = 500;

impl Template {
    /// Reads a template. Everything that is wrong is in the problems; what could be read is returned,
    /// so that it can be checked further.
    pub fn read(value: Value, problems: &mut Problems) -> Template {
        let Some(mut fields) = Fields::new("", value, problems) else { return Template::default() };
        let template = Template {
            name: fields.required("name", label).unwrap_or_default(),
            version: fields.required("version", version).unwrap_or_default(),
            commit: fields.read("commit", text),
            description: fields.read("description", text).unwrap_or_default(),
            tags: fields.entries("tags", tag).into_iter().collect(),
            parameters: fields.entries("parameters", named(Parameter::read)).into_iter().collect(),
            externals: fields.entries("externals", labelled(External::read)).into_iter().collect(),
            groups: fields
                .entries("groups", |name, path, value, problems| {
                    check_name(name, path, problems);
                    Group::read(name, path, value, problems)
                })
                .into_iter()
                .collect(),
            resources: fields.entries("resources", resource(Member::read)).into_iter().collect(),
            actions: fields.entries("actions", labelled(Action::read)).into_iter().collect(),
            secrets: fields
                .entries("secrets", labelled(GeneratedSecret::read))
                .into_iter()
                .collect(),
            certificates: fields
                .entries("certificates", labelled(Certificate::read))
                .into_iter()
                .collect(),
            permissions: fields.read("permissions", Permissions::read).unwrap_or_default(),
            price: fields.read("price", Price::read),
            entry_points: fields.items("entry_points", EntryPoint::read),
            status_endpoints: fields.items("status_endpoints", StatusEndpoint::read),
            approval: fields.read("approval", Approval::read),
        };
        if template.resources.len() > RESOURCES_MAX {
            let wrong = format!("has {} entries", template.resources.len());
            fields.problem("resources", wrong, format!("{RESOURCES_MAX} are allowed; use `count`"));
        }
        if template.parameters.len() > PARAMETERS_MAX {
            let wrong = format!("has {} entries", template.parameters.len());
            fields.problem("parameters", wrong, format!("{PARAMETERS_MAX} are allowed"));
        }
        fields.finish();
        template
    }
}

impl Group {
    pub fn read(name: &str, path: &str, value: Value, problems: &mut Problems) -> Option<Group> {
        let mut fields = Fields::new(path, value, problems)?;
        let group = Group {
            name: name.into(),
            description: fields.read("description", text).unwrap_or_default(),
            tags: fields.entries("tags", tag).into_iter().collect(),
            parameters: fields.entries("parameters", named(Parameter::read)).into_iter().collect(),
            resources: fields
                .entries("resources", resource(ResourceTemplate::read))
                .into_iter()
                .collect(),
        };
        fields.finish();
        Some(group)
    }
}

fn tag(_: &str, path: &str, value: Value, problems: &mut Problems) -> Option<String> {
    text(path, value, problems)
}

fn label(path: &str, value: Value, problems: &mut Problems) -> Option<String> {
    let text = text(path, value, problems)?;
    if !is_label(&text) {
        let right = "use up to 63 lower-case letters, digits and `-`, beginning with a letter";
        problems.add(path, format!("`{text}` is not a name"), right);
    }
    Some(text)
}

/// Any text that can be part of a path and a counter.
fn version(path: &str, value: Value, problems: &mut Problems) -> Option<String> {
    let text = text(path, value, problems)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
        let right = "use up to 64 letters, digits, `.`, `-`, `_` and `+`";
        problems.add(path, format!("`{text}` is not a version"), right);
    }
    Some(text)
}

fn check_name(name: &str, path: &str, problems: &mut Problems) {
    if !is_name(name) {
        problems.add(path, format!("`{name}` is not a name"), NAME_RULE);
    }
}

/// A reader of entries whose keys are names.
fn named<T>(
    read: impl Fn(&str, Value, &mut Problems) -> Option<T>,
) -> impl Fn(&str, &str, Value, &mut Problems) -> Option<T> {
    move |name, path, value, problems| {
        check_name(name, path, problems);
        read(path, value, problems)
    }
}

/// A reader of entries whose keys are labels.
fn labelled<T>(
    read: impl Fn(&str, Value, &mut Problems) -> Option<T>,
) -> impl Fn(&str, &str, Value, &mut Problems) -> Option<T> {
    move |name, path, value, problems| {
        label(path, Value::String(name.into()), problems);
        read(path, value, problems)
    }
}

/// A reader of resources, whose names are used in expressions.
fn resource<T>(
    read: impl Fn(&str, Value, &mut Problems) -> Option<T>,
) -> impl Fn(&str, &str, Value, &mut Problems) -> Option<T> {
    let read = named(read);
    move |name, path, value, problems| {
        if RESERVED.contains(&name) {
            let right = "choose another name";
            problems.add(path, format!("`{name}` means something else in expressions"), right);
        }
        read(name, path, value, problems)
    }
}
