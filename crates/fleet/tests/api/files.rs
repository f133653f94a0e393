//! The fleet's files, as the service had them whose answers were recorded.

use std::path::Path;

use fleet::Config;
use fleet::config::{Agent, Local, Trial};

const QUOTA: &str = "
registered_users_per_organisation:
  - id: 13640203
    any_user: true
    max_allowed_instances: 1000
    granted_quota:
      - instance_type_id: standard
        kafka_billing_models:
          - { id: standard }
          - { id: eval }
          - { id: enterprise }
  - id: 77777777
    any_user: true
    max_allowed_instances: 10
";

const PROVIDERS: &str = "
supported_providers:
  - name: aws
    display_name: Amazon Web Services
    default: true
    regions:
      - name: us-east-1
        display_name: US East, N. Virginia
        default: true
        supported_instance_type: { standard: {}, developer: {}, eval: {} }
      - name: eu-west-1
        display_name: EU, Ireland
        supported_instance_type: {}
  - name: gcp
    display_name: Google Cloud Platform
";

const CLUSTERS: &str = "
clusters:
  - name: c1
    cluster_id: c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1
    cloud_provider: aws
    region: us-east-1
    provider_type: agent
    cluster_dns: apps.c1.example.com
    status: ready
  - name: c2
    cluster_id: c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2
    cloud_provider: aws
    region: us-east-1
    provider_type: agent
    cluster_dns: apps.c2.example.com
    schedulable: false
    status: ready
";

pub fn config(dir: &Path) -> Config {
    let write = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        Some(file)
    };
    Config {
        quota_file: write("quota.yaml", QUOTA),
        providers_file: write("providers.yaml", PROVIDERS),
        clusters_file: write("clusters.yaml", CLUSTERS),
        trial: Trial { allowed: true, max: 1 },
        domain: "kas.c1.example.com".into(),
        browser_url: "http://localhost:8080".into(),
        local: Local { enabled: Some(false), ..Local::default() },
        agent: Agent {
            observability_repository: "quay.io/rhoas/observability-resources-mk".into(),
            observability_tag: "latest".into(),
            ..Agent::default()
        },
        ..Config::default()
    }
}
