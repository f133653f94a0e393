//! The local rule, tried on every graph of up to four resources, with every order in which requests
//! reach the resources, operations end or fail, and resources are changed or replaced in the middle.
//!
//! Checked in every state that can be reached: nothing is applied or started before what it depends
//! on is ready, nothing is stopped or destroyed under what uses it, every resource that could act
//! was woken, and no run goes in a circle. At the end of every run all is as it was asked for.

use std::collections::HashMap;

use super::rule::{Dependent, Move, Operation, State, Wakes, next, wakes};
use crate::model::environment::Want;
use crate::model::resource::Phase;

const NODES_MAX: usize = 4;

/// `edges[b]` has the bit of each resource that b depends on.
#[derive(Debug, Clone, Copy)]
struct Graph {
    nodes: usize,
    edges: [u8; NODES_MAX],
}

/// What may still happen, besides operations that end.
#[derive(Debug, Clone, Copy)]
struct Budget {
    toggles: u8,
    failures: u8,
    /// Inputs changed, or resources that must be replaced.
    changes: u8,
    /// Dependencies removed from a template.
    removals: u8,
}

/// What is tried: the rule, or one with a mistake.
#[derive(Debug, Clone, Copy)]
struct Rules {
    next: fn(State, &[Option<State>], &[Dependent]) -> Move,
    wakes: fn(Option<State>, Option<State>) -> Wakes,
}

/// A state of all resources. Gone ones are none.
#[derive(Debug, Clone, Copy)]
struct World {
    nodes: [Option<State>; NODES_MAX],
    /// What is asked for. It reaches one resource after another.
    want: Want,
    /// The dependencies as they are wanted, and as each was applied on.
    wanted: [u8; NODES_MAX],
    applied: [u8; NODES_MAX],
    budget: Budget,
    rules: Rules,
}

/// A world, and which resources are woken. Those that have nothing to do have decided so already.
#[derive(Debug, Clone, Copy)]
struct Step {
    world: World,
    woken: u8,
    /// Whether the step was the rule's, and not an event from outside.
    by_rule: bool,
}

fn graphs(nodes: usize) -> impl Iterator<Item = Graph> {
    // Edges go to lower numbers only: every graph without cycles can be numbered so.
    let pairs: Vec<(usize, usize)> =
        (0..nodes).flat_map(|from| (0..from).map(move |to| (from, to))).collect();
    (0..1_u32 << pairs.len()).map(move |chosen| {
        let mut edges = [0; NODES_MAX];
        for (i, (from, to)) in pairs.iter().enumerate() {
            edges[*from] |= u8::from(chosen & (1 << i) != 0) << to;
        }
        Graph { nodes, edges }
    })
}

impl World {
    fn new(graph: Graph, want: Want, budget: Budget, rules: Rules) -> World {
        let mut nodes = [None; NODES_MAX];
        for node in &mut nodes[..graph.nodes] {
            *node = Some(State { want, ..State::PENDING });
        }
        World { nodes, want, wanted: graph.edges, applied: [0; NODES_MAX], budget, rules }
    }

    fn dependencies(&self, node: usize) -> impl Iterator<Item = usize> {
        let edges = self.wanted[node];
        (0..NODES_MAX).filter(move |other| edges & (1 << other) != 0)
    }

    /// Those that depend on it, or did when they were applied.
    fn dependents(&self, node: usize) -> impl Iterator<Item = (usize, State)> {
        let depends = move |other: usize| {
            let state = self.nodes[other]?;
            let edges = self.wanted[other] | self.applied[other];
            (edges & (1 << node) != 0).then_some((other, state))
        };
        (0..NODES_MAX).filter_map(depends)
    }

    fn rule(&self, node: usize) -> Option<Move> {
        let mut dependencies = [None; NODES_MAX];
        let mut count = 0;
        for other in self.dependencies(node) {
            dependencies[count] = self.nodes[other];
            count += 1;
        }
        let mut dependents = [Dependent { state: State::PENDING, former: false }; NODES_MAX];
        let mut used_by = 0;
        for (other, state) in self.dependents(node) {
            let former = self.wanted[other] & (1 << node) == 0;
            dependents[used_by] = Dependent { state, former };
            used_by += 1;
        }
        Some((self.rules.next)(self.nodes[node]?, &dependencies[..count], &dependents[..used_by]))
    }

