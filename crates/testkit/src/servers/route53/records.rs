//! The rules of a zone, as the real Route 53 enforces them: a batch of changes is applied whole or
//! not at all, and each refusal names the record.

use std::collections::BTreeMap;

/// A set of records under one name and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSet {
    pub name: String,
    pub kind: String,
    /// Several sets may share name and type if each says which it is.
    pub identifier: String,
    pub ttl: String,
    pub values: Vec<String>,
    /// The whole of it as it was written, for what this model does not look into (alias targets,
    /// weights, regions).
    pub xml: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create,
    Upsert,
    Delete,
}

#[derive(Debug, Clone)]
pub struct Zone {
    pub name: String,
    /// In the order in which they are listed.
    records: BTreeMap<Place, RecordSet>,
}

/// Names are listed by their labels from the right, then by type.
type Place = (Vec<String>, String, String);

const CHANGES_MAX: usize = 1000;

/// Lower case, with the dot at its end.
pub fn normal(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.').to_lowercase())
}

fn place(set: &RecordSet) -> Place {
    let labels = set.name.trim_end_matches('.').rsplit('.').map(str::to_owned).collect();
    (labels, set.kind.clone(), set.identifier.clone())
}

impl Zone {
    /// With the records that every zone has.
    pub fn new(name: &str) -> Zone {
        let name = normal(name);
        let mut zone = Zone { name: name.clone(), records: BTreeMap::new() };
        let mail = "ns.example. hostmaster.example. 1 7200 900 1209600 86400";
        for (kind, ttl, value) in [("NS", "172800", "ns.example."), ("SOA", "900", mail)] {
            let set = RecordSet {
                name: name.clone(),
                kind: kind.into(),
                identifier: String::new(),
                ttl: ttl.into(),
                values: vec![value.into()],
                xml: String::new(),
            };
            zone.records.insert(place(&set), set);
        }
        zone
    }

    pub fn records(&self) -> impl Iterator<Item = &RecordSet> {
        self.records.values()
    }

    pub fn has_only_its_own(&self) -> bool {
        self.records.values().all(|set| self.is_own(set))
    }

    fn is_own(&self, set: &RecordSet) -> bool {
        set.name == self.name && (set.kind == "NS" || set.kind == "SOA")
    }

    /// All of them, or none and everything that is wrong with them.
    pub fn change(&mut self, changes: Vec<(Action, RecordSet)>) -> Result<(), Vec<String>> {
        if changes.is_empty() || changes.len() > CHANGES_MAX {
            return Err(vec![format!(
                "Number of records limit of {CHANGES_MAX} exceeded or no changes given."
            )]);
        }
        let mut after = self.clone();
        let refused: Vec<String> =
            changes.into_iter().filter_map(|(action, set)| after.one(action, set).err()).collect();
        if refused.is_empty() {
            *self = after;
            Ok(())
        } else {
            Err(refused)
        }
    }

    fn one(&mut self, action: Action, set: RecordSet) -> Result<(), String> {
        let shown = format!("[name='{}', type='{}']", set.name, set.kind);
        let RecordSet { name, kind, .. } = &set;
        if *name != self.name && !name.ends_with(&format!(".{}", self.name)) {
            return Err(format!(
                "RRSet with DNS name {name} is not permitted in zone {}",
                self.name
            ));
        }
        let here = self.records.get(&place(&set));
        if action == Action::Delete {
            let there = here.ok_or_else(|| {
                format!("Tried to delete resource record set {shown} but it was not found")
            })?;
            let mut both = [there.values.clone(), set.values.clone()];
            both.iter_mut().for_each(|values| values.sort());
            if both[0] != both[1] || there.ttl != set.ttl {
                return Err(format!(
                    "Tried to delete resource record set {shown} but the values provided do not \
                     match the current values"
                ));
            }
            if self.is_own(there) {
                return Err(format!("A HostedZone must contain its own {kind} record."));
            }
            self.records.remove(&place(&set));
            return Ok(());
        }
        if action == Action::Create && here.is_some() {
            return Err(format!(
                "Tried to create resource record set {shown} but it already exists"
            ));
        }
        let conflicts = self
            .records
            .values()
            .any(|other| other.name == *name && ((kind == "CNAME") != (other.kind == "CNAME")));
        if conflicts {
            return Err(format!(
                "RRSet of type {kind} with DNS name {name} is not permitted as it conflicts with \
                 other records with the same DNS name in zone {}",
                self.name
            ));
        }
        if kind == "A"
            && set.values.iter().any(|value| value.parse::<std::net::Ipv4Addr>().is_err())
        {
            return Err(format!("Invalid Resource Record: ARRDATA is not valid in {shown}"));
        }
        self.records.insert(place(&set), set);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, kind: &str, value: &str) -> RecordSet {
        RecordSet {
            name: normal(name),
            kind: kind.into(),
            identifier: String::new(),
            ttl: "60".into(),
            values: vec![value.into()],
            xml: String::new(),
        }
    }

    #[test]
    fn a_batch_is_applied_whole_or_not_at_all() {
        let mut zone = Zone::new("example");
        let good = (Action::Create, set("a.example", "A", "1.2.3.4"));
        let bad = (Action::Delete, set("b.example", "A", "1.2.3.4"));
        let refused = zone.change(vec![good.clone(), bad]).unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(zone.has_only_its_own());
        zone.change(vec![good.clone()]).unwrap();
        assert!(zone.change(vec![good.clone()]).unwrap_err()[0].contains("already exists"));
        zone.change(vec![(Action::Upsert, good.1)]).unwrap();
    }

    #[test]
    fn what_the_real_one_refuses_is_refused() {
        let mut zone = Zone::new("example");
        zone.change(vec![(Action::Create, set("a.example", "A", "1.2.3.4"))]).unwrap();
        let cases = [
            (Action::Create, set("a.example", "CNAME", "b."), "conflicts with"),
            (Action::Create, set("example", "CNAME", "b."), "conflicts with"),
            (Action::Create, set("a.elsewhere", "A", "1.2.3.4"), "is not permitted in zone"),
            (Action::Create, set("notexample", "A", "1.2.3.4"), "is not permitted in zone"),
            (Action::Delete, set("a.example", "A", "4.3.2.1"), "do not match"),
            (Action::Delete, set("b.example", "A", "1.2.3.4"), "was not found"),
            (Action::Create, set("c.example", "A", "not an address"), "not valid"),
        ];
        for (action, set, wanted) in cases {
            let refused = zone.change(vec![(action, set)]).unwrap_err();
            assert!(refused[0].contains(wanted), "{refused:?}");
        }
        let own: Vec<RecordSet> = zone.records().filter(|set| zone.is_own(set)).cloned().collect();
        for set in own {
            assert!(zone.change(vec![(Action::Delete, set)]).is_err(), "a zone keeps its own");
        }
    }
}
