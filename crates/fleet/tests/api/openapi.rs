//! Each API's own document: as it is served, fit for code generators, and the same as the contract.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::contract::Contract;
use crate::differences::DOCUMENTS;
use crate::stage::{Api, DINOSAUR, KAFKA, Stage};

fn otherwise(what: &str) -> bool {
    DOCUMENTS.iter().any(|(of, _)| *of == what)
}

async fn served(stage: &Stage, api: Api) -> Value {
    let answer = stage.get("", &format!("{}/openapi", api.prefix)).await;
    assert_eq!(answer.status, 200);
    answer.body
}

/// Ours in the form of a contract, whose responses have no `content` and no description.
fn as_contract(document: &Value) -> Contract {
    let components = &document["components"];
    Contract(json!({ "public": {
        "paths": document["paths"], "schemas": components["schemas"],
        "parameters": components["parameters"],
    } }))
}

fn parameters(contract: &Contract, operation: &Value) -> Vec<(String, String, bool, Value)> {
    let all = operation["parameters"].as_array().cloned().unwrap_or_default();
    let of = |parameter: &Value| {
        let name = parameter["$ref"].as_str().and_then(|of| of.rsplit('/').next());
        let found = match name {
            Some(name) => &contract.0["public"]["parameters"][name],
            None => parameter,
        };
        let text = |field: &str| found[field].as_str().expect("text").to_owned();
        (text("name"), text("in"), found["required"] == true, found["schema"]["type"].clone())
    };
    let mut all: Vec<_> = all.iter().map(of).collect();
    all.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    all
}

/// Ours alone.
const WATCHES: [&str; 3] = ["watch", "wait", "after"];

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_say_what_the_contracts_say() {
    let stage = Stage::new().await;
    for api in [KAFKA, DINOSAUR] {
        let Some(contract) = Contract::of(api) else { return };
        let document = served(&stage, api).await;
        let ours = as_contract(&document);
        let mut wrong = Vec::new();
        let theirs = contract.operations("public");
        let key = |(path, method, _): &(String, String, Value)| (path.clone(), method.clone());
        let all: BTreeSet<_> = theirs.iter().map(key).collect();
        let mine: BTreeSet<_> = ours.operations("public").iter().map(key).collect();
        assert_eq!(mine, all, "the same paths and methods");
        for (path, method, of) in theirs {
            let id = of["operationId"].as_str().unwrap();
            let own = &document["paths"][&path][method.to_lowercase()];
            let mut same = |what: &str, a: &Value, b: &Value| {
                if a != b && !otherwise(&format!("{id} {what}")) {
                    wrong.push(format!("{id} {what}: {a}\n  ours: {b}"));
                }
            };
            same("id", &of["operationId"], &own["operationId"]);
            same("tags", &of["tags"], &own["tags"]);
            same("security", &of["security"], &own["security"]);
            let mut own_parameters = parameters(&ours, own);
            own_parameters.retain(|(name, ..)| !WATCHES.contains(&name.as_str()));
            same("parameters", &json!(parameters(&contract, &of)), &json!(own_parameters));
            let body = &of["requestBody"]["content"]["application/json"]["schema"];
            let own_body = &own["requestBody"]["content"]["application/json"]["schema"];
            same("body", body, own_body);
            for (status, response) in of["responses"].as_object().unwrap() {
                for (content, schema) in response.as_object().unwrap() {
                    let own = &own["responses"][status]["content"][content]["schema"];
                    let own = if own.is_null() { Value::Null } else { ours.plain("public", own) };
                    same(status, &contract.plain("public", schema), &own);
                }
            }
        }
        for (name, schema) in contract.0["public"]["schemas"].as_object().unwrap() {
            let own = &document["components"]["schemas"][name];
            if own.is_null() && !otherwise(name) {
                wrong.push(format!("there is no {name}"));
            }
            let differs = || contract.plain("public", schema) != ours.plain("public", own);
            if !own.is_null() && name != "VersionMetadata" && differs() {
                let (a, b) = (contract.plain("public", schema), ours.plain("public", own));
                wrong.push(format!("{name}: {a}\n  ours: {b}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}: {} differences\n{}",
            api.name,
            wrong.len(),
            wrong.join("\n")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_are_whole() {
    let stage = Stage::new().await;
    for api in [KAFKA, DINOSAUR] {
        let document = served(&stage, api).await;
        assert_eq!(document["openapi"], "3.0.3");
        assert!(document["info"]["version"].as_str().is_some_and(|version| !version.is_empty()));
        let text = document.to_string();
        for reference in text.split("\"#").skip(1).map(|t| &t[..t.find('"').unwrap()]) {
            assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
        }
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().expect("an id").to_owned();
                assert!(ids.insert(id.clone()), "{id} is there twice");
                let responses = operation["responses"].as_object().expect("responses");
                assert!(
                    responses.values().all(|of| of["description"].is_string()),
                    "{method} {path}"
                );
                let declared = parameters(&as_contract(&document), operation);
                let in_path = declared.iter().filter(|(_, place, ..)| place == "path");
                let mut named: Vec<&str> = path
                    .split('/')
                    .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                    .collect();
                named.sort_unstable();
                assert_eq!(in_path.map(|p| p.0.as_str()).collect::<Vec<_>>(), named, "{path}");
            }
        }
        assert!(ids.len() > 10, "{ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_are_offered_on_the_page_that_shows_documents() {
    let stage = Stage::new().await;
    let start = stage.get("", "/api/v1/doc/swagger-initializer.js").await;
    for api in [KAFKA, DINOSAUR] {
        assert!(start.text.contains(&format!("{}/openapi", api.prefix)), "{}", start.text);
    }
}
