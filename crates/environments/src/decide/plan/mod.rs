//! The plan: from what is wanted and what exists to what is done, in which order, how long it takes,
//! what it costs, and whom else it touches. Pure and deterministic: the same on every replica, so
//! that its hash can be approved here and applied there. Linear in resources and edges.

mod blast;
pub mod diff;

use std::collections::{BTreeMap, HashMap};

pub use blast::{AFFECTED_MAX, Foreign, affected};

use super::expand::{Expansion, Wanted};
use super::graph::Graph;
use crate::model::digest::Hasher;
use crate::model::drift::FieldDiff;
use crate::model::plan::{Action, Body, Cost, ResourceChange};
use crate::model::refs::{Address, Reference};
use crate::model::resource::{Resource, Status};
use crate::model::template::Price;

/// A resource that exists.
#[derive(Debug, Clone, Copy)]
pub struct Existing<'a> {
    pub id: &'a str,
    pub generation: i64,
    pub spec: &'a Resource,
    pub status: &'a Status,
}

/// What a plan depends on, besides what is wanted.
pub struct World<'a> {
    pub existing: &'a [Existing<'a>],
    /// The price of the environment itself, as it is now.
    pub price: Option<&'a Price>,
    /// How long operations of an executor take for resources of a name, in milliseconds.
    pub history: &'a dyn Fn(&str, &str) -> Option<u64>,
    /// The fields of an executor's input that cannot be changed in place.
    pub immutable: &'a dyn Fn(&str) -> &'a [String],
    /// The direct dependents of a resource, by its id, in other environments.
    pub dependents: &'a dyn Fn(&str) -> Vec<Foreign>,
}

/// An operation of which nothing is known.
const TAKES_MS: u64 = 5_000;

/// Plans. `wanted` is none if the environment is to be destroyed.
pub fn plan(template: &str, wanted: Option<&Expansion<'_>>, world: &World<'_>) -> Body {
    let mut by_address: HashMap<(&str, Option<u32>), usize> = world
        .existing
        .iter()
        .enumerate()
        .map(|(number, existing)| {
            ((existing.spec.address.name.as_str(), existing.spec.address.index), number)
        })
        .collect();
    let mut planner =
        Planner { world, body: Body::default(), ends_ms: vec![0; world.existing.len()] };
    planner.body.template = template.into();
    planner.body.world = world_digest(world.existing);
    let mut changed: Vec<usize> = Vec::new();
    if let Some(wanted) = wanted {
        changed = planner.wanted(wanted, &mut by_address);
    }
    let mut gone: Vec<usize> = by_address.into_values().collect();
    gone.sort_unstable();
    planner.destroyed(&gone);
    changed.extend(gone);
    let touched = changed.into_iter().map(|number| {
        let existing = &world.existing[number];
        (existing.id, existing.spec.address.clone())
    });
    planner.body.affected = affected(touched, world.dependents);
    planner.body.cost = cost(wanted, world);
    planner.body.hash = hash(&planner.body, wanted);
    planner.body
}

struct Planner<'p, 'w> {
    world: &'p World<'w>,
    body: Body,
    /// Of each existing resource: when its update has ended.
    ends_ms: Vec<u64>,
}

impl Planner<'_, '_> {
    /// Creates, updates and replacements. What is wanted is taken out of `by_address`. Returns the
    /// existing ones that others notice.
    fn wanted<'n>(
        &mut self,
        wanted: &'n Expansion<'_>,
        by_address: &mut HashMap<(&'n str, Option<u32>), usize>,
    ) -> Vec<usize> {
        let mut noticed = Vec::new();
        let mut matched = Vec::with_capacity(wanted.resources.len());
        let mut changes = Vec::with_capacity(wanted.resources.len());
        for (number, resource) in wanted.resources.iter().enumerate() {
            let name = wanted.part(resource).name.as_str();
            let found = by_address.remove(&(name, resource.index));
            let change = match found {
                None => Some(self.created(wanted, resource)),
                Some(found) => {
                    self.updated(wanted, number as u32, resource, &self.world.existing[found])
                }
            };
            if let (Some(found), Some(change)) = (found, &change)
                && !change.metadata_only
            {
                noticed.push(found);
            }
            matched.push(found);
            changes.push(change);
        }
        let takes = |node: u32| changes[node as usize].as_ref().map_or(0, |change| change.takes_ms);
        let (begins, end) = wanted.graph.begins(&wanted.order, takes);
        self.body.takes_ms = end;
        for node in &wanted.order {
            let node = *node as usize;
            let Some(mut change) = changes[node].take() else {
                self.body.unchanged += 1;
                continue;
            };
            change.begins_ms = begins[node];
            if let Some(found) = matched[node] {
                self.ends_ms[found] = change.begins_ms + change.takes_ms;
            }
            self.body.changes.push(change);
        }
        self.body.needs = needs(wanted);
        noticed
    }

