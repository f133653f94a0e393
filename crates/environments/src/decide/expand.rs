//! From a compiled template and parameters to resources: counts and groups expanded, edges between
//! single resources, inputs evaluated as far as they can be. Linear in resources and edges; what the
//! resources of one name have in common exists once.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::compile::{Compiled, Edge, Number, Outside, Part, Which};
use super::graph::Graph;
use crate::model::environment::Want;
use crate::model::expression::Scope;
use crate::model::input::Input;
use crate::model::parameter::resolve;
use crate::model::problem::Problems;
use crate::model::refs::{Address, REFERENCE_RULE, Reference};
use crate::model::resource::Resource;

/// Of one environment.
pub const RESOURCES_MAX: u64 = 100_000;
/// Two counts that depend on each other as a whole multiply.
pub const EDGES_MAX: u64 = 1_000_000;

/// The environment that is planned, as expressions see it.
#[derive(Debug, Clone, Default)]
pub struct About<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub org: &'a str,
    pub tags: kernel::Labels,
}

/// All resources that an environment should have.
#[derive(Debug)]
pub struct Expansion<'c> {
    pub compiled: &'c Compiled,
    /// The parameters with their defaults.
    pub parameters: Map<String, Value>,
    /// Those of one name are next to each other.
    pub resources: Vec<Wanted>,
    /// Its nodes are the resources by their numbers.
    pub graph: Graph,
    /// The resources, each after what it depends on.
    pub order: Vec<u32>,
    /// By part: what it depends on elsewhere.
    pub outside: Vec<Vec<Reference>>,
    /// By part: how many there are, if they are a list.
    pub counts: Vec<Option<u32>>,
}

#[derive(Debug, Clone)]
pub struct Wanted {
    pub part: u32,
    pub index: Option<u32>,
    pub input: Arc<Input>,
    /// Of the input.
    pub digest: Arc<str>,
}

impl<'c> Expansion<'c> {
    pub fn part(&self, wanted: &Wanted) -> &'c Part {
        &self.compiled.parts[wanted.part as usize]
    }

    pub fn address(&self, wanted: &Wanted) -> Address {
        Address::new(&self.part(wanted).name, wanted.index)
    }

    /// The spec of a resource of an environment.
    pub fn resource(&self, number: u32, environment: &str) -> Resource {
        let wanted = &self.resources[number as usize];
        let part = self.part(wanted);
        let template = &self.compiled.template;
        let group = part.group.map(|group| self.compiled.groups[group as usize].name.clone());
        Resource {
            environment: environment.into(),
            address: self.address(wanted),
            template: format!("{}@{}", template.name, template.version),
            executor: part.resource.executor.clone(),
            count: self.counts[wanted.part as usize],
            group,
            input: (*wanted.input).clone(),
            want: Want::Present,
            incarnation: 0,
            depends_on: self.depends_on(number),
            drift: part.resource.drift.clone(),
            timeout: part.resource.timeout,
            links: part.resource.links.clone(),
            price: part.resource.price.clone(),
            tags: part.resource.tags.clone(),
        }
    }

    /// What a resource depends on, here and elsewhere.
    pub fn depends_on(&self, number: u32) -> Vec<Reference> {
        let here = self.graph.dependencies(number).iter();
        let here = here.map(|on| Reference::Here(self.address(&self.resources[*on as usize])));
        let part = self.resources[number as usize].part as usize;
        here.chain(self.outside[part].iter().cloned()).collect()
    }
}

