//! The order of lists: `orderBy=name desc, created_at`.

use std::cmp::Ordering;

use kernel::Result;
use serde_json::Value;

use super::cluster::version_order;
use super::error_code::ErrorCode;
use super::instance::Instance;

/// A column that lists can be ordered by.
#[derive(Debug)]
struct Column {
    name: &'static str,
    compare: fn(&Instance, &Instance) -> Ordering,
}

const fn column(name: &'static str, compare: fn(&Instance, &Instance) -> Ordering) -> Column {
    Column { name, compare }
}

static COLUMNS: [Column; 17] = [
    column("bootstrap_server_host", |a, b| a.status.host.cmp(&b.status.host)),
    column("host", |a, b| a.status.host.cmp(&b.status.host)),
    column("cloud_provider", |a, b| a.spec.cloud_provider.cmp(&b.spec.cloud_provider)),
    column("cluster_id", |a, b| a.status.cluster_id.cmp(&b.status.cluster_id)),
    column("created_at", |a, b| a.created_at.cmp(&b.created_at)),
    // All references have the same prefix before the id.
    column("href", |a, b| a.id.cmp(&b.id)),
    column("id", |a, b| a.id.cmp(&b.id)),
    column("instance_type", |a, b| a.spec.instance_type.cmp(&b.spec.instance_type)),
    column("multi_az", |a, b| a.spec.multi_az.cmp(&b.spec.multi_az)),
    column("name", |a, b| a.name.cmp(&b.name)),
    column("organisation_id", |a, b| a.org.cmp(&b.org)),
    column("owner", |a, b| a.owner.cmp(&b.owner)),
    column("reauthentication_enabled", |a, b| reauthenticates(a).cmp(&reauthenticates(b))),
    column("region", |a, b| a.spec.region.cmp(&b.spec.region)),
    column("status", |a, b| a.phase.label().cmp(b.phase.label())),
    column("updated_at", |a, b| a.updated_at.cmp(&b.updated_at)),
    column("version", |a, b| version(a).cmp(&version(b))),
];

fn reauthenticates(instance: &Instance) -> Option<bool> {
    instance.spec.fields.get("reauthentication_enabled").and_then(Value::as_bool)
}

fn version(instance: &Instance) -> Vec<(u64, String)> {
    let newest = instance.status.versions.get(&instance.kind);
    version_order(newest.map(String::as_str).unwrap_or_default())
}

/// Columns, each with whether it is descending.
#[derive(Debug)]
pub struct Order(Vec<(&'static Column, bool)>);

impl Order {
    /// Parses the parameter; the default is by name.
    pub fn parse(text: &str) -> Result<Order> {
        let mut columns = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split_whitespace();
            let name = words.next().unwrap_or_default();
            let column = find(name).ok_or_else(|| {
                ErrorCode::Malformed
                    .error(format!("unknown order by field '{}'", name.to_lowercase()))
            })?;
            let descending = match words.next().map(str::to_lowercase).as_deref() {
                None | Some("asc") => false,
                Some("desc") => true,
                Some(other) => {
                    return Err(ErrorCode::Malformed.error(format!(
                        "invalid ordering direction '{other}' for '{name}'; it is asc or desc"
                    )));
                }
            };
            // More columns than exist are redundant.
            if words.next().is_some() || columns.len() == COLUMNS.len() {
                return Err(ErrorCode::Malformed.error(format!("invalid order by clause '{part}'")));
            }
            columns.push((column, descending));
        }
        if columns.is_empty() {
            columns.extend(find("name").map(|name| (name, false)));
        }
        Ok(Order(columns))
    }

    /// Whether it is the order of the index.
    pub fn is_by_name(&self) -> bool {
        matches!(self.0[..], [(column, false)] if column.name == "name")
    }

    /// Compares by the columns, then by id.
    pub fn compare(&self, a: &Instance, b: &Instance) -> Ordering {
        let by_columns = self.0.iter().map(|(column, descending)| {
            let order = (column.compare)(a, b);
            if *descending { order.reverse() } else { order }
        });
        by_columns.fold(Ordering::Equal, Ordering::then).then_with(|| a.id.cmp(&b.id))
    }
}

fn find(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_case_insensitive_and_an_error_names_unknown_columns() {
        let order = Order::parse("Name DESC, created_at").unwrap();
        let names: Vec<_> = order.0.iter().map(|(column, down)| (column.name, *down)).collect();
        assert_eq!(names, [("name", true), ("created_at", false)]);
        assert!(Order::parse("").unwrap().is_by_name());
        let why = |text| Order::parse(text).unwrap_err().to_string();
        assert_eq!(why("nope"), "unknown order by field 'nope'");
        assert!(why("name up").contains("'up'"));
        assert!(why("name asc desc").contains("name asc desc"));
        assert!(Order::parse("version, href desc").is_ok());
    }
}
