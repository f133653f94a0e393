//! Compiles a template: expressions parsed, groups put in their places, names resolved to edges, all
//! of it checked. Done once when a template is published and once per process that uses it; nothing
//! of it is done again for a plan.

mod resolve;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::graph::Graph;
use crate::model::expression::{Expression, Known};
use crate::model::input::InputTemplate;
use crate::model::problem::{Problems, suggestion};
use crate::model::refs::{REFERENCE_RULE, Reference};
use crate::model::template::{Count, GroupUse, Member, ResourceTemplate, Template};
use crate::model::yaml;
use resolve::Names;

/// A template that is ready to be planned.
#[derive(Debug)]
pub struct Compiled {
    pub template: Arc<Template>,
    /// All resources, those of groups in the place of the group.
    pub parts: Vec<Part>,
    pub groups: Vec<GroupPart>,
    /// The parts, each after all that it depends on.
    pub order: Vec<u32>,
}

/// The resources of one name.
#[derive(Debug)]
pub struct Part {
    /// With its group before it: `cache.primary`.
    pub name: String,
    /// Where it is in the file.
    pub path: String,
    /// The number of the group that it is in.
    pub group: Option<u32>,
    pub resource: Arc<ResourceTemplate>,
    pub count: Number,
    pub input: InputTemplate,
    /// What it depends on in this template, without repetitions.
    pub edges: Vec<Edge>,
    /// What it depends on elsewhere.
    pub outside: Vec<Outside>,
}

/// How many there are.
#[derive(Debug)]
pub enum Number {
    /// One, that is not a list.
    One,
    Fixed(u32),
    Expression(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub to: u32,
    pub which: Which,
}

/// Which of the resources of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    All,
    /// The one with the number of the resource that depends on it.
    Same,
    Item(u32),
}

#[derive(Debug)]
pub enum Outside {
    Fixed(Reference),
    /// Over what is known when it is planned.
    Expression(String, Expression),
}

/// The use of a group.
#[derive(Debug)]
pub struct GroupPart {
    pub name: String,
    /// The name of the group's definition.
    pub group: String,
    pub path: String,
    pub with: InputTemplate,
}

/// Reads, checks and compiles what people wrote. The problems have the file and the lines.
pub fn publish(file: &str, source: &str) -> Result<Compiled, Problems> {
    let document = yaml::read(source)
        .map_err(|problems| problems.located(file, &crate::model::problem::Marks::default()))?;
    let mut problems = Problems::default();
    let template = Template::read(document.value, &mut problems);
    match compile(template) {
        Ok(compiled) if problems.is_empty() => Ok(compiled),
        Ok(_) => Err(problems.located(file, &document.marks)),
        Err(more) => {
            more.into_iter().for_each(|problem| problems.push(problem));
            Err(problems.located(file, &document.marks))
        }
    }
}

/// Compiles a template, as it was read or stored.
pub fn compile(template: Template) -> Result<Compiled, Problems> {
    let mut compiler = Compiler {
        template: &template,
        parts: Vec::new(),
        groups: Vec::new(),
        problems: Problems::default(),
    };
    compiler.members();
    let names = Names::new(&compiler.parts, &compiler.groups);
    compiler.edges(&names);
    compiler.texts(&names);
    compiler.unused_groups();
    let Compiler { parts, groups, mut problems, .. } = compiler;
    let order = order(&parts, &mut problems);
    problems.unless_any(Compiled { template: Arc::new(template), parts, groups, order })
}

struct Compiler<'t> {
    template: &'t Template,
    parts: Vec<Part>,
    groups: Vec<GroupPart>,
    problems: Problems,
}

