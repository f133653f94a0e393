//! Profiles: the expressions that measure, and those that discover, as the existing service declares
//! them. The built-in ones are its own, so that numbers are equal; others are uploaded.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::model::declared::Sort;
use crate::model::experiment::{METADATA_PROFILE, PERFORMANCE_PROFILE};

const RULES: &str = include_str!("../../../profiles/resource_optimization_local_monitoring.json");
const RAW: &str =
    include_str!("../../../profiles/resource_optimization_local_monitoring_norecordingrules.json");
const METADATA: &str =
    include_str!("../../../profiles/bulk_cluster_metadata_local_monitoring.json");

/// A profile that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("the profile is not valid: {0}")]
    NotValid(String),
    #[error("the profile has no expression for {variable} by {function}")]
    Missing { variable: String, function: String },
    #[error(
        "the expression for {variable} by {function} cannot be asked of many containers at once: {problem}"
    )]
    NotBatched { variable: String, function: String, problem: &'static str },
    #[error("the expression that finds each {variable} has no `{place}` for the filter to replace")]
    NoPlace { variable: String, place: &'static str },
}

/// The expressions of a metric profile or of a metadata profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Variable {
    name: String,
    #[serde(default, rename = "aggregation_functions", deserialize_with = "by_function")]
    expressions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Expression {
    function: String,
    query: String,
}

/// As they are uploaded, or as they are listed.
#[derive(Deserialize)]
#[serde(untagged)]
enum Expressions {
    Uploaded(Vec<Expression>),
    Listed(BTreeMap<String, Expression>),
}

/// Of several expressions for one function the last counts.
fn by_function<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let all = match Expressions::deserialize(from)? {
        Expressions::Uploaded(all) => all,
        Expressions::Listed(all) => all.into_values().collect(),
    };
    Ok(all.into_iter().map(|one| (one.function, one.query)).collect())
}

/// The members of both kinds of profiles that matter here.
#[derive(Deserialize)]
struct Document {
    slo: Option<Slo>,
    query_variables: Option<Vec<Variable>>,
}

#[derive(Deserialize)]
struct Slo {
    function_variables: Vec<Variable>,
}

impl Profile {
    pub fn parse(json: &str) -> Result<Self, ProfileError> {
        let value = serde_json::from_str(json);
        Self::of(&value.map_err(|error| ProfileError::NotValid(error.to_string()))?)
    }

    /// The expressions of a document, as it is uploaded or as it is listed.
    pub fn of(document: &Value) -> Result<Self, ProfileError> {
        let document = Document::deserialize(document)
            .map_err(|error| ProfileError::NotValid(error.to_string()))?;
        let variables = document.query_variables.or(document.slo.map(|slo| slo.function_variables));
        let variables = variables.ok_or_else(|| {
            ProfileError::NotValid("it has neither `slo` nor `query_variables`".to_owned())
        })?;
        Ok(Self { variables })
    }

    /// The metric profile that reads CPU usage from a recording rule.
    pub fn with_recording_rules() -> Self {
        Self::parse(RULES).expect("the built-in profile is valid")
    }

    /// The metric profile that needs no recording rules.
    pub fn without_recording_rules() -> Self {
        Self::parse(RAW).expect("the built-in profile is valid")
    }

    /// The metadata profile.
    pub fn metadata() -> Self {
        Self::parse(METADATA).expect("the built-in profile is valid")
    }

    /// The built-in profile of this name, as it is uploaded to the existing service.
    pub fn built_in(sort: Sort, name: &str) -> Option<Value> {
        let text = match (sort, name) {
            (Sort::Metric, PERFORMANCE_PROFILE) => RULES,
            (Sort::Metadata, METADATA_PROFILE) => METADATA,
            _ => return None,
        };
        Some(serde_json::from_str(text).expect("the built-in profile is valid"))
    }

    /// Whether it says anything about a variable.
    pub fn has(&self, variable: &str) -> bool {
        self.variables.iter().any(|found| found.name == variable)
    }

    /// The expression of a variable. Of several for one function the last counts.
    pub fn expression(&self, variable: &str, function: &str) -> Result<&str, ProfileError> {
        let found = self.variables.iter().rev().find(|found| found.name == variable);
        found.and_then(|variable| variable.by(function)).ok_or_else(|| ProfileError::Missing {
            variable: variable.to_owned(),
            function: function.to_owned(),
        })
    }

    /// The sum of the variable whose name contains a word, as metadata profiles are read.
    pub fn containing(&self, word: &str) -> Result<&str, ProfileError> {
        let mut variables = self.variables.iter().filter(|variable| variable.name.contains(word));
        variables.find_map(|variable| variable.by("sum")).ok_or_else(|| ProfileError::Missing {
            variable: word.to_owned(),
            function: "sum".to_owned(),
        })
    }
}

impl Variable {
    fn by(&self, function: &str) -> Option<&str> {
        self.expressions.get(function).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_expression_of_a_function_counts() {
        let profile = Profile::with_recording_rules();
        for function in ["avg", "sum", "min", "max"] {
            let expression = profile.expression("cpuUsage", function).unwrap();
            assert!(expression.contains(":sum_irate{"), "{expression}");
        }
        let raw = Profile::without_recording_rules();
        assert!(raw.expression("cpuUsage", "max").unwrap().contains("[5m])[$MEASUREMENT"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Profile::metadata().expression("cpuUsage", "avg").unwrap_err().to_string();
        assert_eq!(error, "the profile has no expression for cpuUsage by avg");
        for text in ["", "[]", "{}", r#"{"slo":{}}"#] {
            assert!(matches!(Profile::parse(text), Err(ProfileError::NotValid(_))), "{text}");
        }
        assert!(Profile::metadata().containing("workload").unwrap().contains("workload_type"));
    }
}
