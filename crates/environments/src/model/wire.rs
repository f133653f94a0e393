//! An environment as the API and the events show it, with the field names of the founding project.

use kernel::{Labels, Timestamp, Typed};
use serde::Serialize;

use super::environment::{Environment, Phase, Status, TemplateUse};
use super::template::EntryPoint;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnvironmentView {
    #[serde(rename = "_key")]
    pub key: String,
    pub name: String,
    pub description: String,
    pub tags: Labels,
    pub created_on: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroyed_on: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destruction_planned_on: Option<Timestamp>,
    pub templates: Vec<TemplateUse>,
    /// Their ids.
    pub resources: Vec<String>,
    pub entry_points: Vec<EntryPoint>,
    /// As in `ok`, for programs.
    pub status: &'static str,
    /// As in `Deployed - OK`, for people.
    pub status_title: &'static str,
    #[serde(flatten)]
    pub details: Status,
}

/// What an environment has besides its object.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub description: String,
    pub tags: Labels,
    pub destroyed_on: Option<Timestamp>,
    pub resources: Vec<String>,
    pub entry_points: Vec<EntryPoint>,
}

impl EnvironmentView {
    pub fn new(environment: &Typed<Environment>, around: Surroundings) -> EnvironmentView {
        let phase: Phase = environment.phase;
        EnvironmentView {
            key: environment.id.clone(),
            name: environment.name.clone(),
            description: around.description,
            tags: around.tags,
            created_on: environment.created_at,
            destroyed_on: around.destroyed_on,
            destruction_planned_on: environment.spec.destroy_at,
            templates: environment.spec.templates.clone(),
            resources: around.resources,
            entry_points: around.entry_points,
            status: phase.label(),
            status_title: phase.title(),
            details: environment.status.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::environment::{ActingAs, KIND, Want};

    #[test]
    fn the_names_are_those_of_the_founding_project() {
        let environment = Typed {
            id: "e1".into(),
            kind: KIND.into(),
            org: "o".into(),
            owner: "s".into(),
            name: "shop-test".into(),
            phase: Phase::Ok,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            revision: 1,
            spec: Environment {
                templates: vec![TemplateUse {
                    id: "t".into(),
                    name: "shop".into(),
                    version: "1".into(),
                }],
                parameters: serde_json::Map::new(),
                want: Want::Present,
                destroy_at: Some(Timestamp(3_600_000)),
                destroy_set_at: None,
                sleep_before: None,
                plan: None,
                acting_as: ActingAs::default(),
            },
            status: Status::default(),
        };
        let object = environment.new_draft().create("planned").object;
        assert_eq!(Typed::<Environment>::from_object(&object).unwrap(), environment);
        let view = EnvironmentView::new(&environment, Surroundings::default());
        let json = serde_json::to_value(view).unwrap();
        assert_eq!(json["_key"], "e1");
        assert_eq!(json["created_on"], "1970-01-01T00:00:00.000Z");
        assert_eq!(json["destruction_planned_on"], "1970-01-01T01:00:00.000Z");
        assert_eq!(json["status_title"], "Deployed - OK");
        assert!(json.get("destroyed_on").is_none());
    }
}
