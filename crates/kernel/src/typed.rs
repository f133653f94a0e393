//! Objects with types: decoded for reading ([`Typed`]), and drafts of what is written ([`Draft`]).
//! Only a draft sets generation, observed generation and times, and each write that it makes has its
//! event.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::change::{Release, Take, Wake, Write, WriteKind};
use crate::label::Label;
use crate::{Error, Json, Key, Labels, Object, Result, Timestamp};

/// A kind of object. Implemented by its spec, which belongs to no other kind. The kind's name is in
/// the key: some kinds are declared at run time.
pub trait Kind: Serialize + DeserializeOwned {
    type Phase: Label;
    type Status: Serialize + DeserializeOwned;
    /// Whether a worker reconciles it. If none does, its status always reflects its spec.
    const RECONCILED: bool = true;
}

/// The status of kinds that have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NoStatus {}

/// An object with its phase, spec and status decoded. Small: an index holds very many, so what only
/// writers need stays in the [`Object`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Typed<K: Kind> {
    pub id: String,
    pub kind: String,
    pub org: String,
    pub owner: String,
    pub name: String,
    pub phase: K::Phase,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub revision: i64,
    pub spec: K,
    pub status: K::Status,
}

impl<K: Kind> Typed<K> {
    pub fn from_object(object: &Object) -> Result<Typed<K>> {
        Ok(Typed {
            id: object.key.id().into(),
            kind: object.key.kind().into(),
            org: object.org.clone(),
            owner: object.owner.clone(),
            name: object.name.clone(),
            phase: parse_phase(object)?,
            created_at: object.created_at,
            updated_at: object.updated_at,
            revision: object.revision,
            spec: object.spec.parse()?,
            status: object.status.parse()?,
        })
    }

    pub fn key(&self) -> Key {
        Key::new(&self.kind, &self.id)
    }

    /// The draft that makes this a new object.
    pub fn new_draft(&self) -> Draft<'static, K> {
        let Typed { org, owner, name, .. } = self;
        self.applied(Draft::new(self.key(), org, owner, name, self.created_at))
    }

    /// The draft that makes this of the object, as it was read.
    pub fn draft<'a>(&self, object: &'a Object) -> Draft<'a, K> {
        self.applied(Draft::of(object).owner(&self.owner))
    }

    fn applied<'a>(&self, draft: Draft<'a, K>) -> Draft<'a, K> {
        draft.phase(&self.phase).spec(&self.spec).status(&self.status)
    }

    /// Schedules a reconciliation at `due`.
    pub fn wake(&self, due: Timestamp) -> Wake {
        Wake::new(self.key(), &self.org, due)
    }

    /// Takes an amount of a counter for as long as the object exists.
    pub fn take(&self, counter: String, amount: i64, limit: i64) -> Take {
        Take { counter, holder: self.key().to_string(), amount, limit }
    }

    /// Releases what the object holds of these counters.
    pub fn releases(&self, counters: impl IntoIterator<Item = String>) -> Vec<Release> {
        let holder = self.key().to_string();
        counters.into_iter().map(|counter| Release { counter, holder: holder.clone() }).collect()
    }
}

/// Decodes the phase of an object.
pub fn parse_phase<P: Label>(object: &Object) -> Result<P> {
    let unknown = || Error::internal("an object's phase", format!("`{}`", object.phase));
    P::parse(&object.phase).ok_or_else(unknown)
}

