//! Templates are read whole, and every mistake is reported with its line.

use super::*;
use crate::model::problem::Problems;
use crate::model::yaml;

const SHOP: &str = include_str!("shop.yaml");

fn read(text: &str) -> Result<Template, Problems> {
    let document =
        yaml::read(text).map_err(|problems| problems.located("shop.yaml", &Default::default()))?;
    let mut problems = Problems::default();
    let template = Template::read(document.value, &mut problems);
    problems.located("shop.yaml", &document.marks).unless_any(template)
}

#[test]
fn a_template_has_every_field_of_the_model() {
    let template = read(SHOP).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((template.name.as_str(), template.version.as_str()), ("shop", "1.4.0"));
    assert_eq!(template.commit.as_deref(), Some("8c4c95f"));
    assert_eq!(template.parameters.len(), 4);
    assert_eq!(template.groups["redis_pair"].resources.len(), 2);
    assert!(
        matches!(&template.resources["cache"], Member::Group(group) if group.group == "redis_pair")
    );
    let Member::Resource(web) = &template.resources["web"] else { panic!("a resource") };
    assert_eq!(web.count, Some(Count::Expression("{{ param.size }}".into())));
    assert_eq!(web.depends_on, ["external:billing", "network/vpc"]);
    assert_eq!(template.permissions.rate.map(String::from).as_deref(), Some("10/1h"));
    assert_eq!(template.actions["seed"].when, When::AfterOk);
    assert!(
        template
            .approval
            .as_ref()
            .unwrap()
            .is_needed(&Labels::from([("stage".into(), "production".into())]))
    );
    assert!(!template.approval.as_ref().unwrap().is_needed(&Labels::new()));
    // What is stored is what was read.
    let stored = serde_json::to_value(&template).unwrap();
    assert_eq!(serde_json::from_value::<Template>(stored.clone()).unwrap(), template);
    let mut problems = Problems::default();
    assert!(stored["groups"]["redis_pair"]["name"] == "redis_pair");
    let mut again = stored;
    again["groups"]["redis_pair"].as_object_mut().unwrap().shift_remove("name");
    assert_eq!(Template::read(again, &mut problems), template, "{problems}");
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_lines() {
    let text = "name: My Shop\n\
                parameters:\n  \
                  region: {type: strnig}\n\
                resources:\n  \
                  web-server:\n    \
                    executor: file\n    \
                    cuont: 3\n  \
                  count:\n    \
                    executor: file\n    \
                    count: many\n    \
                    timeout: soon\n  \
                  db: 7\n\
                permissions: {rate: often}\n\
                actions:\n  \
                  seed: {}\n";
    let problems = read(text).unwrap_err();
    let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "shop.yaml:1:1: name: `My Shop` is not a name; use up to 63 lower-case letters, digits and \
             `-`, beginning with a letter",
            "shop.yaml:1:1: version: is missing",
            "shop.yaml:3:12: parameters.region.type: `strnig` is not known; did you mean `string`?",
            "shop.yaml:5:3: resources.web-server: `web-server` is not a name; use up to 63 lower-case \
             letters, digits and `_`, beginning with a letter",
            "shop.yaml:7:5: resources.web-server.cuont: unknown field; did you mean `count`?",
            "shop.yaml:8:3: resources.count: `count` means something else in expressions; choose another \
             name",
            "shop.yaml:10:5: resources.count.count: `\"many\"` is not a count; write a whole number, or \
             an expression such as `{{ param.size }}`",
            "shop.yaml:11:5: resources.count.timeout: `\"soon\"` is not a length of time; write it as \
             `30m`, `8h` or `2d`",
            "shop.yaml:12:3: resources.db: expected an object, found a number",
            "shop.yaml:13:15: permissions.rate: `\"often\"` is not a rate; write it as `10/1h`",
            "shop.yaml:15:3: actions.seed: does nothing; give it a `command`, a `url`, or both",
        ]
    );
}

#[test]
fn hostile_files_are_refused() {
    assert!(read("[]").unwrap_err().to_string().contains("expected an object"));
    assert!(read("").unwrap_err().to_string().contains("expected an object, found null"));
    let many: String = (0..=1000).map(|i| format!("  p{i}: {{type: string}}\n")).collect();
    let many = format!("name: a\nversion: 1\nresources: {{}}\nparameters:\n{many}");
    assert!(read(&many).unwrap_err().to_string().contains("has 1001 entries"));
    let unknown: String = (0..1000).map(|i| format!("x{i}: 1\n")).collect();
    assert_eq!(read(&unknown).unwrap_err().len(), crate::model::problem::PROBLEMS_MAX);
}
