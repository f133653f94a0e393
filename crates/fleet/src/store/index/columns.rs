//! The searchable values of each instance, in few bytes: a search over a hundred thousand instances
//! reads a few megabytes in order, and compares numbers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::instance::Instance;
use crate::model::search::{Column, Condition, Filter};

/// The longest name that the API accepts.
const NAME_MAX: usize = 32;

/// Strings that many instances share, by number. There are few, and none is ever removed.
#[derive(Default)]
pub(super) struct StringTable {
    numbers: HashMap<Arc<str>, u32>,
    strings: Vec<Arc<str>>,
}

impl StringTable {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.strings.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}

/// One instance's columns.
pub(super) struct Columns {
    /// Truncated to `NAME_MAX`; longer names are ordered by their beginning.
    name: [u8; NAME_MAX],
    name_length: u8,
    /// The string of each other column, by the column's number.
    strings: [u32; Column::Name as usize],
}

impl Columns {
    pub fn new(instance: &Instance, strings: &mut StringTable) -> Columns {
        let spec = &instance.spec;
        let mut columns = Columns::only_name(&instance.name);
        for (column, text) in [
            (Column::Region, spec.region.as_str()),
            (Column::CloudProvider, &spec.cloud_provider),
            (Column::Status, instance.phase.label()),
            (Column::Owner, &instance.owner),
            (Column::ClusterId, &instance.status.cluster_id),
            (Column::InstanceType, &spec.instance_type),
        ] {
            columns.strings[column as usize] = strings.number(text);
        }
        columns
    }

    /// Only what the order by name needs.
    pub fn only_name(text: &str) -> Columns {
        let mut end = text.len().min(NAME_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = [0; NAME_MAX];
        name[..end].copy_from_slice(&text.as_bytes()[..end]);
        Columns { name, name_length: end as u8, strings: Default::default() }
    }

    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name[..usize::from(self.name_length)]).unwrap_or_default()
    }
}

/// A filter compiled for many rows: each string is tested once, rows only look up the result.
pub(super) enum CompiledFilter<'f> {
    Name(&'f Condition),
    Other(Column, Vec<bool>),
    And(Box<CompiledFilter<'f>>, Box<CompiledFilter<'f>>),
    Or(Box<CompiledFilter<'f>>, Box<CompiledFilter<'f>>),
}

impl<'f> CompiledFilter<'f> {
    pub fn compile(filter: &'f Filter, strings: &StringTable) -> CompiledFilter<'f> {
        let compiled = |filter: &'f Filter| Box::new(CompiledFilter::compile(filter, strings));
        match filter {
            Filter::Is(Column::Name, test) => CompiledFilter::Name(test),
            Filter::Is(column, test) => CompiledFilter::Other(
                *column,
                strings.strings.iter().map(|text| test.holds(text)).collect(),
            ),
            Filter::And(a, b) => CompiledFilter::And(compiled(a), compiled(b)),
            Filter::Or(a, b) => CompiledFilter::Or(compiled(a), compiled(b)),
        }
    }

    pub fn fits(&self, columns: &Columns) -> bool {
        match self {
            CompiledFilter::Name(test) => test.holds(columns.name()),
            CompiledFilter::Other(column, holds) => {
                let string = columns.strings[*column as usize] as usize;
                holds.get(string).copied().unwrap_or(false)
            }
            CompiledFilter::And(a, b) => a.fits(columns) && b.fits(columns),
            CompiledFilter::Or(a, b) => a.fits(columns) || b.fits(columns),
        }
    }
}