/// An object that is about to be written: what it is made of, and then why ([`Draft::create`],
/// [`Draft::respec`], [`Draft::transition`], [`Draft::report`], [`Draft::delete`]), which makes the
/// write with its event.
#[derive(Debug, Clone)]
pub struct Draft<'a, K> {
    /// As it was read; none for a new one.
    base: Option<&'a Object>,
    object: Object,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Draft<'a, K> {
    /// A new object.
    pub fn new(
        key: Key,
        org: &str,
        owner: &str,
        name: &str,
        created_at: Timestamp,
    ) -> Draft<'a, K> {
        let object = Object::new(key, org, owner, name, "", created_at);
        Draft { base: None, object, kind: PhantomData }
    }

    /// An object as it was read.
    pub fn of(base: &'a Object) -> Draft<'a, K> {
        Draft { base: Some(base), object: base.clone(), kind: PhantomData }
    }

    pub fn org(mut self, org: &str) -> Self {
        org.clone_into(&mut self.object.org);
        self
    }

    pub fn owner(mut self, owner: &str) -> Self {
        owner.clone_into(&mut self.object.owner);
        self
    }

    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.object.name);
        self
    }

    pub fn description(mut self, description: String) -> Self {
        self.object.description = description;
        self
    }

    pub fn labels(mut self, labels: Labels) -> Self {
        self.object.labels = labels;
        self
    }

    pub fn phase(mut self, phase: &K::Phase) -> Self {
        phase.label().clone_into(&mut self.object.phase);
        self
    }

    pub fn spec(mut self, spec: &K) -> Self {
        self.object.spec = Json::encode(spec);
        self
    }

    pub fn status(mut self, status: &K::Status) -> Self {
        self.object.status = Json::encode(status);
        self
    }

    /// Takes over the generation of an object that another system keeps and reports whole.
    pub fn mirror(mut self, generation: i64) -> Self {
        (self.object.generation, self.object.observed) = (generation, generation);
        self.object.deleted_at = None;
        self
    }

    /// Whether writing it would change anything.
    pub fn is_changed(&self) -> bool {
        self.base != Some(&self.object)
    }

    /// Writes a new object.
    pub fn create(self, event: impl Into<Cow<'static, str>>) -> Write {
        let now = self.object.created_at;
        self.respec(event, now)
    }

    /// Writes what was requested. The generation counts it if it is more than a new status. An object
    /// that was deleted exists again.
    pub fn respec(mut self, event: impl Into<Cow<'static, str>>, now: Timestamp) -> Write {
        self.object.deleted_at = None;
        let desired =
            |base: &Object| base.phase != self.object.phase || self.is_beyond_status(base);
        self.object.generation += i64::from(self.base.is_some_and(desired));
        if !K::RECONCILED {
            self.object.observed = self.object.generation;
        }
        self.finish(event, now)
    }

    /// Writes what was observed and done for the current generation. The spec may be completed, as by
    /// the version that was chosen: nobody requested that, so the generation does not count it.
    pub fn transition(mut self, event: impl Into<Cow<'static, str>>, now: Timestamp) -> Write {
        self.object.observed = self.object.generation;
        self.finish(event, now)
    }

    /// Writes what was observed before the current generation is reached, or apart from it.
    pub fn report(self, event: impl Into<Cow<'static, str>>, now: Timestamp) -> Write {
        self.finish(event, now)
    }

    /// Marks the object as deleted, when nothing of it is left: it stays as history.
    pub fn delete(mut self, event: impl Into<Cow<'static, str>>, now: Timestamp) -> Write {
        self.object.deleted_at = Some(now);
        self.transition(event, now)
    }

    fn finish(mut self, event: impl Into<Cow<'static, str>>, now: Timestamp) -> Write {
        self.object.updated_at = now;
        let kind = match self.base {
            None => WriteKind::Create,
            Some(base) if self.is_beyond_status(base) => WriteKind::Update,
            // Costs the store less.
            Some(_) => WriteKind::Transition,
        };
        Write { kind, object: self.object, event: event.into() }
    }

    /// Whether more than phase, status, observed generation and time is new.
    fn is_beyond_status(&self, base: &Object) -> bool {
        let new = &self.object;
        new.spec != base.spec
            || new.generation != base.generation
            || new.deleted_at != base.deleted_at
            || (&new.org, &new.owner, &new.name) != (&base.org, &base.owner, &base.name)
            || (&new.description, &new.labels) != (&base.description, &base.labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, labels};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Kettle {
        litres: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Heat {
        degrees: u32,
    }

    labels! {
        enum Phase {
            Cold = "cold",
            Boiling = "boiling",
            Gone = "gone",
        }
    }

    impl Kind for Kettle {
        type Phase = Phase;
        type Status = Heat;
    }

    /// A kettle that nobody heats.
    #[derive(Serialize, Deserialize)]
    struct Display(u32);

    impl Kind for Display {
        type Phase = String;
        type Status = NoStatus;
        const RECONCILED: bool = false;
    }

    const BEGIN: Timestamp = Timestamp(1_000);
    const NOW: Timestamp = Timestamp(2_000);

    /// What a write is, apart from its object's content.
    fn outline(write: &Write) -> (WriteKind, i64, i64, Timestamp, bool) {
        let Object { generation, observed, updated_at, deleted_at, .. } = write.object;
        (write.kind, generation, observed, updated_at, deleted_at.is_some())
    }

    fn event(write: Write) -> String {
        Change::from(write).event().expect("a write has its event").kind
    }

    fn kettle() -> Object {
        let draft = Draft::new(Key::new("kettle", "k1"), "acme", "alice", "k", BEGIN);
        let draft = draft.phase(&Phase::Cold).spec(&Kettle { litres: 1 });
        draft.status(&Heat { degrees: 20 }).create("created").object
    }

    fn draft(object: &Object) -> Draft<'_, Kettle> {
        Draft::of(object)
    }

    #[test]
    fn a_new_object_is_to_be_reconciled_unless_nobody_does() {
        let new = || Draft::<Kettle>::new(Key::new("kettle", "k1"), "", "", "", BEGIN);
        let write = new().spec(&Kettle { litres: 1 }).create("created");
        assert_eq!(outline(&write), (WriteKind::Create, 1, 0, BEGIN, false));
        assert_eq!(event(write), "mainstay.kettle.created");
        let display = Draft::<Display>::new(Key::new("display", "d1"), "", "", "", BEGIN);
        let write = display.spec(&Display(1)).create("shown");
        assert_eq!(outline(&write), (WriteKind::Create, 1, 1, BEGIN, false));
        assert_eq!(event(write), "mainstay.display.shown");
    }

    #[test]
    fn the_generation_counts_what_is_requested_and_nothing_else() {
        let object = kettle();
        let write = draft(&object).spec(&Kettle { litres: 2 }).respec("updated", NOW);
        assert_eq!(outline(&write), (WriteKind::Update, 2, 0, NOW, false));
        assert_eq!(event(write), "mainstay.kettle.updated");
        for write in [
            draft(&object).phase(&Phase::Gone).respec("deleting", NOW),
            draft(&object).owner("bob").respec("updated", NOW),
        ] {
            assert_eq!(outline(&write), (WriteKind::Update, 2, 0, NOW, false));
        }
        let same = draft(&object).spec(&Kettle { litres: 1 }).phase(&Phase::Cold);
        assert!(!same.is_changed());
        let write = same.status(&Heat { degrees: 30 }).respec("updated", NOW);
        assert_eq!(outline(&write), (WriteKind::Transition, 1, 0, NOW, false));
        let shown = Draft::new(Key::new("display", "d"), "", "", "", BEGIN).spec(&Display(1));
        let object = shown.create("created").object;
        let write = Draft::of(&object).spec(&Display(2)).respec("changed", NOW);
        assert_eq!(outline(&write), (WriteKind::Update, 2, 2, NOW, false));
    }

    #[test]
    fn a_transition_reaches_the_generation_and_a_report_does_not() {
        let object = Object { generation: 3, ..kettle() };
        let hot = || draft(&object).phase(&Phase::Boiling).status(&Heat { degrees: 100 });
        let write = hot().transition(Phase::Boiling.label(), NOW);
        assert_eq!(outline(&write), (WriteKind::Transition, 3, 3, NOW, false));
        assert_eq!((write.object.phase.as_str(), &write.object.spec), ("boiling", &object.spec));
        assert_eq!(event(write), "mainstay.kettle.boiling");
        let write = hot().report("heating", NOW);
        assert_eq!(outline(&write), (WriteKind::Transition, 3, 0, NOW, false));
        assert_eq!(event(write), "mainstay.kettle.heating");
        let completed = hot().spec(&Kettle { litres: 4 }).transition("filled", NOW);
        assert_eq!(outline(&completed), (WriteKind::Update, 3, 3, NOW, false));
    }

    #[test]
    fn a_deleted_object_stays_and_may_exist_again() {
        let object = kettle();
        let write = draft(&object).phase(&Phase::Gone).delete("deleted", NOW);
        assert_eq!(outline(&write), (WriteKind::Update, 1, 1, NOW, true));
        let gone = write.object.clone();
        assert_eq!(event(write), "mainstay.kettle.deleted");
        let write = draft(&gone).phase(&Phase::Cold).respec("created", NOW);
        assert_eq!(outline(&write), (WriteKind::Update, 2, 1, NOW, false));
    }

    #[test]
    fn a_mirrored_object_has_the_generation_of_the_other_system() {
        let object = kettle();
        let write = draft(&object).mirror(7).report("reported", NOW);
        assert_eq!(outline(&write), (WriteKind::Update, 7, 7, NOW, false));
        let object = write.object;
        assert!(!draft(&object).mirror(7).is_changed());
        let write = draft(&object).mirror(7).phase(&Phase::Boiling).report("boiling", NOW);
        assert_eq!(outline(&write), (WriteKind::Transition, 7, 7, NOW, false));
    }

    #[test]
    fn what_is_decoded_and_drafted_again_is_unchanged() {
        let object = kettle();
        let decoded = Typed::<Kettle>::from_object(&object).unwrap();
        assert_eq!(
            (decoded.phase, decoded.spec.litres, decoded.status.degrees),
            (Phase::Cold, 1, 20)
        );
        assert!(!decoded.draft(&object).is_changed());
        assert_eq!(decoded.new_draft().create("created").object, object);
        let unknown = Object { phase: "lukewarm".into(), ..object };
        let error = Typed::<Kettle>::from_object(&unknown).unwrap_err();
        assert!(format!("{error:?}").contains("`lukewarm`"), "{error:?}");
    }
}