    /// Sets a resource, and returns whom this wakes.
    fn set(&mut self, node: usize, after: Option<State>) -> u8 {
        let wakes = (self.rules.wakes)(self.nodes[node], after);
        let mut woken = 1 << node;
        if wakes.dependents {
            woken |= self.dependents(node).fold(0, |bits, (other, _)| bits | 1 << other);
        }
        if wakes.dependencies {
            woken |= self.wanted[node] | self.applied[node];
        }
        self.nodes[node] = after;
        woken
    }

    fn check_begin(&self, node: usize, operation: Operation) {
        let own = self.nodes[node].unwrap();
        match operation {
            Operation::Apply | Operation::Start => {
                for other in self.dependencies(node) {
                    let phase = self.nodes[other].map(|state| state.phase);
                    assert_eq!(
                        phase,
                        Some(Phase::Ready),
                        "{node} begins without {other}: {self:?}"
                    );
                }
            }
            Operation::Stop | Operation::Destroy => {
                for (other, state) in self.dependents(node) {
                    let depends = self.wanted[other] & (1 << node) != 0;
                    let idle = state.phase == Phase::Pending
                        || state.phase == Phase::Stopped
                            && !(operation == Operation::Destroy
                                && own.want == Want::Absent
                                && depends);
                    assert!(idle, "{operation:?} of {node} under {other}: {self:?}");
                }
            }
        }
    }

    /// What runs has below it what it was applied on.
    fn check(&self) {
        for node in 0..NODES_MAX {
            let Some(own) = self.nodes[node] else { continue };
            let up = matches!(own.phase, Phase::Applying | Phase::Ready | Phase::Starting);
            for other in (0..NODES_MAX).filter(|other| up && self.applied[node] & (1 << other) != 0)
            {
                let below = self.nodes[other].map(|state| state.phase);
                let works =
                    [Phase::Ready, Phase::Applying, Phase::Failed].map(Some).contains(&below);
                assert!(works, "{node} runs on {other}, which does not: {self:?}");
            }
        }
    }

    /// All of it in one number: there are millions of them.
    fn key(&self) -> u128 {
        let mut key = 0_u128;
        let mut add = |value: u128, bits: u32| key = key << bits | value;
        for node in 0..NODES_MAX {
            let state = self.nodes[node].map_or(0, |state| {
                let flags = [state.current, state.outdated, state.yielding, true];
                let flags = flags.into_iter().fold(0, |bits, flag| bits << 1 | u128::from(flag));
                (state.phase as u128) << 6 | (state.want as u128) << 4 | flags
            });
            add(state, 9);
            add(self.wanted[node].into(), 4);
            add(self.applied[node].into(), 4);
        }
        let Budget { toggles, failures, changes, removals } = self.budget;
        for left in [toggles, failures, changes, removals, self.want as u8] {
            add(left.into(), 3);
        }
        key
    }

    fn is_as_asked(&self) -> bool {
        self.nodes.iter().all(|node| match (self.want, node) {
            (Want::Absent, node) => node.is_none(),
            (Want::Present, Some(state)) => state.is_usable(),
            (Want::Stopped, Some(state)) => {
                matches!(state.phase, Phase::Stopped | Phase::Pending)
            }
            // Not there from the beginning, or removed from the template.
            (_, None) => true,
        })
    }

