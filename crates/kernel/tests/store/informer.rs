//! A copy in memory: complete at once, then never older than what its reader knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::Json;
use kernel::event_tail::EventTail;
use kernel::informer::{CacheUpdate, Informer, OnUpdate};
use kernel::store::postgres::Postgres;
use parking_lot::Mutex;
use testkit::chaos::Proxy;
use testkit::postgres::Database;
use testkit::stores::Fresh;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::*;

on_every_store!(
    a_copy_is_complete_when_it_is_loaded_and_follows_what_is_wanted,
    a_writer_finds_its_write_in_the_copy_at_once,
    what_went_while_events_were_forgotten_is_gone_from_the_copy,
    a_reader_does_not_wait_for_events_of_other_kinds,
);

/// A copy, the way a domain keeps one.
#[derive(Clone, Default)]
struct Copy(Arc<Mutex<BTreeMap<Key, Object>>>);

impl Copy {
    fn apply(&self) -> OnUpdate {
        let Copy(objects) = self.clone();
        Arc::new(move |update, _| {
            let mut objects = objects.lock();
            match update {
                CacheUpdate::Resync(keys) => objects.retain(|key, _| keys.contains(key)),
                CacheUpdate::Upsert(object) => {
                    let there = objects.get(&object.key);
                    if there.is_none_or(|there| there.revision <= object.revision) {
                        objects.insert(object.key.clone(), *object);
                    }
                }
            }
        })
    }

    async fn load(&self, store: &Arc<dyn Store>) -> Arc<Informer> {
        let (kinds, wanted) = (["widget".to_owned()], Arc::new(|kind: &str| kind != "gadget"));
        Informer::load(&EventTail::new(store.clone()), &kinds, wanted, self.apply()).await.unwrap()
    }

    fn get(&self, id: &str) -> Option<Object> {
        self.0.lock().get(&key(id)).cloned()
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().keys().map(ToString::to_string).collect()
    }
}

fn follow(informer: &Arc<Informer>) -> DropGuard {
    let stop = CancellationToken::new();
    let (informer, stopped) = (informer.clone(), stop.clone());
    tokio::spawn(async move { informer.run(stopped).await });
    stop.drop_guard()
}

async fn update(store: &dyn Store, id: &str, change: impl FnOnce(&mut Object)) -> Object {
    let mut object = store.get(&[key(id)]).await.unwrap().remove(0);
    change(&mut object);
    let write = Some(Write::update(object, "changed"));
    commit(store, Change { write, ..Change::default() }).await.unwrap();
    store.get(&[key(id)]).await.unwrap().remove(0)
}

fn gadget(id: &str) -> Change {
    let mut object = widget(id, "acme");
    object.key = Key::new("gadget", id);
    create(object)
}

async fn a_reader_does_not_wait_for_events_of_other_kinds(fresh: &Fresh) {
    let store = &fresh.store;
    commit(&**store, create(widget("a", "acme"))).await.unwrap();
    let copy = Copy::default();
    // Nobody runs it: it stays where it is.
    let informer = copy.load(store).await;
    for n in 0..10 {
        commit(&**store, gadget(&n.to_string())).await.unwrap();
    }
    informer.catch_up().await.expect("nothing of its own kinds is new");
    assert_eq!(informer.seq(), 1);
    let other = copy.load(store).await;
    commit(&**store, create(widget("b", "acme"))).await.unwrap();
    let behind = tokio::time::timeout(Duration::from_millis(50), other.catch_up()).await;
    assert!(behind.is_err(), "it waits for an event of its own kind");
}