impl Compiler<'_> {
    fn members(&mut self) {
        let mut compiled: BTreeMap<&str, ()> = BTreeMap::new();
        let parameters: Vec<&str> = self.template.parameters.keys().map(String::as_str).collect();
        for (name, member) in &self.template.resources {
            let path = format!("resources.{name}");
            match member {
                Member::Resource(resource) => {
                    let part =
                        part(name.clone(), path, None, resource, &parameters, &mut self.problems);
                    self.parts.push(part);
                }
                Member::Group(group) => {
                    let first = compiled.insert(&group.group, ()).is_none();
                    self.group(name, path, group, &parameters, first);
                }
            }
        }
    }

    /// Puts the resources of a group in its place. What is wrong within it is reported once.
    fn group(&mut self, name: &str, path: String, group: &GroupUse, outer: &[&str], first: bool) {
        let Some(definition) = self.template.groups.get(&group.group) else {
            let known = self.template.groups.keys().map(String::as_str);
            let wrong = format!("there is no group `{}`", group.group);
            self.problems.add(format!("{path}.group"), wrong, suggestion(&group.group, known));
            return;
        };
        let with_path = format!("{path}.with");
        for field in group.with.keys().filter(|field| !definition.parameters.contains_key(*field)) {
            let known = definition.parameters.keys().map(String::as_str);
            let wrong = format!("group `{}` has no such parameter", group.group);
            self.problems.add(format!("{with_path}.{field}"), wrong, suggestion(field, known));
        }
        let with = Value::Object(group.with.clone());
        let with = InputTemplate::compile(&with_path, &with, &mut self.problems);
        with.check(&Known { parameters: outer, counted: false }, &mut self.problems);
        for (path, expression) in with.expressions() {
            only_known(path, expression, &mut self.problems);
        }
        let number = self.groups.len() as u32;
        let inner: Vec<&str> = definition.parameters.keys().map(String::as_str).collect();
        let mut again = Problems::default();
        let problems = if first { &mut self.problems } else { &mut again };
        for (member, resource) in &definition.resources {
            let path = format!("groups.{}.resources.{member}", group.group);
            let name = format!("{name}.{member}");
            self.parts.push(part(name, path, Some(number), resource, &inner, problems));
        }
        let (name, group) = (name.to_owned(), group.group.clone());
        self.groups.push(GroupPart { name, group, path, with });
    }

    /// Resolves what every part uses.
    fn edges(&mut self, names: &Names) {
        let mut resolved = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let mut edges = Vec::new();
            let mut outside = Vec::new();
            for (path, expression) in part.input.expressions() {
                for access in expression.resources() {
                    edges.extend(names.access(
                        &self.parts,
                        Some(part),
                        path,
                        access,
                        &mut self.problems,
                    ));
                }
            }
            let own = part.resource.depends_on.iter().map(|text| (text, part.group));
            let own = own.enumerate().map(|(i, on)| (format!("{}.depends_on[{i}]", part.path), on));
            let group = part.group.map(|number| &self.groups[number as usize]);
            let around = group.and_then(|group| match &self.template.resources[&group.name] {
                Member::Group(group_use) => Some((group, &group_use.depends_on)),
                Member::Resource(_) => None,
            });
            let around = around.into_iter().flat_map(|(group, depends_on)| {
                let each = depends_on.iter().enumerate();
                each.map(|(i, text)| (format!("{}.depends_on[{i}]", group.path), (text, None)))
            });
            for (path, (text, within)) in own.chain(around) {
                match dependency(self.template, &path, text, &mut self.problems) {
                    Some(Outside::Fixed(Reference::Here(address))) => {
                        let found =
                            names.address(&self.parts, within, &path, &address, &mut self.problems);
                        edges.extend(found);
                    }
                    found => outside.extend(found),
                }
            }
            edges.sort_unstable();
            edges.dedup();
            // All of them includes each of them.
            let all: Vec<u32> =
                edges.iter().filter(|edge| edge.which == Which::All).map(|edge| edge.to).collect();
            edges.retain(|edge| edge.which == Which::All || all.binary_search(&edge.to).is_err());
            resolved.push((edges, outside));
        }
        for (part, (edges, outside)) in self.parts.iter_mut().zip(resolved) {
            (part.edges, part.outside) = (edges, outside);
        }
    }

    /// Checks the texts that are evaluated when all resources are ready.
    fn texts(&mut self, names: &Names) {
        let template = self.template;
        let entries = template.entry_points.iter().map(|entry| &entry.url).enumerate();
        let entries = entries.map(|(i, url)| (format!("entry_points[{i}].url"), url));
        let probes = template.status_endpoints.iter().map(|endpoint| &endpoint.url).enumerate();
        let probes = probes.map(|(i, url)| (format!("status_endpoints[{i}].url"), url));
        let parameters: Vec<&str> = template.parameters.keys().map(String::as_str).collect();
        let known = Known { parameters: &parameters, counted: false };
        for (path, text) in entries.chain(probes) {
            let Some(expression) = Expression::parse(&path, text, &mut self.problems) else {
                continue;
            };
            expression.check(&path, &known, &mut self.problems);
            for access in expression.resources() {
                names.access(&self.parts, None, &path, access, &mut self.problems);
            }
        }
    }

    /// A group that nothing uses is still checked: it may be published for others.
    fn unused_groups(&mut self) {
        let used: HashMap<&str, ()> =
            self.groups.iter().map(|group| (group.group.as_str(), ())).collect();
        for (name, group) in &self.template.groups {
            if used.contains_key(name.as_str()) {
                continue;
            }
            let parameters: Vec<&str> = group.parameters.keys().map(String::as_str).collect();
            for (member, resource) in &group.resources {
                let path = format!("groups.{name}.resources.{member}");
                part(member.clone(), path, None, resource, &parameters, &mut self.problems);
            }
        }
    }
}