    /// Everything that can happen next.
    fn steps(&self, woken: u8, out: &mut Vec<Step>) {
        for node in 0..NODES_MAX {
            let Some(own) = self.nodes[node] else { continue };
            self.events(node, own, woken, out);
            let Some(rule) = self.rule(node).filter(|_| woken & (1 << node) != 0) else { continue };
            let mut push = |world: World, woke: u8| {
                out.push(Step { world, woken: woken | woke, by_rule: true });
            };
            let mut world = *self;
            match rule {
                Move::Settled | Move::AwaitDependencies | Move::AwaitDependents => {}
                Move::Begin(operation) => {
                    self.check_begin(node, operation);
                    // What is begun when it is down forgets what it was applied on.
                    let mut released = 0;
                    if matches!(operation, Operation::Apply | Operation::Start) {
                        if !own.phase.uses_dependencies() {
                            released = std::mem::take(&mut world.applied[node]);
                        }
                        world.applied[node] |= world.wanted[node];
                    }
                    let woke =
                        released | world.set(node, Some(State { phase: operation.phase(), ..own }));
                    push(world, woke);
                }
                Move::Continue(operation) => {
                    // What it is no longer applied on may go.
                    let released = self.applied[node];
                    match operation {
                        Operation::Apply => world.applied[node] = world.wanted[node],
                        Operation::Destroy => world.applied[node] = 0,
                        Operation::Stop | Operation::Start => {}
                    }
                    let woke = world.set(node, own.finished(operation, true, true));
                    push(world, woke | released);
                    if self.budget.failures > 0 {
                        let mut world = *self;
                        world.budget.failures -= 1;
                        let woke = world.set(node, own.finished(operation, false, false));
                        push(world, woke);
                    }
                }
                Move::Yield(yielding) => {
                    let woke = world.set(node, Some(State { yielding, ..own }));
                    push(world, woke);
                }
                Move::Remove => {
                    let woke = world.set(node, None);
                    push(world, woke);
                }
            }
        }
        self.toggles(woken, out);
    }

    /// What comes from outside to one resource.
    fn events(&self, node: usize, own: State, woken: u8, out: &mut Vec<Step>) {
        let mut push = |mut world: World, after: State| {
            let woke = world.set(node, Some(after));
            out.push(Step { world, woken: woken | woke, by_rule: false });
        };
        if own.want != self.want && own.want != Want::Absent {
            push(*self, State { want: self.want, ..own });
        }
        if self.budget.changes > 0 && own.phase != Phase::Pending {
            let mut world = *self;
            world.budget.changes -= 1;
            push(world, State { current: false, ..own });
            push(world, State { outdated: true, ..own });
        }
        if self.budget.removals > 0 {
            for other in self.dependencies(node) {
                let mut world = *self;
                world.budget.removals -= 1;
                world.wanted[node] &= !(1 << other);
                let changed = State { current: false, ..own };
                let mut woke = world.set(node, Some(changed)) | 1 << other;
                // Its dependency leaves the template too, if nothing else is built on it.
                if let Some(state) = world.nodes[other]
                    && !world.wanted.iter().any(|edges| edges & (1 << other) != 0)
                {
                    woke |= world.set(other, Some(State { want: Want::Absent, ..state }));
                }
                out.push(Step { world, woken: woken | woke, by_rule: false });
            }
        }
    }

    /// Something else is asked for. That an environment is destroyed is final.
    fn toggles(&self, woken: u8, out: &mut Vec<Step>) {
        if self.budget.toggles == 0 || self.want == Want::Absent {
            return;
        }
        for want in Want::ALL.into_iter().filter(|want| *want != self.want) {
            let mut world = *self;
            world.budget.toggles -= 1;
            world.want = want;
            out.push(Step { world, woken, by_rule: false });
        }
    }

    fn is_active(&self, node: usize) -> bool {
        let passive = [Move::Settled, Move::AwaitDependencies, Move::AwaitDependents];
        self.rule(node).is_some_and(|rule| !passive.contains(&rule))
    }
}

/// Tries everything, and returns how many states there are.
fn explore(graph: Graph, budget: Budget, rules: Rules) -> usize {
    let mut numbers: HashMap<u128, u32> = HashMap::new();
    let mut open: Vec<World> = Vec::new();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut steps = Vec::new();
    for want in [Want::Present, Want::Stopped] {
        let world = World::new(graph, want, budget, rules);
        numbers.insert(world.key(), numbers.len() as u32);
        open.push(world);
    }
    while let Some(world) = open.pop() {
        world.check();
        let active = (0..graph.nodes).filter(|node| world.is_active(*node));
        let woken = active.fold(0, |bits, node| bits | 1 << node);
        let from = numbers[&world.key()];
        steps.clear();
        world.steps(woken, &mut steps);
        let delivered = world.nodes.iter().flatten();
        let delivered = delivered.filter(|state| state.want != Want::Absent);
        if woken == 0 && delivered.clone().all(|state| state.want == world.want) {
            assert!(world.is_as_asked(), "stuck: {world:?} in {graph:?}");
        }
        for step in &steps {
            // A resource that could act and was not woken would wait until its recheck.
            for node in (0..graph.nodes).filter(|node| step.woken & (1 << node) == 0) {
                let idle = !step.world.is_active(node);
                assert!(idle, "{node} is not woken from {world:?} to {:?}", step.world);
            }
            let number = numbers.len() as u32;
            let to = *numbers.entry(step.world.key()).or_insert_with(|| {
                open.push(step.world);
                number
            });
            if step.by_rule {
                edges.push((from, to));
            }
        }
    }
    assert_acyclic(numbers.len(), &edges);
    numbers.len()
}

