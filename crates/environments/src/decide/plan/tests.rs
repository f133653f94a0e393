//! Plans of the example template, and of a large one.

use serde_json::{Value, json};

use super::*;
use crate::decide::compile::{Compiled, publish};
use crate::decide::expand::{About, expand};

const SHOP: &str = include_str!("../../model/template/shop.yaml");

fn compiled(text: &str) -> Compiled {
    publish("t", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn expansion<'c>(compiled: &'c Compiled, given: &Value) -> Expansion<'c> {
    let about = About { id: "e1", name: "shop-test", org: "o", ..About::default() };
    expand(compiled, given.as_object().unwrap(), &about)
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// What exists after an expansion was applied.
struct Applied {
    ids: Vec<String>,
    specs: Vec<Resource>,
    statuses: Vec<Status>,
}

impl Applied {
    fn new(expansion: &Expansion<'_>) -> Applied {
        let numbers = 0..expansion.resources.len() as u32;
        let specs: Vec<Resource> = numbers.map(|number| expansion.resource(number, "e1")).collect();
        let ids = specs.iter().map(|spec| format!("e1-{}", spec.address)).collect();
        let statuses = specs.iter().map(|_| Status::default()).collect();
        Applied { ids, specs, statuses }
    }

    fn existing(&self) -> Vec<Existing<'_>> {
        let each = self.ids.iter().zip(&self.specs).zip(&self.statuses);
        each.map(|((id, spec), status)| Existing { id, generation: 1, spec, status }).collect()
    }
}

fn plan_of(wanted: Option<&Expansion<'_>>, existing: &[Existing<'_>]) -> Body {
    let world = World {
        existing,
        price: None,
        history: &|_, name| (name == "db").then_some(60_000),
        immutable: &|_| &[],
        dependents: &|id| match id {
            "e1-db" => vec![Foreign {
                id: "x".into(),
                environment: "reports".into(),
                address: Address::new("job", None),
            }],
            _ => Vec::new(),
        },
    };
    plan("shop@1.4.0", wanted, &world)
}

fn shown(body: &Body) -> Vec<String> {
    let changes = body.changes.iter();
    changes.map(|change| format!("{} {}", change.action.label(), change.address)).collect()
}

#[test]
fn everything_is_created_in_order_with_its_duration_and_price() {
    let compiled = compiled(SHOP);
    let body = plan_of(Some(&expansion(&compiled, &json!({"size": 2}))), &[]);
    assert_eq!(
        shown(&body),
        [
            "create db",
            "create cache.primary",
            "create cache.replica[0]",
            "create cache.replica[1]",
            "create web[0]",
            "create web[1]",
            "create lb",
        ]
    );
    let begins: Vec<u64> = body.changes.iter().map(|change| change.begins_ms / 1000).collect();
    assert_eq!((begins, body.takes_ms), (vec![0, 60, 65, 65, 65, 65, 70], 75_000));
    let cost = &body.cost[0];
    assert_eq!((cost.currency.as_str(), cost.before), ("EUR", 0.0));
    assert!((cost.after - 0.65).abs() < 1e-9, "{cost:?}");
    let needs: Vec<String> = body.needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs, ["network/vpc", "external:billing"]);
    assert!(body.affected.is_empty());
}

#[test]
fn an_applied_plan_leaves_an_empty_one() {
    let compiled = compiled(SHOP);
    let expansion = expansion(&compiled, &json!({}));
    let applied = Applied::new(&expansion);
    let body = plan_of(Some(&expansion), &applied.existing());
    assert_eq!((shown(&body), body.unchanged, body.takes_ms), (Vec::new(), 8, 0));
    // What was stored and read again is the same.
    let mut stored = applied;
    for spec in &mut stored.specs {
        let text = serde_json::to_string(spec).unwrap();
        *spec = serde_json::from_str(&text).unwrap();
    }
    assert_eq!(plan_of(Some(&expansion), &stored.existing()), body);
}