/// Expands. The problems name parameters, or fields of the template whose values do not fit.
pub fn expand<'c>(
    compiled: &'c Compiled,
    given: &Map<String, Value>,
    about: &About<'_>,
) -> Result<Expansion<'c>, Problems> {
    let mut problems = Problems::default();
    let parameters = resolve(&compiled.template.parameters, given, "parameters", &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let env = json!({ "id": about.id, "name": about.name, "org": about.org, "tags": about.tags });
    let scopes = Scopes::new(compiled, &parameters, env, &mut problems);
    let counts: Vec<Option<u32>> =
        compiled.parts.iter().map(|part| count(part, &scopes, &mut problems)).collect();
    let total: u64 = counts.iter().map(|count| u64::from(count.unwrap_or(1))).sum();
    if total > RESOURCES_MAX {
        problems.add("resources", format!("are {total}"), format!("{RESOURCES_MAX} are allowed"));
    }
    let firsts = firsts(&counts);
    let edges = edges(compiled, &counts, &firsts, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut resources = Vec::with_capacity(total as usize);
    for (number, part) in compiled.parts.iter().enumerate() {
        inputs(part, number as u32, counts[number], &scopes, &mut resources, &mut problems);
    }
    let outside = compiled.parts.iter().map(|part| outside(part, &scopes, &mut problems)).collect();
    let graph = Graph::new(resources.len(), &edges);
    // Edges between parts have no cycle, so those between their resources have none.
    let order = graph.order().expect("a compiled template has no cycle");
    problems.unless_any(Expansion {
        compiled,
        parameters,
        resources,
        graph,
        order,
        outside,
        counts,
    })
}

/// The values of names, for the template and for each group.
struct Scopes {
    template: Given,
    groups: Vec<Given>,
}

struct Given {
    scope: Scope,
    /// The same as JSON, for expressions that are deferred.
    values: Map<String, Value>,
}

impl Given {
    fn new(param: Value, env: Value) -> Given {
        let scope = Scope::new(&param, &env);
        let values = Map::from_iter([("param".to_owned(), param), ("env".to_owned(), env)]);
        Given { scope, values }
    }
}

impl Scopes {
    fn new(
        compiled: &Compiled,
        parameters: &Map<String, Value>,
        env: Value,
        problems: &mut Problems,
    ) -> Scopes {
        let template = Given::new(Value::Object(parameters.clone()), env.clone());
        let mut groups = Vec::with_capacity(compiled.groups.len());
        for group in &compiled.groups {
            let with = group.with.evaluate(&template.scope, &template.values, problems);
            let definition = &compiled.template.groups[&group.group];
            let empty = Map::new();
            let with = with.value.as_object().unwrap_or(&empty);
            let path = format!("{}.with", group.path);
            let values = resolve(&definition.parameters, with, &path, problems);
            groups.push(Given::new(Value::Object(values), env.clone()));
        }
        Scopes { template, groups }
    }

    fn of(&self, part: &Part) -> &Given {
        part.group.map_or(&self.template, |group| &self.groups[group as usize])
    }
}

fn count(part: &Part, scopes: &Scopes, problems: &mut Problems) -> Option<u32> {
    match &part.count {
        Number::One => None,
        Number::Fixed(count) => Some(*count),
        Number::Expression(expression) => {
            let value = expression.evaluate(&scopes.of(part).scope);
            let number = value.as_ref().ok().and_then(Value::as_u64);
            let count = number.and_then(|number| u32::try_from(number).ok());
            if count.is_none() {
                let wrong = match value {
                    Ok(value) => format!("{value} is not a count"),
                    Err(why) => why,
                };
                problems.add(format!("{}.count", part.path), wrong, expression.source());
            }
            Some(count.unwrap_or(0))
        }
    }
}

/// The number of the first resource of each part.
fn firsts(counts: &[Option<u32>]) -> Vec<u32> {
    let mut next = 0_u32;
    let first = counts.iter().map(|count| {
        let first = next;
        next = next.saturating_add(count.unwrap_or(1));
        first
    });
    first.collect()
}

/// The edges between single resources.
fn edges(
    compiled: &Compiled,
    counts: &[Option<u32>],
    firsts: &[u32],
    problems: &mut Problems,
) -> Vec<(u32, u32)> {
    let many = |part: usize| counts[part].unwrap_or(1);
    let mut total = 0_u64;
    for (from, part) in compiled.parts.iter().enumerate() {
        for edge in &part.edges {
            let each = if edge.which == Which::All { many(edge.to as usize) } else { 1 };
            total += u64::from(many(from)) * u64::from(each);
            exists(part, many(from), compiled, edge, many(edge.to as usize), problems);
        }
    }
    if total > EDGES_MAX {
        let right = format!("{EDGES_MAX} are allowed; let each use one, as in `db[count.index]`");
        problems.add("resources", format!("have {total} dependencies"), right);
    }
    if !problems.is_empty() {
        return Vec::new();
    }
    let mut edges = Vec::with_capacity(total as usize);
    for (from, part) in compiled.parts.iter().enumerate() {
        for index in 0..many(from) {
            let own = firsts[from] + index;
            for edge in &part.edges {
                let first = firsts[edge.to as usize];
                match edge.which {
                    Which::All => {
                        let others = first..first + many(edge.to as usize);
                        edges.extend(others.map(|other| (own, other)));
                    }
                    Which::Same => edges.push((own, first + index)),
                    Which::Item(item) => edges.push((own, first + item)),
                }
            }
        }
    }
    edges
}

/// Reports a use of one that is not there.
fn exists(
    part: &Part,
    own: u32,
    compiled: &Compiled,
    edge: &Edge,
    there: u32,
    problems: &mut Problems,
) {
    let last = match edge.which {
        Which::All => return,
        Which::Item(item) => item,
        Which::Same if own == 0 => return,
        Which::Same => own - 1,
    };
    if last >= there && own > 0 {
        let name = &compiled.parts[edge.to as usize].name;
        let wrong = format!("uses `{name}[{last}]`, which does not exist");
        problems.add(&part.path, wrong, format!("`{name}` has a count of {there}"));
    }
}

/// The inputs of all resources of a part. If they do not depend on the number, there is one.
fn inputs(
    part: &Part,
    number: u32,
    count: Option<u32>,
    scopes: &Scopes,
    resources: &mut Vec<Wanted>,
    problems: &mut Problems,
) {
    let given = scopes.of(part);
    let (uses_self, uses_count) = (part.input.uses("self"), part.input.uses("count"));
    let mut values = given.values.clone();
    let mut evaluate = |index: Option<u32>| {
        let mut scope = given.scope.clone();
        if uses_self {
            let address = Address::new(&part.name, index).to_string();
            let own = json!({ "name": part.name, "address": address });
            scope = scope.of_resource(&own);
            values.insert("self".into(), own);
        }
        if let Some(index) = index.filter(|_| uses_count) {
            let of = json!({ "index": index, "total": count });
            scope = scope.of_count(&of);
            values.insert("count".into(), of);
        }
        let input = part.input.evaluate(&scope, &values, problems);
        let digest: Arc<str> = input.digest().into();
        Wanted { part: number, index, input, digest }
    };
    let indexes: Vec<Option<u32>> = match count {
        None => vec![None],
        Some(count) => (0..count).map(Some).collect(),
    };
    if uses_self || uses_count {
        resources.extend(indexes.into_iter().map(evaluate));
    } else if let Some(first) = indexes.first() {
        let shared = evaluate(*first);
        let of = indexes.into_iter().map(|index| Wanted { index, ..shared.clone() });
        resources.extend(of);
    }
}

fn outside(part: &Part, scopes: &Scopes, problems: &mut Problems) -> Vec<Reference> {
    let mut found = Vec::with_capacity(part.outside.len());
    for outside in &part.outside {
        match outside {
            Outside::Fixed(reference) => found.push(reference.clone()),
            Outside::Expression(path, expression) => match expression
                .evaluate(&scopes.of(part).scope)
            {
                Ok(value) => match value.as_str().and_then(Reference::parse) {
                    // An edge to a resource here would be unknown to the graph.
                    Some(Reference::Here(_)) | None => {
                        let wrong = format!("{value} is not a reference to another environment");
                        problems.add(path, wrong, REFERENCE_RULE);
                    }
                    Some(reference) => found.push(reference),
                },
                Err(why) => problems.add(path, why, expression.source()),
            },
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::compile::publish;

    const SHOP: &str = include_str!("../model/template/shop.yaml");

    fn about() -> About<'static> {
        About { id: "e1", name: "shop-test", org: "o", tags: kernel::Labels::new() }
    }

    fn given(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn counts_and_groups_become_resources_with_edges() {
        let compiled = publish("shop.yaml", SHOP).unwrap();
        let expansion = expand(&compiled, &given(json!({"size": 2})), &about()).unwrap();
        let names: Vec<String> = expansion
            .resources
            .iter()
            .map(|wanted| expansion.address(wanted).to_string())
            .collect();
        assert_eq!(
            names,
            [
                "cache.primary",
                "cache.replica[0]",
                "cache.replica[1]",
                "db",
                "lb",
                "web[0]",
                "web[1]"
            ]
        );
        let of = |name: &str| names.iter().position(|other| other == name).unwrap();
        let depends = |name: &str| -> Vec<String> {
            expansion.depends_on(of(name) as u32).iter().map(ToString::to_string).collect()
        };
        assert_eq!(depends("web[1]"), ["cache.primary", "db", "external:billing", "network/vpc"]);
        assert_eq!(depends("lb"), ["web[0]", "web[1]"]);
        assert_eq!(depends("cache.replica[0]"), ["cache.primary", "db"]);
        let input =
            |name: &str| serde_json::to_value(&*expansion.resources[of(name)].input).unwrap();
        assert_eq!(input("cache.primary"), json!({"value": {"memory_mb": 256}}));
        assert_eq!(input("db"), json!({"value": {"engine": "postgres", "region": "eu"}}));
        assert_eq!(
            input("web[1]"),
            json!({
                "value": {"name": "shop-test-1", "database": null, "cache": null},
                "deferred": [
                    {"pointer": "/database", "source": "postgres://{{ db.outputs.host }}/shop"},
                    {"pointer": "/cache", "source": "{{ cache.primary.outputs.host }}"},
                ],
            })
        );
    }

    #[test]
    fn what_is_the_same_exists_once() {
        let text = "name: t\nversion: 1\nresources:\n  \
                    a: {executor: x, count: 1000, input: {v: '{{ env.name }}'}}\n";
        let compiled = publish("t", text).unwrap();
        let expansion = expand(&compiled, &Map::new(), &about()).unwrap();
        let first = &expansion.resources[0].input;
        assert!(expansion.resources.iter().all(|wanted| Arc::ptr_eq(&wanted.input, first)));
    }

    #[test]
    fn each_uses_the_one_of_its_number() {
        let text = "name: t\nversion: 1\nparameters: {n: {type: integer}}\nresources:\n  \
                    db: {executor: x, count: 2}\n  \
                    web:\n    executor: x\n    count: '{{ param.n }}'\n    \
                    input: {db: '{{ db[count.index].outputs.host }}'}\n";
        let compiled = publish("t", text).unwrap();
        let expansion = expand(&compiled, &given(json!({"n": 2})), &about()).unwrap();
        assert_eq!(expansion.graph.dependencies(3), [1]);
        assert_eq!(expansion.graph.edges(), 2);
        assert_eq!(expansion.resources[3].input.given["count"]["index"], 1);
        let error = expand(&compiled, &given(json!({"n": 3})), &about()).unwrap_err().to_string();
        assert_eq!(
            error,
            "resources.web: uses `db[2]`, which does not exist; `db` has a count of 2"
        );
        assert!(expand(&compiled, &given(json!({"n": -1})), &about()).is_err());
        assert!(expand(&compiled, &given(json!({"n": 0})), &about()).is_ok());
    }

    #[test]
    fn what_multiplies_is_refused_before_it_is_made() {
        let text = "name: t\nversion: 1\nresources:\n  a: {executor: x, count: 40000}\n  \
                    b: {executor: x, count: 40000, depends_on: [a]}\n";
        let compiled = publish("t", text).unwrap();
        let error = expand(&compiled, &Map::new(), &about()).unwrap_err().to_string();
        assert!(error.contains("have 1600000000 dependencies"), "{error}");
        let text = "name: t\nversion: 1\nresources: {a: {executor: x, count: 4000000000}}\n";
        let compiled = publish("t", text).unwrap();
        assert!(
            expand(&compiled, &Map::new(), &about())
                .unwrap_err()
                .to_string()
                .contains("are allowed")
        );
    }
}