    fn created(&self, wanted: &Expansion<'_>, resource: &Wanted) -> ResourceChange {
        let part = wanted.part(resource);
        let executor = part.resource.executor.as_str();
        ResourceChange {
            address: wanted.address(resource),
            executor: executor.into(),
            action: Action::Create,
            diff: Vec::new(),
            replaced_by: Vec::new(),
            metadata_only: false,
            takes_ms: self.takes_ms(executor, &part.name),
            begins_ms: 0,
        }
    }

    fn updated(
        &self,
        wanted: &Expansion<'_>,
        number: u32,
        resource: &Wanted,
        existing: &Existing<'_>,
    ) -> Option<ResourceChange> {
        let part = wanted.part(resource);
        let (new, old) = (&part.resource, existing.spec);
        let diff = if old.input == *resource.input {
            Vec::new()
        } else {
            diff::diff_inputs(&old.input, &resource.input)
        };
        let moved = old.executor != new.executor;
        if diff.is_empty() && !moved && self.has_same_metadata(wanted, number, existing) {
            return None;
        }
        let mut replaced_by =
            replaced_by(&diff, &new.replace_on, (self.world.immutable)(&new.executor));
        if moved {
            replaced_by.insert(0, "executor".into());
        }
        let metadata_only = diff.is_empty() && !moved;
        let takes_ms = self.takes_ms(&new.executor, &part.name);
        let (action, takes_ms) = match (metadata_only, replaced_by.is_empty()) {
            (true, _) => (Action::Update, 0),
            (false, true) => (Action::Update, takes_ms),
            (false, false) => (Action::Replace, 2 * takes_ms),
        };
        Some(ResourceChange {
            address: wanted.address(resource),
            executor: new.executor.clone(),
            action,
            diff,
            replaced_by,
            metadata_only,
            takes_ms,
            begins_ms: 0,
        })
    }

    /// Whether what is kept besides the input is as it is wanted.
    fn has_same_metadata(
        &self,
        wanted: &Expansion<'_>,
        number: u32,
        existing: &Existing<'_>,
    ) -> bool {
        let resource = &wanted.resources[number as usize];
        let (old, new) = (existing.spec, &wanted.part(resource).resource);
        let sorted = |mut references: Vec<Reference>| {
            references.sort_unstable();
            references
        };
        old.drift == new.drift
            && old.timeout == new.timeout
            && old.links == new.links
            && old.price == new.price
            && old.tags == new.tags
            && old.count == wanted.counts[resource.part as usize]
            && sorted(old.depends_on.clone()) == sorted(wanted.depends_on(number))
    }

    fn takes_ms(&self, executor: &str, name: &str) -> u64 {
        (self.world.history)(executor, name).unwrap_or(TAKES_MS)
    }

    /// What is no longer wanted goes when what depends on it is gone, or was updated to do without.
    fn destroyed(&mut self, gone: &[usize]) {
        if gone.is_empty() {
            return;
        }
        let graph = existing_graph(self.world.existing);
        // Stored edges have no cycle; were there one, its resources would wait and say so, and the plan
        // still names all that is to go.
        let all = || (0..graph.len() as u32).collect();
        let order: Vec<u32> = graph.order().unwrap_or_else(|_| all());
        let mut is_gone = vec![false; self.world.existing.len()];
        gone.iter().for_each(|number| is_gone[*number] = true);
        for node in order.into_iter().rev().filter(|node| is_gone[*node as usize]) {
            let spec = self.world.existing[node as usize].spec;
            let dependents = graph.dependents(node).iter();
            let begins_ms = dependents.map(|node| self.ends_ms[*node as usize]).max().unwrap_or(0);
            let takes_ms = self.takes_ms(&spec.executor, &spec.address.name);
            self.ends_ms[node as usize] = begins_ms + takes_ms;
            self.body.takes_ms = self.body.takes_ms.max(begins_ms + takes_ms);
            self.body.changes.push(ResourceChange {
                address: spec.address.clone(),
                executor: spec.executor.clone(),
                action: Action::Destroy,
                diff: Vec::new(),
                replaced_by: Vec::new(),
                metadata_only: false,
                takes_ms,
                begins_ms,
            });
        }
    }
}

