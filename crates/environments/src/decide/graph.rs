//! The graph of dependencies: direct edges, as they are stored. Everything else is computed from them
//! when it is asked for, in time linear in nodes and edges.

/// Nodes are numbers from 0 on. An edge goes from a dependent to what it depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    below: Adjacency,
    above: Adjacency,
}

/// The neighbours of node n are `targets[first[n]..first[n + 1]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Adjacency {
    first: Vec<u32>,
    targets: Vec<u32>,
}

/// Which way to follow edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To what a node depends on.
    Dependencies,
    /// To what depends on it.
    Dependents,
}

impl Adjacency {
    /// Sorts the edges by their begins, which keeps their order otherwise.
    fn new(nodes: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Adjacency {
        let mut first = vec![0_u32; nodes + 1];
        for (from, _) in edges.clone() {
            first[from as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut place = first.clone();
        let mut targets = vec![0_u32; first[nodes] as usize];
        for (from, to) in edges {
            targets[place[from as usize] as usize] = to;
            place[from as usize] += 1;
        }
        Adjacency { first, targets }
    }

    fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.first[node] as usize..self.first[node + 1] as usize]
    }
}

impl Graph {
    /// Edges must be between existing nodes; repeated ones do no harm.
    pub fn new(nodes: usize, edges: &[(u32, u32)]) -> Graph {
        let reversed = edges.iter().map(|(from, to)| (*to, *from));
        Graph {
            below: Adjacency::new(nodes, edges.iter().copied()),
            above: Adjacency::new(nodes, reversed),
        }
    }

    pub fn len(&self) -> usize {
        self.below.first.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn edges(&self) -> usize {
        self.below.targets.len()
    }

    pub fn dependencies(&self, node: u32) -> &[u32] {
        self.below.of(node)
    }

    pub fn dependents(&self, node: u32) -> &[u32] {
        self.above.of(node)
    }

    fn neighbours(&self, node: u32, direction: Direction) -> &[u32] {
        match direction {
            Direction::Dependencies => self.dependencies(node),
            Direction::Dependents => self.dependents(node),
        }
    }

    /// The nodes, each after all that it depends on. The error is a cycle: each of its nodes depends
    /// on the next, and the last on the first.
    pub fn order(&self) -> Result<Vec<u32>, Vec<u32>> {
        let mut unmet: Vec<u32> =
            (0..self.len()).map(|node| self.below.of(node as u32).len() as u32).collect();
        let mut order: Vec<u32> =
            (0..self.len() as u32).filter(|node| unmet[*node as usize] == 0).collect();
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            at += 1;
            for dependent in self.dependents(node) {
                let unmet = &mut unmet[*dependent as usize];
                *unmet -= 1;
                if *unmet == 0 {
                    order.push(*dependent);
                }
            }
        }
        if order.len() == self.len() { Ok(order) } else { Err(self.cycle(&unmet)) }
    }

    /// Every node that is left depends on one that is left: following these must come round.
    fn cycle(&self, unmet: &[u32]) -> Vec<u32> {
        let left = |node: u32| unmet[node as usize] > 0;
        let next = |node: u32| self.dependencies(node).iter().copied().find(|node| left(*node));
        let mut seen = vec![usize::MAX; self.len()];
        let mut path = Vec::new();
        let mut node = (0..self.len() as u32).find(|node| left(*node));
        while let Some(at) = node {
            if seen[at as usize] != usize::MAX {
                return path.split_off(seen[at as usize]);
            }
            seen[at as usize] = path.len();
            path.push(at);
            node = next(at);
        }
        path
    }

    /// All nodes that can be reached from some, with their distance, nearest first. The begins are
    /// not among them.
    pub fn closure(&self, from: &[u32], direction: Direction) -> Vec<(u32, u32)> {
        let mut seen = vec![false; self.len()];
        let mut found: Vec<(u32, u32)> = Vec::new();
        for node in from {
            if !std::mem::replace(&mut seen[*node as usize], true) {
                found.push((*node, 0));
            }
        }
        let begins = found.len();
        let mut at = 0;
        while let Some((node, distance)) = found.get(at).copied() {
            at += 1;
            for next in self.neighbours(node, direction) {
                if !std::mem::replace(&mut seen[*next as usize], true) {
                    found.push((*next, distance + 1));
                }
            }
        }
        found.split_off(begins)
    }

    /// When each node can begin if all that can runs at once, and when the last has ended. `order` is
    /// that of [`Graph::order`].
    pub fn begins(&self, order: &[u32], takes: impl Fn(u32) -> u64) -> (Vec<u64>, u64) {
        let mut begins = vec![0_u64; self.len()];
        let mut end = 0;
        for node in order {
            let done = begins[*node as usize].saturating_add(takes(*node));
            end = end.max(done);
            for dependent in self.dependents(*node) {
                let begin = &mut begins[*dependent as usize];
                *begin = (*begin).max(done);
            }
        }
        (begins, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// web and worker on db and cache, which are on net.
    fn shop() -> Graph {
        Graph::new(5, &[(0, 2), (0, 3), (1, 2), (2, 4), (3, 4)])
    }

    #[test]
    fn each_comes_after_what_it_depends_on() {
        let order = shop().order().unwrap();
        assert_eq!(order, [4, 2, 3, 1, 0]);
        let repeated = Graph::new(2, &[(0, 1), (0, 1)]);
        assert_eq!(repeated.order().unwrap(), [1, 0]);
        assert_eq!(Graph::new(0, &[]).order().unwrap(), Vec::<u32>::new());
    }

    #[test]
    fn a_cycle_is_shown_as_a_path() {
        let graph = Graph::new(5, &[(0, 1), (1, 2), (2, 3), (3, 1), (4, 0)]);
        let cycle = graph.order().unwrap_err();
        assert_eq!(cycle, [1, 2, 3]);
        assert_eq!(Graph::new(1, &[(0, 0)]).order().unwrap_err(), [0]);
    }

    #[test]
    fn a_closure_goes_up_or_down_and_knows_the_distance() {
        let graph = shop();
        assert_eq!(graph.closure(&[0], Direction::Dependencies), [(2, 1), (3, 1), (4, 2)]);
        assert_eq!(graph.closure(&[4], Direction::Dependents), [(2, 1), (3, 1), (0, 2), (1, 2)]);
        assert_eq!(graph.closure(&[4, 2], Direction::Dependents), [(3, 1), (0, 1), (1, 1)]);
    }

    #[test]
    fn the_longest_path_is_the_duration() {
        let graph = shop();
        let order = graph.order().unwrap();
        let (begins, end) = graph.begins(&order, |node| [1, 1, 5, 2, 10][node as usize]);
        assert_eq!((begins, end), (vec![15, 15, 10, 10, 0], 16));
    }
}