/// No run goes in a circle: the rule's own steps end.
fn assert_acyclic(nodes: usize, edges: &[(u32, u32)]) {
    let mut incoming = vec![0_u32; nodes];
    let mut first = vec![0_u32; nodes + 1];
    for (from, to) in edges {
        incoming[*to as usize] += 1;
        first[*from as usize + 1] += 1;
    }
    for node in 0..nodes {
        first[node + 1] += first[node];
    }
    let mut place = first.clone();
    let mut targets = vec![0_u32; edges.len()];
    for (from, to) in edges {
        targets[place[*from as usize] as usize] = *to;
        place[*from as usize] += 1;
    }
    let mut free: Vec<usize> = (0..nodes).filter(|node| incoming[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = free.pop() {
        done += 1;
        for to in &targets[first[node] as usize..first[node + 1] as usize] {
            incoming[*to as usize] -= 1;
            if incoming[*to as usize] == 0 {
                free.push(*to as usize);
            }
        }
    }
    assert_eq!(done, nodes, "a run goes in a circle");
}

fn explore_all(nodes: usize, budget: Budget) {
    let states: usize = graphs(nodes).map(|graph| explore(graph, budget, RULES)).sum();
    println!("{nodes} resources, {budget:?}: {states} states");
}

const RULES: Rules = Rules { next, wakes };

const NOTHING: Budget = Budget { toggles: 0, failures: 0, changes: 0, removals: 0 };

#[test]
fn up_to_three_resources_with_everything_at_once() {
    for nodes in 1..=2 {
        explore_all(nodes, Budget { toggles: 3, failures: 2, changes: 2, removals: 1 });
    }
    explore_all(3, Budget { toggles: 2, failures: 1, changes: 1, removals: 0 });
    explore_all(3, Budget { toggles: 1, failures: 1, changes: 0, removals: 1 });
}

#[test]
fn four_resources_whose_desired_state_is_toggled() {
    explore_all(4, Budget { toggles: 2, ..NOTHING });
}

#[test]
fn four_resources_with_a_failure() {
    explore_all(4, Budget { toggles: 1, failures: 1, ..NOTHING });
}

#[test]
fn four_resources_with_a_change_or_a_replacement() {
    explore_all(4, Budget { toggles: 1, changes: 1, ..NOTHING });
}

#[test]
fn four_resources_with_a_removed_dependency() {
    explore_all(4, Budget { toggles: 1, removals: 1, ..NOTHING });
}

/// Tries a rule with a mistake on two resources, where it must be found.
fn explore_mistake(rules: Rules) {
    let budget = Budget { toggles: 2, ..NOTHING };
    for graph in graphs(2) {
        explore(graph, budget, rules);
    }
}

#[test]
#[should_panic(expected = "of 0 under 1")]
fn a_rule_that_forgets_the_dependents_is_found() {
    explore_mistake(Rules { next: |own, below, _| next(own, below, &[]), wakes });
}

#[test]
#[should_panic(expected = "1 begins without 0")]
fn a_rule_that_begins_too_early_is_found() {
    explore_mistake(Rules { next: |own, _, above| next(own, &[], above), wakes });
}

#[test]
#[should_panic(expected = "is not woken")]
fn a_lost_wake_up_is_found() {
    let lost = |before, after| Wakes { dependents: false, ..wakes(before, after) };
    explore_mistake(Rules { next, wakes: lost });
}

#[test]
#[should_panic(expected = "stuck")]
fn a_resource_that_never_starts_again_is_found() {
    let rule = |own: State, below: &[Option<State>], above: &[Dependent]| match own.phase {
        Phase::Stopped if own.want == Want::Present => Move::Settled,
        _ => next(own, below, above),
    };
    explore_mistake(Rules { next: rule, wakes });
}
