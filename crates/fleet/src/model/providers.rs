//! Clouds, regions and what each offers; and the clusters that a file declares.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::cluster::Provider;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Providers {
    pub supported_providers: Vec<Cloud>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub default: bool,
    #[serde(default)]
    pub regions: Vec<Region>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub default: bool,
    /// By instance type. A type that is not named is not offered; no types at all: every type is.
    pub supported_instance_type: Option<BTreeMap<String, Option<Offer>>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Offer {
    /// Units that the region may hold; none: no limit, 0: closed.
    pub limit: Option<i64>,
    /// Units that autoscaling keeps free.
    pub min_available_capacity_slack_streaming_units: i64,
}

impl Providers {
    pub fn cloud(&self, name: &str) -> Option<&Cloud> {
        self.supported_providers.iter().find(|cloud| cloud.name == name)
    }

    pub fn default_cloud(&self) -> Option<&Cloud> {
        let clouds = &self.supported_providers;
        clouds.iter().find(|cloud| cloud.default).or(clouds.first())
    }

    pub fn check(&self) -> Result<(), (String, String)> {
        if self.supported_providers.is_empty() {
            return Err(("supported_providers".into(), "must have at least one provider".into()));
        }
        Ok(())
    }
}

impl Cloud {
    pub fn title(&self) -> &str {
        if self.display_name.is_empty() { &self.name } else { &self.display_name }
    }

    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }

    pub fn default_region(&self) -> Option<&Region> {
        self.regions.iter().find(|region| region.default).or(self.regions.first())
    }

    pub fn region_names(&self) -> String {
        self.regions.iter().map(|region| region.name.as_str()).collect::<Vec<_>>().join(" ")
    }
}

impl Region {
    pub fn title(&self) -> &str {
        if self.display_name.is_empty() { &self.name } else { &self.display_name }
    }

    pub fn offer(&self, instance_type: &str) -> Option<Offer> {
        match &self.supported_instance_type {
            None => Some(Offer::default()),
            Some(types) => types.get(instance_type).map(|offer| offer.unwrap_or_default()),
        }
    }
}

/// A cluster in the clusters file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterEntry {
    #[serde(default)]
    pub name: String,
    pub cluster_id: String,
    #[serde(default)]
    pub cloud_provider: String,
    #[serde(default)]
    pub region: String,
    #[serde(default = "yes")]
    pub multi_az: bool,
    #[serde(default = "yes")]
    pub schedulable: bool,
    #[serde(alias = "kafka_instance_limit", alias = "dinosaur_instance_limit")]
    pub instance_limit: Option<i64>,
    /// Its initial phase: a cluster that exists already is not created.
    pub status: Option<String>,
    #[serde(default)]
    pub provider_type: Provider,
    #[serde(default)]
    pub cluster_dns: String,
    /// As in `standard,developer`; empty: all.
    #[serde(default)]
    pub supported_instance_type: String,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    #[serde(default)]
    pub clusters: Vec<ClusterEntry>,
}