/// The changed fields that cannot be changed in place.
fn replaced_by(diff: &[FieldDiff], replace_on: &[String], immutable: &[String]) -> Vec<String> {
    let within = |field: &str, named: &str| {
        field
            .strip_prefix(named)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let fixed = |field: &FieldDiff| {
        replace_on.iter().chain(immutable).any(|named| within(&field.field, named))
    };
    diff.iter().filter(|field| fixed(field)).map(|field| field.field.clone()).collect()
}

/// The graph of what exists, from the edges that are stored. It needs no template.
pub fn existing_graph(existing: &[Existing<'_>]) -> Graph {
    let numbers: HashMap<&Address, u32> = existing
        .iter()
        .enumerate()
        .map(|(number, existing)| (&existing.spec.address, number as u32))
        .collect();
    let mut edges = Vec::new();
    for (from, existing) in existing.iter().enumerate() {
        // What it was applied on too: it runs on that until it is applied again.
        for on in existing.spec.depends_on.iter().chain(&existing.status.applied_on) {
            if let Reference::Here(address) = on
                && let Some(to) = numbers.get(address)
            {
                edges.push((from as u32, *to));
            }
        }
    }
    Graph::new(existing.len(), &edges)
}

/// What a plan rests on: if this differs, it is another world.
pub fn world_digest(existing: &[Existing<'_>]) -> String {
    let mut sorted: Vec<&Existing<'_>> = existing.iter().collect();
    sorted.sort_unstable_by(|a, b| a.id.cmp(b.id));
    let mut hasher = Hasher::default();
    for existing in sorted {
        hasher.text(existing.id);
        hasher.number(existing.generation.unsigned_abs());
        hasher.text(&existing.status.seen_digest);
    }
    hasher.finish()
}

fn hash(body: &Body, wanted: Option<&Expansion<'_>>) -> String {
    let mut hasher = Hasher::default();
    hasher.text(&body.template);
    hasher.text(&body.world);
    for change in &body.changes {
        hasher.text(&change.address.name);
        hasher.number(change.address.index.map_or(0, |index| u64::from(index) + 1));
        hasher.text(&change.executor);
        hasher.text(change.action.label());
        change.replaced_by.iter().for_each(|field| hasher.text(field));
    }
    if let Some(wanted) = wanted {
        // They also decide what it depends on elsewhere, which is not part of an input.
        hasher.object(&wanted.parameters);
        wanted.resources.iter().for_each(|resource| hasher.text(&resource.digest));
    }
    hasher.finish()
}

fn needs(wanted: &Expansion<'_>) -> Vec<Reference> {
    let mut needs: Vec<Reference> = wanted.outside.iter().flatten().cloned().collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// The hints before and after, by currency.
fn cost(wanted: Option<&Expansion<'_>>, world: &World<'_>) -> Vec<Cost> {
    let mut costs: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let before = world.existing.iter().filter_map(|existing| existing.spec.price.as_ref());
    for price in before.chain(world.price) {
        costs.entry(price.currency.clone()).or_default().0 += price.hourly;
    }
    if let Some(wanted) = wanted {
        let compiled = wanted.compiled;
        let parts = compiled.parts.iter().zip(&wanted.counts);
        let parts = parts.filter_map(|(part, count)| {
            Some((part.resource.price.as_ref()?, f64::from(count.unwrap_or(1))))
        });
        for (price, count) in
            parts.chain(compiled.template.price.as_ref().map(|price| (price, 1.0)))
        {
            costs.entry(price.currency.clone()).or_default().1 += price.hourly * count;
        }
    }
    let costs = costs.into_iter();
    costs.map(|(currency, (before, after))| Cost { currency, before, after }).collect()
}

#[cfg(test)]
mod tests;
