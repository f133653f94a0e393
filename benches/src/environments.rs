//! Plans of large environments, from a published template: expanded and planned, for an environment
//! that does not exist yet and for one that is as it should be.

use std::time::Instant;

use environments::decide::compile::publish;
use environments::decide::expand::{About, expand};
use environments::decide::plan::{Existing, World, plan};
use environments::model::resource::Status;
use serde_json::Map;

use crate::figures::{Figures, Target, percentile};

const RUNS: usize = 5;

pub fn run(figures: &mut Figures) -> anyhow::Result<()> {
    // Three resources for each, and three besides; ten edges for three.
    for (each, most_ms) in [(5_000, 200.0), (33_332, 2_000.0)] {
        plans(figures, each, most_ms)?;
    }
    Ok(())
}

fn plans(figures: &mut Figures, each: u32, most_ms: f64) -> anyhow::Result<()> {
    let text = format!(
        "name: large\nversion: 1\nresources:\n  \
         net: {{executor: simulated, count: 2, input: {{zone: \"{{{{ count.index }}}}\"}}}}\n  \
         dns: {{executor: simulated}}\n  \
         db: {{executor: simulated, count: {each}, depends_on: [net, dns], input: {{name: \"{{{{ env.name }}}}-{{{{ count.index }}}}\"}}}}\n  \
         cache: {{executor: simulated, count: {each}, depends_on: [net], input: {{db: \"{{{{ db[count.index].outputs.host }}}}\"}}}}\n  \
         web: {{executor: simulated, count: {each}, depends_on: [net], input: {{db: \"{{{{ db[count.index].outputs.host }}}}\", cache: \"{{{{ cache[count.index].outputs.host }}}}\"}}}}\n"
    );
    let problems = |found| anyhow::anyhow!("{found}");
    let compiled = publish("large.yaml", &text).map_err(problems)?;
    let about = About { id: "e1", name: "large", org: "o", ..About::default() };
    let (mut creating, mut again, mut counts) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..RUNS {
        let begun = Instant::now();
        let wanted = expand(&compiled, &Map::new(), &about).map_err(problems)?;
        let expanded = begun.elapsed();
        let body = plan("large", Some(&wanted), &world(&[]));
        creating.push(begun.elapsed().as_secs_f64() * 1e3);
        counts = (wanted.resources.len(), wanted.graph.edges());
        anyhow::ensure!(body.changes.len() == counts.0, "a resource is not planned");

        let numbers = 0..counts.0 as u32;
        let specs: Vec<_> = numbers.map(|number| wanted.resource(number, "e1")).collect();
        let ids: Vec<String> = specs.iter().map(|spec| format!("e1-{}", spec.address)).collect();
        let status = Status::default();
        let existing = ids.iter().zip(&specs);
        let existing: Vec<Existing<'_>> = existing
            .map(|(id, spec)| Existing { id, generation: 1, spec, status: &status })
            .collect();
        let begun = Instant::now();
        let body = plan("large", Some(&wanted), &world(&existing));
        again.push((expanded + begun.elapsed()).as_secs_f64() * 1e3);
        anyhow::ensure!(body.unchanged == counts.0, "a resource is not found unchanged");
    }
    let (resources, edges) = counts;
    for (what, samples) in [("new", &mut creating), ("unchanged", &mut again)] {
        let name = format!("plan of {resources} resources, {edges} edges, {what}");
        figures.add(&name, percentile(samples, 0.5), "ms", None, Target::AtMost(most_ms));
    }
    Ok(())
}

fn world<'a>(existing: &'a [Existing<'a>]) -> World<'a> {
    World {
        existing,
        price: None,
        history: &|_, _| None,
        immutable: &|_| &[],
        dependents: &|_| Vec::new(),
    }
}
