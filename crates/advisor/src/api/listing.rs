//! Walks over the experiments that a caller may see, with their results. What it holds does not grow
//! with their number: a page of experiments, and the results of one shard.

use std::sync::Arc;

use kernel::http::restrict;
use kernel::identity::Principal;
use kernel::query::PAGE_MAX;
use kernel::typed::Typed;
use kernel::{App, Key, Object, ObjectQuery, Result};

use crate::model::experiment::{EXPERIMENT, Experiment};
use crate::model::experiment_filter::ExperimentFilter;
use crate::model::job::ResultRef;
use crate::store::{self, Results};

/// Containers that are read together, each with one result of 13 KB.
const NEWEST_AT_ONCE: usize = 64;
/// The same with up to 21 results each.
const ALL_AT_ONCE: usize = 16;

/// Which results are read with the experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    None,
    Newest,
    All,
}

/// An experiment with the elements that were recommended for it, newest first.
pub struct Listed {
    pub experiment: Typed<Experiment>,
    pub elements: Vec<Vec<u8>>,
}

/// The rest of the experiments, newest first.
pub struct Listing {
    app: App,
    wanted: Wanted,
    /// Only those whose results are uploaded, or only the others.
    remote: Option<bool>,
    filter: ExperimentFilter,
    /// The next page; none after the last.
    query: Option<ObjectQuery>,
    page: Vec<Typed<Experiment>>,
    /// The results that were read last.
    results: Option<(Key, Option<Results>)>,
}

impl Listing {
    /// All experiments that a caller may see: those whose results are uploaded, or the others.
    pub fn all(app: &App, who: &Principal, remote: bool, wanted: Wanted) -> Listing {
        let query = ObjectQuery {
            kind: Some(EXPERIMENT.into()),
            limit: PAGE_MAX,
            ..ObjectQuery::default()
        };
        Listing { remote: Some(remote), ..Listing::of(app, wanted, restrict(who, query)) }
    }

    fn of(app: &App, wanted: Wanted, query: Option<ObjectQuery>) -> Listing {
        let (remote, filter) = (None, ExperimentFilter::default());
        Listing { app: app.clone(), wanted, remote, filter, query, page: Vec::new(), results: None }
    }

    /// One experiment.
    pub fn one(app: &App, object: &Arc<Object>, wanted: Wanted) -> Result<Listing> {
        let page = vec![store::experiment(object)?];
        Ok(Listing { page, ..Listing::of(app, wanted, None) })
    }

    /// Leaves out what does not match.
    pub fn filter(self, filter: ExperimentFilter) -> Listing {
        Listing { filter, ..self }
    }

    fn has(&self, experiment: &Experiment) -> bool {
        self.remote.is_none_or(|remote| remote == experiment.is_remote())
            && self.filter.matches(experiment)
    }

    /// The next experiments; none after the last. The list may be empty although more follow.
    pub async fn next(&mut self) -> Result<Option<Vec<Listed>>> {
        if self.page.is_empty() {
            let Some(query) = self.query.take() else { return Ok(None) };
            let page = self.app.store.find(&query).await?;
            let decoded: Result<Vec<_>> = page.objects.iter().map(store::experiment).collect();
            self.page = decoded?;
            // Those of a shard one after another, so that its results are read once.
            self.page.sort_by(|a, b| place(a).cmp(&place(b)));
            self.query = page.next.map(|next| ObjectQuery { after: Some(next), ..query });
        }
        let at_once = if self.wanted == Wanted::All { ALL_AT_ONCE } else { NEWEST_AT_ONCE };
        let mut containers = 0;
        let fits = |experiment: &Typed<Experiment>| {
            let before = containers;
            containers += experiment.spec.members().len().max(1);
            before < at_once
        };
        let count = self.page.iter().map(fits).take_while(|fits| *fits).count();
        let rest = self.page.split_off(count);
        let mut some = std::mem::replace(&mut self.page, rest);
        some.retain(|experiment| self.has(&experiment.spec));
        self.read(some).await.map(Some)
    }

    async fn read(&mut self, experiments: Vec<Typed<Experiment>>) -> Result<Vec<Listed>> {
        let mut wanted: Vec<(ResultRef, usize, usize)> = Vec::new();
        for (index, experiment) in experiments.iter().enumerate() {
            let status = &experiment.status;
            let results: Vec<&ResultRef> = match self.wanted {
                Wanted::None => Vec::new(),
                Wanted::Newest => status.result.iter().collect(),
                Wanted::All => status.result.iter().chain(&status.history).collect(),
            };
            let results = results.into_iter().cloned().enumerate();
            wanted.extend(results.map(|(age, result)| (result, index, age)));
        }
        wanted.sort_by(|(a, ..), (b, ..)| (&a.of, a.line).cmp(&(&b.of, b.line)));
        let mut found: Vec<Vec<(usize, Vec<u8>)>> = vec![Vec::new(); experiments.len()];
        for (result, index, age) in wanted {
            if let Some(element) = self.element(&result).await? {
                found[index].push((age, element));
            }
        }
        let listed = experiments.into_iter().zip(found).map(|(experiment, mut found)| {
            found.sort_by_key(|(age, _)| *age);
            let elements = found.into_iter().map(|(_, element)| element).collect();
            Listed { experiment, elements }
        });
        Ok(listed.collect())
    }

    /// The recommendation of a result; none if it failed, or was removed with its job.
    async fn element(&mut self, result: &ResultRef) -> Result<Option<Vec<u8>>> {
        if self.results.as_ref().is_none_or(|(of, _)| *of != result.of) {
            // First the old ones go.
            self.results = None;
            let read = store::results(&self.app, &result.of).await?;
            self.results = Some((result.of.clone(), read));
        }
        let Some((_, Some(results))) = &self.results else { return Ok(None) };
        let line = results.line(result.line as usize)?;
        let element = line.and_then(|line| line.recommendation);
        Ok(element.map(|element| element.get().as_bytes().to_vec()))
    }
}

/// Where its newest result is.
fn place(experiment: &Typed<Experiment>) -> Option<(&Key, u32)> {
    experiment.status.result.as_ref().map(|result| (&result.of, result.line))
}
