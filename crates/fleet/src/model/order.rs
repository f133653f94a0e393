//! The order of lists: `orderBy=name desc, created_at`.

use std::cmp::Ordering;

use kernel::Result;

use super::error_code::ErrorCode;
use super::instance::Instance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Host,
    CloudProvider,
    ClusterId,
    CreatedAt,
    Id,
    InstanceType,
    MultiAz,
    Name,
    Org,
    Owner,
    Reauthentication,
    Region,
    Status,
    UpdatedAt,
    Version,
}

const COLUMNS: [(&str, Column); 17] = [
    ("bootstrap_server_host", Column::Host),
    ("host", Column::Host),
    ("cloud_provider", Column::CloudProvider),
    ("cluster_id", Column::ClusterId),
    ("created_at", Column::CreatedAt),
    // All references have the same prefix before the id.
    ("href", Column::Id),
    ("id", Column::Id),
    ("instance_type", Column::InstanceType),
    ("multi_az", Column::MultiAz),
    ("name", Column::Name),
    ("organisation_id", Column::Org),
    ("owner", Column::Owner),
    ("reauthentication_enabled", Column::Reauthentication),
    ("region", Column::Region),
    ("status", Column::Status),
    ("updated_at", Column::UpdatedAt),
    ("version", Column::Version),
];

/// More columns than exist are redundant.
const COLUMNS_MAX: usize = 17;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order(Vec<(Column, bool)>);

impl Order {
    /// Parses the parameter; the default is by name.
    pub fn parse(text: &str) -> Result<Order> {
        let mut columns = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split_whitespace();
            let name = words.next().unwrap_or_default();
            let known = COLUMNS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let column = known.map(|(_, column)| *column).ok_or_else(|| {
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
            if words.next().is_some() || columns.len() == COLUMNS_MAX {
                return Err(ErrorCode::Malformed.error(format!("invalid order by clause '{part}'")));
            }
            columns.push((column, descending));
        }
        if columns.is_empty() {
            columns.push((Column::Name, false));
        }
        Ok(Order(columns))
    }

    /// Whether it is the order of the index.
    pub fn is_by_name(&self) -> bool {
        self.0 == [(Column::Name, false)]
    }

    /// Compares by the columns, then by id.
    pub fn compare(&self, a: &Instance, b: &Instance) -> Ordering {
        let by_columns = self.0.iter().map(|(column, descending)| {
            let order = compare(*column, a, b);
            if *descending { order.reverse() } else { order }
        });
        by_columns.fold(Ordering::Equal, Ordering::then).then_with(|| a.id.cmp(&b.id))
    }
}

fn compare(column: Column, a: &Instance, b: &Instance) -> Ordering {
    let by = |value: for<'a> fn(&'a Instance) -> &'a str| value(a).cmp(value(b));
    match column {
        Column::Host => by(|i| &i.status.host),
        Column::CloudProvider => by(|i| &i.spec.cloud_provider),
        Column::ClusterId => by(|i| &i.status.cluster_id),
        Column::CreatedAt => a.created_at.cmp(&b.created_at),
        Column::Id => by(|i| &i.id),
        Column::InstanceType => by(|i| &i.spec.instance_type),
        Column::MultiAz => a.spec.multi_az.cmp(&b.spec.multi_az),
        Column::Name => by(|i| &i.name),
        Column::Org => by(|i| &i.org),
        Column::Owner => by(|i| &i.owner),
        Column::Reauthentication => {
            let on = |i: &Instance| {
                i.spec.fields.get("reauthentication_enabled").and_then(|v| v.as_bool())
            };
            on(a).cmp(&on(b))
        }
        Column::Region => by(|i| &i.spec.region),
        Column::Status => by(|i| i.phase.label()),
        Column::UpdatedAt => a.updated_at.cmp(&b.updated_at),
        Column::Version => {
            let version = |i: &Instance| {
                let newest = i.status.versions.get(&i.kind).map(String::as_str).unwrap_or_default();
                super::cluster::version_order(newest)
            };
            version(a).cmp(&version(b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_case_insensitive_and_an_error_names_unknown_columns() {
        let order = Order::parse("Name DESC, created_at").unwrap();
        assert_eq!(order.0, [(Column::Name, true), (Column::CreatedAt, false)]);
        assert!(Order::parse("").unwrap().is_by_name());
        let why = |text| Order::parse(text).unwrap_err().to_string();
        assert_eq!(why("nope"), "unknown order by field 'nope'");
        assert!(why("name up").contains("'up'"));
        assert!(why("name asc desc").contains("name asc desc"));
        assert!(Order::parse("version, href desc").is_ok());
    }
}
