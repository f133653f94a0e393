//! What is installed, pinned. A new version is a new directory in the cache: change it here, and
//! the next `cargo xtask servers install` builds it next to the old one.

/// The oldest that the store supports; a newer one that is there is used.
pub const POSTGRES_MIN: u32 = 15;

/// With etcd, kwok and the rest as in assets/kubernetes/go.mod, which must name the same.
pub const KUBERNETES: &str = "1.36.3";
pub const CONSUL: &str = "1.22.7";
/// The client library that Consul's own command needs; the one that its go.mod names is too old.
pub const CONSUL_API: &str = "1.34.1";
pub const VAULT: &str = "1.21.2";
/// The oldest that will do, of Terraform as of OpenTofu.
pub const TERRAFORM_MIN: (u32, u32) = (1, 8);
/// Ours: to be raised when assets/terraform changes.
pub const TERRAFORM_PROVIDER: &str = "1.0.0";
/// For machines without Terraform.
pub const TOFU: &str = "1.12.6";

/// Route 53's API. From PyPI, with Flask, which serves it.
pub const MOTO: &str = "5.2.5";
pub const FLASK: &str = "3.1.3";
pub const FLASK_CORS: &str = "6.0.5";

/// From Maven.
pub const KAFKA: &str = "4.3.1";

/// The system's own; 3.10 is the oldest that was tried.
pub const RABBITMQ: &str = "3.10 or newer";

/// The system's own; the first that takes what is long past is 2.39.
pub const PROMETHEUS: &str = "2.39 or newer";

pub const KEYCLOAK: &str = "26.7.3";
