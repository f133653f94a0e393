//! The terms on which a template is used: who may, how much, what it costs, who approves.

use kernel::Labels;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::fields::{Fields, amount, boolean, items, text, whole};
use crate::model::period::Period;
use crate::model::problem::Problems;

/// Who may use a template, and within which limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Empty: everyone who may create environments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Environments that an organisation may have of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How far in the future an environment's destruction may be planned. Such an environment must
    /// have a planned destruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_max: Option<Period>,
}

/// How many may be created within a time, as in `10/1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    pub count: u32,
    pub per: Period,
}

/// A hint, not a bill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub hourly: f64,
    /// Costs in several currencies are not added up.
    pub currency: String,
}

/// Whether a person must approve a plan before it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub required: bool,
    /// Environments with one of these tags need it too, such as `stage: production`.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub tags: Labels,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// How long an approval counts: the world moves on.
    pub expires: Period,
}

const APPROVAL_EXPIRES: Period = Period::seconds(24 * 3600);

impl Permissions {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Permissions> {
        let mut fields = Fields::new(path, value, problems)?;
        let permissions = Permissions {
            roles: fields.items("roles", text),
            count: fields.read("count", whole(0..=u32::MAX)),
            rate: fields.read("rate", Rate::read),
            ttl_max: fields.read("ttl_max", Period::read),
        };
        fields.finish();
        Some(permissions)
    }
}

impl Rate {
    fn parse(text: &str) -> Option<Rate> {
        let (count, per) = text.split_once('/')?;
        // `10/h` is what people write first.
        let per = Period::parse(per).or_else(|| Period::parse(&format!("1{per}")))?;
        Some(Rate { count: count.trim().parse().ok()?, per })
    }

    fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Rate> {
        let found = value.as_str().and_then(Rate::parse);
        if found.is_none() {
            problems.add(path, format!("`{value}` is not a rate"), "write it as `10/1h`");
        }
        found
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Rate, String> {
        Rate::parse(&text).ok_or_else(|| format!("`{text}` is not a rate"))
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        format!("{}/{}", rate.count, rate.per)
    }
}

impl Price {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Price> {
        let mut fields = Fields::new(path, value, problems)?;
        let hourly = fields.required("hourly", amount);
        let currency = fields.read("currency", text).unwrap_or_else(|| "USD".into());
        fields.finish();
        Some(Price { hourly: hourly?, currency })
    }
}

impl Approval {
    pub fn read(path: &str, value: Value, problems: &mut Problems) -> Option<Approval> {
        let mut fields = Fields::new(path, value, problems)?;
        let tags = fields.entries("tags", |_, path, value, problems| text(path, value, problems));
        let approval = Approval {
            required: fields.read("required", boolean).unwrap_or(tags.is_empty()),
            tags: tags.into_iter().collect(),
            roles: fields
                .read("roles", |path, value, problems| Some(items(path, value, problems, text)))
                .unwrap_or_default(),
            expires: fields.read("expires", Period::read).unwrap_or(APPROVAL_EXPIRES),
        };
        fields.finish();
        Some(approval)
    }

    /// Whether an environment with these tags needs it.
    pub fn is_needed(&self, tags: &Labels) -> bool {
        self.required || self.tags.iter().any(|(key, value)| tags.get(key) == Some(value))
    }
}
