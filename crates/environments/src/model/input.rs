//! The input of a resource: JSON in which expressions are evaluated. Most are when it is planned. Those
//! over outputs of other resources stay as they are until these are ready, with the values of the
//! other names that they use: a resource needs neither its template nor its environment to go on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::digest::Hasher;
use super::expression::{Expression, Known, RESERVED, Scope};
use super::problem::{Problems, join};

/// The input of all resources of one name, compiled.
#[derive(Debug)]
pub struct InputTemplate {
    /// With null where an expression is.
    plain: Value,
    leaves: Vec<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    /// The path for people.
    path: String,
    /// The JSON pointer to it.
    pointer: Arc<str>,
    source: Arc<str>,
    expression: Expression,
    /// It uses outputs.
    deferred: bool,
}

/// The input of one resource, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// With null where an expression is deferred.
    pub value: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<Deferred>,
    /// The values of `param`, `env`, `self` and `count` that deferred expressions use.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub given: Map<String, Value>,
}

/// An expression over outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// The JSON pointer to where its value goes. Shared by all resources of a name.
    pub pointer: Arc<str>,
    pub source: Arc<str>,
}

impl InputTemplate {
    pub fn compile(path: &str, value: &Value, problems: &mut Problems) -> InputTemplate {
        let mut template = InputTemplate { plain: value.clone(), leaves: Vec::new() };
        collect(path, String::new(), value, &mut template.leaves, problems);
        for leaf in &template.leaves {
            if let Some(place) = template.plain.pointer_mut(&leaf.pointer) {
                *place = Value::Null;
            }
        }
        template
    }

    /// The expressions, with the path of each.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, &Expression)> {
        self.leaves.iter().map(|leaf| (leaf.path.as_str(), &leaf.expression))
    }

    pub fn check(&self, known: &Known<'_>, problems: &mut Problems) {
        for (path, expression) in self.expressions() {
            expression.check(path, known, problems);
        }
    }

    /// Whether an expression uses a name, such as `count`.
    pub fn uses(&self, root: &str) -> bool {
        let mut accesses = self.leaves.iter().flat_map(|leaf| &leaf.expression.accesses);
        accesses.any(|access| access.root == root)
    }

    /// Evaluates what can be. `given` has the values of the scope, for what cannot.
    pub fn evaluate(
        &self,
        scope: &Scope,
        given: &Map<String, Value>,
        problems: &mut Problems,
    ) -> Arc<Input> {
        let mut input = Input { value: self.plain.clone(), ..Input::default() };
        for leaf in &self.leaves {
            if leaf.deferred {
                for access in &leaf.expression.accesses {
                    if let Some(value) = given.get(&access.root) {
                        let field = access.path.first();
                        give(&mut input.given, &access.root, field, value);
                    }
                }
                let (pointer, source) = (leaf.pointer.clone(), leaf.source.clone());
                input.deferred.push(Deferred { pointer, source });
                continue;
            }
            match leaf.expression.evaluate(scope) {
                Ok(value) => place(&mut input.value, &leaf.pointer, value),
                Err(why) => problems.add(&leaf.path, why, leaf.expression.source()),
            }
        }
        Arc::new(input)
    }
}

/// Copies only the field that is used, or all if which one is not known.
fn give(
    given: &mut Map<String, Value>,
    root: &str,
    field: Option<&super::expression::Segment>,
    value: &Value,
) {
    let kept = given.entry(root).or_insert_with(|| Value::Object(Map::new()));
    match field {
        Some(super::expression::Segment::Field(field)) => {
            if let (Value::Object(kept), Some(value)) = (kept, value.get(field)) {
                kept.insert(field.clone(), value.clone());
            }
        }
        _ => *kept = value.clone(),
    }
}

fn place(value: &mut Value, pointer: &str, new: Value) {
    if let Some(place) = value.pointer_mut(pointer) {
        *place = new;
    }
}

fn collect(
    path: &str,
    pointer: String,
    value: &Value,
    leaves: &mut Vec<Leaf>,
    problems: &mut Problems,
) {
    match value {
        Value::String(text) => {
            if let Some(expression) = Expression::parse(path, text, problems) {
                let deferred = expression.resources().next().is_some();
                let (pointer, source) = (pointer.into(), text.as_str().into());
                leaves.push(Leaf { path: path.into(), pointer, source, expression, deferred });
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(&format!("{path}[{i}]"), format!("{pointer}/{i}"), item, leaves, problems);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = join(path, key);
                if key.contains("{{") {
                    problems.add(&path, "a key is an expression", "only values may be");
                }
                let escaped = key.replace('~', "~0").replace('/', "~1");
                collect(&path, format!("{pointer}/{escaped}"), value, leaves, problems);
            }
        }
        _ => {}
    }
}