#[test]
fn changes_are_updates_replacements_and_destructions() {
    let compiled = compiled(SHOP);
    let applied = Applied::new(&expansion(&compiled, &json!({"size": 3})));
    let mut text =
        SHOP.replace("engine: postgres", "engine: mysql").replace("timeout: 10m", "timeout: 20m");
    text = text.replace("  lb:\n    executor: simulated\n", "  lb:\n    executor: manifest\n");
    let changed = self::compiled(&text);
    let wanted = expansion(&changed, &json!({"size": 2}));
    let body = plan_of(Some(&wanted), &applied.existing());
    assert_eq!(
        shown(&body),
        [
            "replace db",
            "update cache.primary",
            "update web[0]",
            "update web[1]",
            "replace lb",
            "destroy web[2]",
        ]
    );
    let db = &body.changes[0];
    assert_eq!(
        (db.replaced_by.as_slice(), db.takes_ms),
        (["engine".to_owned()].as_slice(), 120_000)
    );
    assert_eq!(db.diff[0].after, Some(json!("mysql")));
    assert_eq!(body.changes[1].diff[0].field, "memory_mb");
    assert!(body.changes[2].metadata_only && body.changes[2].takes_ms == 0);
    assert_eq!(body.changes[4].replaced_by, ["executor"]);
    // The load balancer still has web[2], until it is applied again.
    assert_eq!(body.changes[5].begins_ms, body.changes[4].begins_ms + body.changes[4].takes_ms);
    assert_eq!(body.affected[0].environment, "reports");
    assert_eq!(body.unchanged, 2);
}

#[test]
fn a_destruction_goes_in_reverse_without_a_template() {
    let compiled = compiled(SHOP);
    let applied = Applied::new(&expansion(&compiled, &json!({"size": 1})));
    let body = plan_of(None, &applied.existing());
    let order = shown(&body);
    let at =
        |name: &str| order.iter().position(|shown| *shown == format!("destroy {name}")).unwrap();
    assert_eq!(order.len(), 6);
    assert!(at("lb") < at("web[0]") && at("web[0]") < at("cache.primary"));
    assert!(at("cache.replica[0]") < at("cache.primary") && at("cache.primary") < at("db"));
    assert_eq!(body.cost[0].after, 0.0);
    assert_eq!(body.takes_ms, 5_000 * 3 + 60_000);
}

#[test]
fn the_hash_is_that_of_what_is_done() {
    let compiled = compiled(SHOP);
    let wanted = expansion(&compiled, &json!({}));
    let hash =
        |wanted: &Expansion<'_>, existing: &[Existing<'_>]| plan_of(Some(wanted), existing).hash;
    assert_eq!(hash(&wanted, &[]), hash(&expansion(&compiled, &json!({"region": "eu"})), &[]));
    assert_ne!(hash(&wanted, &[]), hash(&expansion(&compiled, &json!({"region": "us"})), &[]));
    let elsewhere = expansion(&compiled, &json!({"network": "other"}));
    assert_ne!(hash(&wanted, &[]), hash(&elsewhere, &[]));
    let applied = Applied::new(&wanted);
    let mut existing = applied.existing();
    let before = hash(&wanted, &existing);
    existing.reverse();
    assert_eq!(hash(&wanted, &existing), before, "the order of reading does not matter");
    existing[0].generation += 1;
    assert_ne!(hash(&wanted, &existing), before, "the world moved");
}

#[test]
fn a_plan_has_all_of_15_000_resources_and_finds_them_unchanged() {
    let text = "name: large\nversion: 1\nresources:\n  \
        net: {executor: simulated, count: 2, input: {zone: \"{{ count.index }}\"}}\n  \
        dns: {executor: simulated}\n  \
        db: {executor: simulated, count: 5000, depends_on: [net, dns], input: {name: \"{{ env.name }}-{{ count.index }}\"}}\n  \
        cache: {executor: simulated, count: 5000, depends_on: [net], input: {db: \"{{ db[count.index].outputs.host }}\"}}\n  \
        web: {executor: simulated, count: 5000, depends_on: [net], input: {db: \"{{ db[count.index].outputs.host }}\", cache: \"{{ cache[count.index].outputs.host }}\"}}\n";
    let compiled = compiled(text);
    let wanted = expansion(&compiled, &json!({}));
    assert_eq!((wanted.resources.len(), wanted.graph.edges()), (15_003, 50_000));
    let body = plan_of(Some(&wanted), &[]);
    let applied = Applied::new(&wanted);
    let unchanged = plan_of(Some(&wanted), &applied.existing());
    assert_eq!((body.changes.len(), unchanged.unchanged), (15_003, 15_003));
    assert!(unchanged.changes.is_empty());
}
