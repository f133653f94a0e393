//! Finds what a name in an expression or in `depends_on` means, and says what was probably meant if
//! it means nothing.

use std::collections::HashMap;

use super::{Edge, GroupPart, Number, Part, Which};
use crate::model::expression::{Access, Segment};
use crate::model::problem::{Problems, suggestion};
use crate::model::refs::Address;

/// All names of a template.
pub struct Names {
    /// `web` and `cache.primary`.
    parts: HashMap<String, u32>,
    /// The parts of each group.
    groups: HashMap<String, Vec<u32>>,
    /// The full names of what is in groups, by the name there.
    members: HashMap<String, Vec<String>>,
    group_names: Vec<String>,
}

impl Names {
    pub fn new(parts: &[Part], groups: &[GroupPart]) -> Names {
        let mut names = Names {
            parts: HashMap::new(),
            groups: groups.iter().map(|group| (group.name.clone(), Vec::new())).collect(),
            members: HashMap::new(),
            group_names: groups.iter().map(|group| group.name.clone()).collect(),
        };
        for (number, part) in parts.iter().enumerate() {
            names.parts.insert(part.name.clone(), number as u32);
            if let Some((group, member)) = part.name.split_once('.') {
                names.groups.entry(group.into()).or_default().push(number as u32);
                names.members.entry(member.into()).or_default().push(part.name.clone());
            }
        }
        names
    }

    /// What an expression uses. Within a group, names are those of the group.
    pub fn access(
        &self,
        parts: &[Part],
        user: Option<&Part>,
        path: &str,
        access: &Access,
        problems: &mut Problems,
    ) -> Option<Edge> {
        let within = user.and_then(|part| part.group);
        let (to, rest) = match (within, access.path.as_slice()) {
            (None, [Segment::Field(member), rest @ ..])
                if self.groups.contains_key(&access.root) =>
            {
                let name = format!("{}.{member}", access.root);
                (self.find(&name, path, problems)?, rest)
            }
            (None, _) if self.groups.contains_key(&access.root) => {
                let wrong = format!("`{}` is a group", access.root);
                let right = format!("name one of its resources, as in `{}.name`", access.root);
                problems.add(path, wrong, right);
                return None;
            }
            (_, rest) => (self.local(within, &access.root, path, problems)?, rest),
        };
        let which = which(&parts[to as usize], rest, path, problems)?;
        if which == Which::Same && user.is_none_or(|user| matches!(user.count, Number::One)) {
            return None;
        }
        Some(Edge { to, which })
    }

    /// What `depends_on` names. A group is all of its resources.
    pub fn address(
        &self,
        parts: &[Part],
        within: Option<u32>,
        path: &str,
        address: &Address,
        problems: &mut Problems,
    ) -> Vec<Edge> {
        if within.is_none()
            && address.index.is_none()
            && let Some(members) = self.groups.get(&address.name)
        {
            return members.iter().map(|to| Edge { to: *to, which: Which::All }).collect();
        }
        let found = match within {
            None => self.find(&address.name, path, problems),
            Some(_) => self.local(within, &address.name, path, problems),
        };
        let Some(to) = found else { return Vec::new() };
        let which = match (address.index, &parts[to as usize].count) {
            (None, _) => Which::All,
            (Some(index), Number::Fixed(_) | Number::Expression(_)) => Which::Item(index),
            (Some(_), Number::One) => {
                let wrong = format!("`{}` has no count", address.name);
                problems.add(path, wrong, format!("write `{}`", address.name));
                return Vec::new();
            }
        };
        vec![Edge { to, which }]
    }

    /// A name as it is written within a group, or outside of all.
    fn local(
        &self,
        within: Option<u32>,
        name: &str,
        path: &str,
        problems: &mut Problems,
    ) -> Option<u32> {
        let Some(group) = within else { return self.find(name, path, problems) };
        let group = &self.group_names[group as usize];
        if let Some(found) = self.parts.get(&format!("{group}.{name}")) {
            return Some(*found);
        }
        let known = self.groups[group].iter();
        let names: Vec<&str> = self
            .parts
            .iter()
            .filter(|(_, number)| known.clone().any(|known| known == *number))
            .filter_map(|(name, _)| name.split_once('.').map(|(_, member)| member))
            .collect();
        let (wrong, right) = if self.parts.contains_key(name) || self.groups.contains_key(name) {
            let wrong = format!("`{name}` is outside of the group");
            (
                wrong,
                "a group knows only its own resources; let it depend on it where it is used".into(),
            )
        } else {
            (format!("there is no resource `{name}` in the group"), suggestion(name, names))
        };
        problems.add(path, wrong, right);
        None
    }

    fn find(&self, name: &str, path: &str, problems: &mut Problems) -> Option<u32> {
        if let Some(found) = self.parts.get(name) {
            return Some(*found);
        }
        let right = match self.members.get(name).map(Vec::as_slice) {
            Some([only]) => format!("did you mean `{only}`?"),
            Some(several) => {
                let several: Vec<String> = several.iter().map(|name| format!("`{name}`")).collect();
                problems.add(
                    path,
                    format!("`{name}` is ambiguous"),
                    format!("write {}", several.join(" or ")),
                );
                return None;
            }
            None => {
                let known = self.parts.keys().chain(self.groups.keys()).map(String::as_str);
                suggestion(name, known)
            }
        };
        problems.add(path, format!("there is no resource `{name}`"), right);
        None
    }
}

/// Which of the resources of a part, from the path after its name.
fn which(
    part: &Part,
    path_after: &[Segment],
    path: &str,
    problems: &mut Problems,
) -> Option<Which> {
    let name = &part.name;
    let counted = !matches!(part.count, Number::One);
    let (which, rest) = match (counted, path_after) {
        (true, [Segment::Item(index), rest @ ..]) => (Which::Item(*index), rest),
        (true, [Segment::SameItem, rest @ ..]) => (Which::Same, rest),
        (true, [Segment::AnyItem, ..]) | (_, []) => return Some(Which::All),
        (true, [Segment::Field(field), ..]) => {
            let wrong = format!("`{name}` has a count, so `.{field}` is not of one");
            let right = format!("write `{name}[0].{field}`, or `{name}|map(attribute='{field}')`");
            problems.add(path, wrong, right);
            return None;
        }
        (false, rest @ [Segment::Field(_), ..]) => (Which::All, rest),
        (false, [_, ..]) => {
            problems.add(path, format!("`{name}` has no count"), format!("write `{name}.outputs`"));
            return None;
        }
    };
    match rest.first() {
        None => Some(which),
        Some(Segment::Field(field)) if field == "outputs" => Some(which),
        Some(_) => {
            let wrong =
                format!("a resource has nothing but `outputs`, as in `{name}.outputs.host`");
            problems.add(path, wrong, "");
            None
        }
    }
}
