//! A resource as it stands in a template: what makes it, of what, how often, and after what.

use kernel::Labels;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StatusEndpoint;
use super::terms::Price;
use crate::model::drift::DriftPolicy;
use crate::model::fields::{Fields, object, text};
use crate::model::period::Period;
use crate::model::problem::Problems;

/// An entry of `resources`: a resource, or the use of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Member {
    Resource(Box<ResourceTemplate>),
    Group(GroupUse),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceTemplate {
    pub executor: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
    /// With a count it is a list, even if the count is 1: `web[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
    /// What the executor gets; may have expressions.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
    /// Besides those whose outputs are used. May have expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Fields of the input that cannot be changed in place, besides those that the executor knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace_on: Vec<String>,
    #[serde(default)]
    pub drift: DriftPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status_endpoints: Vec<StatusEndpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// How many there are: a number, or an expression over parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Count {
    Number(u32),
    Expression(String),
}

/// A page about a resource, such as its dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub rel: String,
    pub href: String,
}

/// The use of a group: its resources are here, with the name of the use before theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupUse {
    pub group: String,
    /// The group's parameters; may have expressions over what is known when it is planned.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub with: Map<String, Value>,
    /// What all of its resources depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

impl Member {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Member> {
        if value.get("group").is_some() {
            return GroupUse::read(path, value, problems).map(Member::Group);
        }
        let resource = ResourceTemplate::read(path, value, problems)?;
        Some(Member::Resource(Box::new(resource)))
    }
}

impl GroupUse {
    fn read(path: &str, value: Value, problems: &mut Problems) -> Option<GroupUse> {
        let mut fields = Fields::new(path, value, problems)?;
        let group = fields.required("group", text);
        let with = fields.read("with", object).unwrap_or_default();
        let depends_on = fields.items("depends_on", text);
        if fields.has("count") {
            fields.take("count");
            fields.problem("count", "a group has no count", "give its resources one");
        }
        fields.finish();
        Some(GroupUse { group: group?, with, depends_on })
    }
}

impl ResourceTemplate {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<ResourceTemplate> {
        let mut fields = Fields::new(path, value, problems)?;
        let executor = fields.required("executor", text);
        let tags = fields.entries("tags", |_, path, value, problems| text(path, value, problems));
        let resource = ResourceTemplate {
            executor: executor.clone().unwrap_or_default(),
            description: fields.read("description", text).unwrap_or_default(),
            tags: tags.into_iter().collect(),
            count: fields.read("count", count),
            input: fields.read("input", object).unwrap_or_default(),
            depends_on: fields.items("depends_on", text),
            replace_on: fields.items("replace_on", text),
            drift: fields.read("drift", DriftPolicy::read).unwrap_or_default(),
            timeout: fields.read("timeout", Period::read),
            links: fields.items("links", Link::read),
            status_endpoints: fields.items("status_endpoints", StatusEndpoint::read),
            price: fields.read("price", Price::read),
        };
        fields.finish();
        executor.map(|_| resource)
    }
}

impl Link {
    fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Link> {
        let mut fields = Fields::new(path, value, problems)?;
        let (rel, href) = (fields.required("rel", text), fields.required("href", text));
        fields.finish();
        Some(Link { rel: rel?, href: href? })
    }
}

fn count(path: &str, value: Value, problems: &mut Problems) -> Option<Count> {
    match &value {
        Value::String(text) if text.contains("{{") => Some(Count::Expression(text.clone())),
        _ => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            if number.is_none() {
                let right = "write a whole number, or an expression such as `{{ param.size }}`";
                problems.add(path, format!("`{value}` is not a count"), right);
            }
            number.map(Count::Number)
        }
    }
}