/// What a text of `depends_on` means.
fn dependency(
    template: &Template,
    path: &str,
    text: &str,
    problems: &mut Problems,
) -> Option<Outside> {
    if text.contains("{{") {
        let expression = Expression::parse(path, text, problems)?;
        let parameters: Vec<&str> = template.parameters.keys().map(String::as_str).collect();
        let known = Known { parameters: &parameters, counted: false };
        expression.check(path, &known, problems);
        only_known(path, &expression, problems);
        return Some(Outside::Expression(path.to_owned(), expression));
    }
    let Some(reference) = Reference::parse(text) else {
        problems.add(path, format!("`{text}` is not a reference"), REFERENCE_RULE);
        return None;
    };
    if let Reference::External(name) = &reference
        && !template.externals.contains_key(name)
    {
        let known = template.externals.keys().map(String::as_str);
        let wrong = format!("`{name}` is not among the `externals`");
        problems.add(path, wrong, suggestion(name, known));
    }
    Some(Outside::Fixed(reference))
}

fn part(
    name: String,
    path: String,
    group: Option<u32>,
    resource: &ResourceTemplate,
    parameters: &[&str],
    problems: &mut Problems,
) -> Part {
    let known = Known { parameters, counted: resource.count.is_some() };
    let input = Value::Object(resource.input.clone());
    let input = InputTemplate::compile(&format!("{path}.input"), &input, problems);
    input.check(&known, problems);
    let count = match &resource.count {
        None => Number::One,
        Some(Count::Number(number)) => Number::Fixed(*number),
        Some(Count::Expression(text)) => {
            let path = format!("{path}.count");
            let expression = Expression::parse(&path, text, problems);
            expression.map_or(Number::Fixed(0), |expression| {
                expression.check(&path, &Known { counted: false, ..known }, problems);
                only_known(&path, &expression, problems);
                Number::Expression(expression)
            })
        }
    };
    let (edges, outside) = (Vec::new(), Vec::new());
    Part { name, path, group, resource: Arc::new(resource.clone()), count, input, edges, outside }
}

/// Reports outputs where a value must be known when it is planned.
fn only_known(path: &str, expression: &Expression, problems: &mut Problems) {
    let unknown =
        expression.accesses.iter().find(|access| !["param", "env"].contains(&access.root.as_str()));
    if let Some(access) = unknown {
        let wrong = format!("`{}` is not known when it is planned", access.root);
        problems.add(path, wrong, "use only `param` and `env` here");
    }
}

/// The order of the parts. A cycle is shown as a path.
fn order(parts: &[Part], problems: &mut Problems) -> Vec<u32> {
    let edges = parts.iter().enumerate();
    let edges =
        edges.flat_map(|(from, part)| part.edges.iter().map(move |edge| (from as u32, edge.to)));
    let graph = Graph::new(parts.len(), &edges.collect::<Vec<_>>());
    graph.order().unwrap_or_else(|cycle| {
        let name = |part: &u32| parts[*part as usize].name.as_str();
        let path: Vec<&str> = cycle.iter().chain(cycle.first()).map(name).collect();
        let first = cycle.first().map_or("", |part| &parts[*part as usize].path);
        let wrong = format!("depends on itself: {}", path.join(" -> "));
        problems.add(first, wrong, "remove one of these dependencies");
        Vec::new()
    })
}

#[cfg(test)]
mod tests;
