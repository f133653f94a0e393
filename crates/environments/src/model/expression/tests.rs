//! What expressions may say, what they use, and what bounds them.

use serde_json::{Value, json};

use super::*;

fn parse(text: &str) -> Expression {
    let mut problems = Problems::default();
    let parsed = Expression::parse("f", text, &mut problems);
    parsed.unwrap_or_else(|| panic!("{text}: {problems}"))
}

fn wrong(text: &str) -> String {
    let mut problems = Problems::default();
    assert!(Expression::parse("f", text, &mut problems).is_none(), "{text} was taken");
    problems.to_string()
}

fn scope() -> Scope {
    let param =
        json!({"n": 3, "name": "shop", "list": ["a", "b"], "on": true, "long": "a".repeat(60_000)});
    Scope::new(&param, &json!({"name": "test"}))
        .of_resource(&json!({"address": "web[1]"}))
        .of_count(&json!({"index": 1, "total": 3}))
        .with_resources(&json!({
            "db": {"outputs": {"host": "h", "port": 5432}},
            "web": [{"outputs": {"url": "u0"}}, {"outputs": {"url": "u1"}}],
        }))
}

fn value(text: &str) -> Value {
    parse(text).evaluate(&scope()).unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[test]
fn a_text_that_is_one_expression_keeps_its_type() {
    assert_eq!(value("{{ param.n }}"), json!(3));
    assert_eq!(value("{{param.on}}"), json!(true));
    assert_eq!(value("{{ param.list }}"), json!(["a", "b"]));
    assert_eq!(value("{{ {'a': {'b': param.n}} }}"), json!({"a": {"b": 3}}));
    assert_eq!(value("n is {{ param.n }}"), json!("n is 3"));
    assert_eq!(value("{{ db.outputs.host }}:{{ db.outputs.port }}"), json!("h:5432"));
    assert_eq!(value("{{ web[count.index].outputs.url }}"), json!("u1"));
    assert_eq!(value("{{ web|map(attribute='outputs.url')|join(',') }}"), json!("u0,u1"));
    assert_eq!(value("{{ 'x' if param.n > 2 and param.on else 'y' }}"), json!("x"));
    assert_eq!(value("{{ param.n|times(2) + 1 }}"), json!(7));
    assert_eq!(value("{{ param.list|tojson }}"), json!("[\"a\",\"b\"]"));
    assert_eq!(value("{{ \"}}\" ~ '{{' }}"), json!("}}{{"));
}

#[test]
fn a_plain_text_is_not_an_expression() {
    let mut problems = Problems::default();
    assert!(Expression::parse("f", "plain } text {", &mut problems).is_none());
    assert!(problems.is_empty());
}

#[test]
fn what_is_not_there_is_an_error_and_not_an_empty_text() {
    let error = |text: &str| parse(text).evaluate(&scope()).unwrap_err();
    assert!(error("{{ param.missing }}").contains("undefined"), "{}", error("{{ param.missing }}"));
    assert!(error("x{{ nobody }}").contains("undefined"));
    assert!(error("list: {{ param.list }}").contains("tojson"));
    assert!(!error("{{ param.n // 0 }}").is_empty());
    assert!(!error("{{ param.n / 0 }}").is_empty());
}

#[test]
fn mistakes_are_found_before_it_runs() {
    assert!(wrong("{{ param.n").contains("not closed"));
    assert!(wrong("{{ }}").contains("empty"));
    assert!(wrong("{% if x %}").contains("statements"));
    assert!(wrong("{{ 1 + }}").contains("is not an expression"));
    assert!(wrong("{{ param.name|uper }}").contains("did you mean `upper`?"));
    assert!(wrong("{{ param.name is strng }}").contains("did you mean `string`?"));
    assert!(wrong("{{ param.name.upper() }}").contains("methods"));
    assert!(wrong("{{ range(9) }}").contains("no functions"));
    assert!(wrong("{{ param.name * 9 }}").contains("times"));
    assert!(wrong(&format!("{{{{ {} }}}}", "1+".repeat(600))).contains("bytes"));
}

#[test]
fn fields_of_the_reserved_names_are_checked() {
    let check = |text: &str, counted: bool| {
        let mut problems = Problems::default();
        let known = Known { parameters: &["region", "size"], counted };
        parse(text).check("f", &known, &mut problems);
        problems.to_string()
    };
    assert_eq!(check("{{ param.region }}{{ env.name }}", false), "");
    assert!(check("{{ param.regoin }}", false).contains("did you mean `region`?"));
    assert!(check("{{ param['regoin'] }}", false).contains("did you mean `region`?"));
    assert!(check("{{ count.index }}", false).contains("has none"));
    assert!(check("{{ env.nmae }}", true).contains("did you mean `name`?"));
}

#[test]
fn uses_are_found_with_their_place() {
    let uses = |text: &str| -> Vec<String> {
        let shown = |access: &Access| format!("{} {:?}", access.root, access.path);
        parse(text).resources().map(shown).collect()
    };
    let field = |name: &str| format!("Field({name:?})");
    assert_eq!(
        uses("{{ db.outputs.host }}"),
        [format!("db [{}, {}]", field("outputs"), field("host"))]
    );
    assert_eq!(uses("{{ web[2].outputs }}"), [format!("web [Item(2), {}]", field("outputs"))]);
    assert_eq!(
        uses("{{ web[count.index].outputs.url }}"),
        [format!("web [SameItem, {}, {}]", field("outputs"), field("url"))]
    );
    assert_eq!(uses("{{ web[count.index - 1].outputs }}"), ["web [AnyItem]"]);
    assert_eq!(uses("{{ web|length }}"), ["web []"]);
    assert_eq!(uses("{{ 'db.outputs' ~ \"web\" }}"), Vec::<String>::new());
    assert_eq!(uses("{{ a.outputs.x if b.outputs.y else c['outputs'].z }}").len(), 3);
    assert_eq!(uses("{{ web|map(attribute='outputs.url') }}"), ["web []"]);
    assert_eq!(uses("{{ web[db.outputs.n].outputs }}").len(), 2);
}

#[test]
fn an_expression_ends_and_its_value_is_bounded() {
    let error = |text: &str| parse(text).evaluate(&scope()).unwrap_err();
    assert!(error("{{ param.long|replace('a', param.long) }}").contains("bytes"));
    assert!(error("{{ param.long ~ param.long }}").contains("bytes"));
    assert!(error("{{ [param.long, param.long] }}").contains("bytes"));
    assert!(error("{{ [param.long, param.long]|join }}").contains("bytes"));
    assert!(error("{{ param.long }}{{ param.long }}").contains("bytes"));
    let nested = format!("{{{{ {}1{} }}}}", "[".repeat(60), "]".repeat(60));
    assert!(error(&nested).contains("nested"));
}