impl Input {
    /// Evaluates what was deferred. `resources` has, by name, an object with `outputs`, or a list of
    /// them. The result may hold what is sensitive: it is for the executor, and is not stored.
    pub fn complete(&self, resources: &Value) -> Result<Value, Problems> {
        let mut problems = Problems::default();
        let mut value = self.value.clone();
        let empty = Value::Object(Map::new());
        let of = |root: &str| self.given.get(root).unwrap_or(&empty);
        let [param, env, own, count] = RESERVED.map(of);
        let scope =
            Scope::new(param, env).of_resource(own).of_count(count).with_resources(resources);
        for Deferred { pointer, source } in &self.deferred {
            let Some(expression) = Expression::parse(pointer, source, &mut problems) else {
                continue;
            };
            match expression.evaluate(&scope) {
                Ok(new) => place(&mut value, pointer, new),
                Err(why) => problems.add(&**pointer, why, &**source),
            }
        }
        problems.unless_any(value)
    }

    /// The names of resources whose outputs it uses, sorted.
    pub fn uses(&self) -> Vec<String> {
        let mut problems = Problems::default();
        let parsed = self.deferred.iter().filter_map(|deferred| {
            Expression::parse(&deferred.pointer, &deferred.source, &mut problems)
        });
        let parsed: Vec<Expression> = parsed.collect();
        let names = parsed.iter().flat_map(Expression::resources).map(|access| access.root.clone());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The source of the expression that is deferred at a place.
    pub fn deferred_at(&self, pointer: &str) -> Option<&str> {
        let found = self.deferred.iter().find(|deferred| *deferred.pointer == *pointer)?;
        Some(&found.source)
    }

    pub fn digest(&self) -> String {
        let mut hasher = Hasher::default();
        hasher.value(&self.value);
        hasher.number(self.deferred.len() as u64);
        for Deferred { pointer, source } in &self.deferred {
            hasher.text(pointer);
            hasher.text(source);
        }
        hasher.object(&self.given);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn evaluate(value: &Value) -> (Arc<Input>, Problems) {
        let mut problems = Problems::default();
        let template = InputTemplate::compile("input", value, &mut problems);
        let given = json!({"param": {"region": "eu", "size": 2}, "env": {"name": "test"}});
        let scope = Scope::new(&given["param"], &given["env"]);
        let given = given.as_object().unwrap();
        (template.evaluate(&scope, given, &mut problems), problems)
    }

    #[test]
    fn what_is_known_is_evaluated_and_the_rest_is_kept_with_what_it_needs() {
        let (input, problems) = evaluate(&json!({
            "size": "{{ param.size }}",
            "a/b": ["x", "{{ param.region }}-{{ db.outputs.host }}"],
        }));
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(input.value, json!({"size": 2, "a/b": ["x", null]}));
        assert_eq!(Value::Object(input.given.clone()), json!({"param": {"region": "eu"}}));
        assert_eq!(input.uses(), ["db"]);
        assert_eq!(input.deferred_at("/a~1b/1"), Some("{{ param.region }}-{{ db.outputs.host }}"));
        let stored: Input = serde_json::from_value(serde_json::to_value(&*input).unwrap()).unwrap();
        assert_eq!(stored, *input);
        let value = stored.complete(&json!({"db": {"outputs": {"host": "h"}}})).unwrap();
        assert_eq!(value, json!({"size": 2, "a/b": ["x", "eu-h"]}));
        let missing = stored.complete(&json!({"db": {"outputs": {}}})).unwrap_err();
        assert!(missing.to_string().contains("/a~1b/1"), "{missing}");
    }

    #[test]
    fn problems_name_the_leaf() {
        let (_, problems) =
            evaluate(&json!({"a": [{"b": "{{ param.size|times(\"x\") }}"}], "{{ x }}": 1}));
        assert!(
            problems.to_string().contains("input.{{ x }}: a key is an expression"),
            "{problems}"
        );
        assert!(problems.to_string().contains("input.a[0].b: "), "{problems}");
    }

    #[test]
    fn a_digest_counts_values_expressions_and_what_they_are_given() {
        let input = |text: &str| evaluate(&json!({ "a": text })).0.digest();
        assert_eq!(input("{{ param.size }}"), input("{{ param.size }}"));
        assert_ne!(input("{{ param.size }}"), input("{{ param.region }}"));
        assert_ne!(input("{{ db.outputs.x }}"), input("{{ db.outputs.y }}"));
        assert_ne!(input("{{ db.outputs.x ~ param.size }}"), input("{{ db.outputs.x }}"));
    }
}