async fn a_copy_is_complete_when_it_is_loaded_and_follows_what_is_wanted(fresh: &Fresh) {
    let store = &fresh.store;
    let many = (0..1500).map(|n| create(widget(&format!("{n:04}"), "acme"))).collect();
    store.commit_all(many, NOW).await.unwrap();
    commit(&**store, gadget("1")).await.unwrap();
    update(&**store, "0000", |object| object.deleted_at = Some(NOW)).await;
    let copy = Copy::default();
    let informer = copy.load(store).await;
    assert_eq!(informer.seq(), 1502);
    assert_eq!(copy.keys().len(), 1499);
    assert_eq!(copy.get("0000"), None);

    let following = follow(&informer);
    let second = update(&**store, "0001", |object| object.name = "second".into()).await;
    let gone = update(&**store, "0002", |object| object.deleted_at = Some(later(1))).await;
    commit(&**store, gadget("2")).await.unwrap();
    let noted = kernel::change::EventDraft {
        kind: "mainstay.widget.noted".into(),
        subject: key("0003"),
        org: "acme".into(),
        data: Some(Json::encode(&["not an object"])),
    };
    commit(&**store, Change { event: Some(noted), ..Change::default() }).await.unwrap();
    informer.catch_up().await.unwrap();
    assert_eq!(informer.seq(), 1506);
    assert_eq!((copy.get("0001"), copy.get("0002")), (Some(second), Some(gone)));
    assert!(copy.get("0003").is_some(), "an event that writes nothing changes nothing");
    assert!(!copy.keys().iter().any(|key| key.starts_with("gadget")), "not wanted");

    drop(following);
    let again = Copy::default();
    again.load(store).await;
    assert!(again.get("0003").is_some() && again.get("0002").is_none());
}

async fn a_writer_finds_its_write_in_the_copy_at_once(fresh: &Fresh) {
    let mut stores = vec![fresh.store.clone()];
    stores.extend(fresh.replica().await);
    let mut mirrors = Vec::new();
    for store in &stores {
        let copy = Copy::default();
        let informer = copy.load(store).await;
        mirrors.push((store.clone(), Arc::new(follow(&informer)), informer, copy));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let mirrors = mirrors.clone();
        tasks.spawn(async move {
            for n in 0..25 {
                let object = widget(&format!("{writer}-{n}"), "acme");
                let (store, ..) = &mirrors[writer % mirrors.len()];
                commit(&**store, create(object.clone())).await.unwrap();
                let (_, _, informer, copy) = &mirrors[n % mirrors.len()];
                informer.catch_up().await.unwrap();
                assert_eq!(copy.get(object.key.id()), Some(object));
            }
        });
    }
    tasks.join_all().await;
}

async fn what_went_while_events_were_forgotten_is_gone_from_the_copy(fresh: &Fresh) {
    let store = &fresh.store;
    for id in ["stays", "goes"] {
        commit(&**store, create(widget(id, "acme"))).await.unwrap();
    }
    let copy = Copy::default();
    let informer = copy.load(store).await;
    update(&**store, "goes", |object| object.deleted_at = Some(NOW)).await;
    let stays = update(&**store, "stays", |object| object.name = "still".into()).await;
    commit(&**store, gadget("last")).await.unwrap();
    store.purge(&testkit::stores::old(later(1), NOW), 100).await.unwrap();
    assert_eq!(store.first_event().await.unwrap(), Some(5));
    let _following = follow(&informer);
    informer.catch_up().await.unwrap();
    assert_eq!((copy.get("goes"), copy.get("stays")), (None, Some(stays)));
}

#[tokio::test]
async fn a_copy_that_nobody_keeps_up_to_date_is_not_taken_for_fresh() {
    let fresh = testkit::stores::memory().await.unwrap();
    let informer = Copy::default().load(&fresh.store).await;
    informer.catch_up().await.unwrap();
    commit(&*fresh.store, create(widget("1", "acme"))).await.unwrap();
    tokio::time::pause();
    let behind = informer.catch_up().await.unwrap_err();
    assert_eq!(behind.class(), kernel::Class::Transient, "{behind}");
}

async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(Postgres::open(url, kernel::store::uncounted()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_when_the_store_is_back() {
    let Some(database) = Database::create().await else { return };
    let url = url::Url::parse(database.url()).unwrap();
    let proxy = Proxy::to(&format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())).await;
    let mut through = url.clone();
    through.set_host(Some(&proxy.address().ip().to_string())).unwrap();
    through.set_port(Some(proxy.address().port())).unwrap();
    let (near, far) = (open(database.url()).await, open(through.as_str()).await);
    let copy = Copy::default();
    let informer = copy.load(&far).await;
    let _following = follow(&informer);
    proxy.cut();
    commit(&*near, create(widget("meanwhile", "acme"))).await.unwrap();
    assert_eq!(informer.catch_up().await.unwrap_err().class(), kernel::Class::Transient);
    proxy.mend();
    let back = async {
        while informer.catch_up().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("it comes back");
    assert!(copy.get("meanwhile").is_some());
}
