//! What compiles, and what is refused at publish.

use super::*;

const SHOP: &str = include_str!("../../model/template/shop.yaml");

fn wrong(resources: &str) -> Vec<String> {
    let text = format!("name: t\nversion: 1\nparameters: {{n: {{type: integer}}}}\n{resources}");
    let problems = publish("t", &text).expect_err("it has problems");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_template_becomes_parts_with_edges() {
    let compiled = publish("shop.yaml", SHOP).unwrap_or_else(|problems| panic!("{problems}"));
    let names: Vec<&str> = compiled.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["cache.primary", "cache.replica", "db", "lb", "web"]);
    let edges = |part: usize| compiled.parts[part].edges.clone();
    let all = |to| Edge { to, which: Which::All };
    // The group's own dependency is that of all of its resources.
    assert_eq!(edges(0), [all(2)]);
    assert_eq!(edges(1), [all(0), all(2)]);
    assert_eq!(edges(3), [all(4)]);
    assert_eq!(edges(4), [all(0), all(2)]);
    assert_eq!(compiled.order, [2, 0, 1, 4, 3]);
    assert_eq!(compiled.parts[4].outside.len(), 2);
}

#[test]
fn a_cycle_is_refused_with_its_path() {
    let found = wrong(
        "resources:\n  a: {executor: x, input: {v: '{{ b.outputs.v }}'}}\n  \
         b: {executor: x, depends_on: [c]}\n  c: {executor: x, depends_on: [a]}\n",
    );
    assert_eq!(
        found,
        [
            "t:5:3: resources.a: depends on itself: a -> b -> c -> a; remove one of these dependencies"
        ]
    );
    let own =
        wrong("resources:\n  a: {executor: x, count: 2, input: {v: '{{ a[0].outputs.v }}'}}\n");
    assert!(own[0].contains("a -> a"), "{own:?}");
}

#[test]
fn missing_and_ambiguous_references_are_refused() {
    let found = wrong(
        "groups:\n  pair:\n    resources:\n      primary: {executor: x}\n      \
               replica: {executor: x, depends_on: [primry], input: {v: '{{ web.outputs.v }}'}}\n\
         resources:\n  one: {group: pair}\n  two: {group: pair}\n  web:\n    executor: x\n    \
         depends_on: [primary, wbe, nothing, 'web[1]', 'external:mail', '../x', one]\n    \
         input:\n      a: '{{ bd.outputs.x }}'\n      b: '{{ one.outputs.x }}'\n      c: '{{ one }}'\n  \
         db: {executor: x, count: 2}\n  user:\n    executor: x\n    input:\n      \
               a: '{{ db.outputs.x }}'\n      b: '{{ web[0].outputs.x }}'\n      c: '{{ web.phase }}'\n",
    );
    let expected = [
        "groups.pair.resources.replica.depends_on[0]: there is no resource `primry` in the group; \
         did you mean `primary`?",
        "`web` is outside of the group",
        "resources.web.depends_on[0]: `primary` is ambiguous; write `one.primary` or `two.primary`",
        "resources.web.depends_on[1]: there is no resource `wbe`; did you mean `web`?",
        "resources.web.depends_on[2]: there is no resource `nothing`; known are:",
        "resources.web.depends_on[3]: `web` has no count; write `web`",
        "resources.web.depends_on[4]: `mail` is not among the `externals`",
        "resources.web.depends_on[5]: `../x` is not a reference",
        "resources.web.input.a: there is no resource `bd`; did you mean `db`?",
        "resources.web.input.b: there is no resource `one.outputs`",
        "resources.web.input.c: `one` is a group",
        "resources.user.input.a: `db` has a count, so `.outputs` is not of one; write `db[0].outputs`",
        "resources.user.input.b: `web` has no count",
        "resources.user.input.c: a resource has nothing but `outputs`",
    ];
    for expected in expected {
        assert!(found.iter().any(|found| found.contains(expected)), "{expected} in {found:#?}");
    }
}

#[test]
fn what_must_be_known_early_may_not_be_an_output() {
    let found = wrong(
        "resources:\n  db: {executor: x}\n  web: {executor: x, count: '{{ db.outputs.n }}'}\n  \
         other: {executor: x, depends_on: ['{{ db.outputs.x }}/vpc']}\n  \
         late: {executor: x, input: {v: '{{ param.m }}', w: '{{ count.index }}'}}\n\
         entry_points: [{name: a, url: '{{ dbb.outputs.url }}'}]\n",
    );
    for expected in [
        "resources.web.count: `db` is not known when it is planned; use only `param` and `env` here",
        "resources.other.depends_on[0]: `db` is not known",
        "resources.late.input.v: `param.m` does not exist; did you mean `n`?",
        "resources.late.input.w: `count` is used, but the resource has none",
        "entry_points[0].url: there is no resource `dbb`; did you mean `db`?",
    ] {
        assert!(found.iter().any(|found| found.contains(expected)), "{expected} in {found:#?}");
    }
}

#[test]
fn all_of_them_includes_each_of_them() {
    let text = "name: t\nversion: 1\nresources:\n  db: {executor: x, count: 3}\n  web:\n    executor: x\n    \
                depends_on: ['db[1]', 'db[1]', db]\n";
    let compiled = publish("t", text).unwrap();
    assert_eq!(compiled.parts[1].edges, [Edge { to: 0, which: Which::All }]);
}
