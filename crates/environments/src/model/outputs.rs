//! The outputs of resources as expressions see them: `db.outputs.host`, `web[1].outputs.url`,
//! `cache.primary.outputs.host`, and without the group's name within the group.

use serde_json::{Map, Value, json};

use super::refs::Address;

/// What [`super::input::Input::complete`] gets for a resource: its dependencies with their outputs.
/// `group` is the group that it is in. A list has null where it does not depend on an item.
pub fn scope<'a>(
    group: Option<&str>,
    dependencies: impl IntoIterator<Item = (&'a Address, &'a Map<String, Value>)>,
) -> Value {
    let mut scope = Map::new();
    for (address, outputs) in dependencies {
        let value = json!({ "outputs": outputs });
        match address.name.split_once('.') {
            Some((of, name)) if Some(of) == group => put(&mut scope, name, address.index, value),
            // Names within a group are those of the group: nothing else is seen from there.
            _ if group.is_some() => {}
            None => put(&mut scope, &address.name, address.index, value),
            Some((of, name)) => {
                let members = scope.entry(of).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(members) = members {
                    put(members, name, address.index, value);
                }
            }
        }
    }
    Value::Object(scope)
}

fn put(scope: &mut Map<String, Value>, name: &str, index: Option<u32>, value: Value) {
    let Some(index) = index else {
        scope.insert(name.to_owned(), value);
        return;
    };
    let index = index as usize;
    if let Value::Array(items) = scope.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
        if items.len() <= index {
            items.resize(index + 1, Value::Null);
        }
        items[index] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_the_names_of_expressions() {
        let names = ["db", "web[2]", "cache.primary", "cache.replica[0]"];
        let addresses: Vec<Address> =
            names.iter().map(|name| Address::parse(name).unwrap()).collect();
        let outputs: Vec<Map<String, Value>> =
            names.iter().map(|name| Map::from_iter([("of".to_owned(), json!(name))])).collect();
        let of = |name: &str| json!({"outputs": {"of": name}});
        assert_eq!(
            scope(None, addresses.iter().zip(&outputs)),
            json!({
                "db": of("db"),
                "web": [null, null, of("web[2]")],
                "cache": {"primary": of("cache.primary"), "replica": [of("cache.replica[0]")]},
            })
        );
        assert_eq!(
            scope(Some("cache"), addresses.iter().zip(&outputs)),
            json!({"primary": of("cache.primary"), "replica": [of("cache.replica[0]")]})
        );
    }
}
