//! DNS names of instances: CNAME records in a hosted zone of Route 53.
//!
//! Route 53 limits an account to five requests a second, and a zone to one change at a time. So a whole
//! instance is one batch, and throttling does not count as a failure.

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_sdk_route53::Client;
use aws_sdk_route53::config::retry::RetryConfig;
use aws_sdk_route53::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_route53::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_route53::operation::RequestId;
use aws_sdk_route53::types::{
    Change, ChangeAction, ChangeBatch, ChangeStatus, ResourceRecord, ResourceRecordSet, RrType,
};
use aws_smithy_http_client::{Builder, tls};
use kernel::outbound::{Delivery, Failure, Outbound, Target, Tls, TlsFiles, install_tls};
use kernel::secret::{SecretSource, SecretValue};
use kernel::telemetry::Secret;
use kernel::{Error, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::model::dns::Record;

pub const SYSTEM: &str = "Route 53";

#[async_trait]
pub trait Dns: Send + Sync + 'static {
    /// Creates or updates the records. Returns the change to wait for.
    async fn upsert(&self, records: &[Record]) -> Result<String>;
    /// Whether the change is on every name server.
    async fn in_sync(&self, change: &str) -> Result<bool>;
    /// Removes the records, whatever their targets. Missing records are not an error.
    async fn remove(&self, records: &[Record]) -> Result<()>;
    /// The existing records of these names: spelt as requested, targets in lower case and without the
    /// dot at the end.
    async fn find(&self, names: &[String]) -> Result<Vec<Record>>;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The hosted zone of the records. Empty: no DNS.
    pub zone_id: String,
    /// Instead of Amazon's own.
    pub endpoint: String,
    pub region: String,
    pub access_key_id: SecretSource,
    pub secret_access_key: SecretSource,
    /// How long resolvers may cache a record.
    pub ttl_s: u32,
    /// Requests are signed, so there is no client certificate.
    pub tls: Tls,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            zone_id: String::new(),
            endpoint: String::new(),
            region: "us-east-1".into(),
            access_key_id: SecretSource::default(),
            secret_access_key: SecretSource::default(),
            ttl_s: 300,
            tls: Tls::default(),
        }
    }
}

impl Config {
    pub fn is_on(&self) -> bool {
        !self.zone_id.is_empty()
    }
}

pub struct Route53 {
    settings: aws_sdk_route53::config::Builder,
    access_key_id: SecretValue,
    secret_access_key: SecretValue,
    tls: Option<TlsFiles>,
    /// The last client, and what it was built from.
    client: Mutex<Option<(Credential, Client)>>,
    target: Target,
    zone_id: String,
    ttl_s: u32,
}

/// What a client is built from; another one needs another client.
#[derive(Clone, PartialEq)]
struct Credential {
    access_key_id: Secret,
    secret_access_key: Secret,
    ca: Option<Vec<u8>>,
}

impl Route53 {
    pub fn new(config: &Config, outbound: &Outbound) -> Result<Route53> {
        if !config.is_on() {
            return Err(Error::invalid(
                "fleet.dns.zone_id",
                "is empty; give the id of a hosted zone",
            ));
        }
        let secret = |name: &str, source: &SecretSource| {
            let key = format!("fleet.dns.{name}");
            if source.is_empty() {
                return Err(Error::invalid(key, "is empty"));
            }
            outbound.secret(&key, source)
        };
        if config.tls.client_cert_file.is_some() || config.tls.client_key_file.is_some() {
            let why = "is not used: requests to Route 53 are signed with the access key";
            return Err(Error::invalid("fleet.dns.tls.client_cert_file", why));
        }
        let mut settings = aws_sdk_route53::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(config.region.clone()))
            // The outbound layer retries.
            .retry_config(RetryConfig::disabled());
        if !config.endpoint.is_empty() {
            settings = settings.endpoint_url(&config.endpoint);
        }
        Ok(Route53 {
            settings,
            access_key_id: secret("access_key_id", &config.access_key_id)?,
            secret_access_key: secret("secret_access_key", &config.secret_access_key)?,
            tls: outbound.tls("fleet.dns.tls", &config.tls)?,
            client: Mutex::default(),
            target: outbound.target(SYSTEM),
            zone_id: config.zone_id.trim_start_matches("/hostedzone/").to_owned(),
            ttl_s: config.ttl_s,
        })
    }

    /// The client with the current keys and certificates.
    fn client(&self) -> Result<Client> {
        let credential = Credential {
            access_key_id: self.access_key_id.current()?,
            secret_access_key: self.secret_access_key.current()?,
            ca: self.tls.as_ref().and_then(TlsFiles::ca),
        };
        let mut cached = self.client.lock();
        if let Some((_, client)) = cached.as_ref().filter(|(from, _)| *from == credential) {
            return Ok(client.clone());
        }
        install_tls();
        let mut trusted = tls::TrustStore::default();
        if let Some(ca) = &credential.ca {
            trusted = tls::TrustStore::empty().with_pem_certificate(ca.as_slice());
        }
        let context = tls::TlsContext::builder().with_trust_store(trusted).build();
        let context = context.map_err(|e| Error::internal("fleet.dns.tls", e))?;
        let http = Builder::new()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .tls_context(context)
            .build_https();
        let Credential { access_key_id, secret_access_key, .. } = &credential;
        let (id, key) = (access_key_id.expose(), secret_access_key.expose());
        let keys = Credentials::new(id, key, None, None, "configuration");
        let settings = self.settings.clone().credentials_provider(keys).http_client(http);
        let client = Client::from_conf(settings.build());
        *cached = Some((credential, client.clone()));
        Ok(client)
    }

    /// The sets of CNAMEs of a name: none or one, unless somebody added weights by hand.
    async fn sets(&self, name: &str) -> Result<Vec<ResourceRecordSet>> {
        let name = normalized(name);
        let found = self
            .target
            .call("list records", true, |_| async {
                let request =
                    self.client()?.list_resource_record_sets().hosted_zone_id(&self.zone_id);
                let request = request.start_record_name(&name).start_record_type(RrType::Cname);
                request.max_items(10).send().await.map_err(|error| self.failure(error))
            })
            .await?;
        let same =
            |set: &ResourceRecordSet| normalized(set.name()) == name && set.r#type == RrType::Cname;
        Ok(found.resource_record_sets.into_iter().take_while(same).collect())
    }

    /// Applies changes. Returns the id of the change.
    async fn change(&self, changes: &[Change]) -> Result<String> {
        let batch = ChangeBatch::builder().set_changes(Some(changes.to_vec())).build();
        let batch = batch.map_err(|e| Error::internal("a batch of DNS changes", e))?;
        let response = self
            .target
            .call("change records", true, |_| async {
                let request = self.client()?.change_resource_record_sets();
                let request = request.hosted_zone_id(&self.zone_id).change_batch(batch.clone());
                request.send().await.map_err(|error| self.failure(error))
            })
            .await?;
        let info = response.change_info.ok_or_else(|| incomplete("a response without a change"))?;
        Ok(info.id.trim_start_matches("/change/").to_owned())
    }

    fn upsertion(&self, record: &Record) -> Result<Change> {
        let value = ResourceRecord::builder().value(absolute(&record.target)).build();
        let set = value.and_then(|value| {
            ResourceRecordSet::builder()
                .name(absolute(&record.name))
                .r#type(RrType::Cname)
                .ttl(i64::from(self.ttl_s))
                .resource_records(value)
                .build()
        });
        set.and_then(|set| change(ChangeAction::Upsert, set))
            .map_err(|e| Error::internal("a DNS record", e))
    }

    /// One attempt to read and delete; `Conflict` if the zone changed in between.
    async fn remove_once(&self, names: &[&str]) -> Result<()> {
        let mut deletions = Vec::new();
        for name in names {
            for set in self.sets(name).await? {
                // A deletion must name exactly the existing set.
                let deletion = change(ChangeAction::Delete, set);
                deletions.push(deletion.map_err(|e| Error::internal("a DNS record", e))?);
            }
        }
        for batch in batches(&deletions, 1) {
            self.change(batch).await?;
        }
        Ok(())
    }

    fn failure<E>(&self, error: SdkError<E>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let SdkError::ServiceError(answered) = &error else {
            let text = DisplayErrorContext(&error).to_string();
            return Failure::new(Delivery::Unknown, Error::unavailable(SYSTEM, text));
        };
        let status = answered.raw().status().as_u16();
        let code = error.code().unwrap_or("no code");
        let message = error.message().unwrap_or("no message");
        let id = error.meta().request_id().unwrap_or("none");
        let text = format!("{code}: {message} (request {id})");
        let (delivery, error) = match code {
            "Throttling" | "ThrottlingException" | "PriorRequestNotComplete" => {
                (Delivery::Throttled, Error::unavailable(SYSTEM, format!("throttled: {text}")))
            }
            "InvalidChangeBatch" => {
                (Delivery::Answered, Error::Conflict(format!("{SYSTEM}: {text}")))
            }
            "NoSuchHostedZone" => {
                let help = format!("{text}; check fleet.dns.zone_id");
                (Delivery::Answered, Error::unavailable(SYSTEM, help))
            }
            "NoSuchChange" => {
                (Delivery::Answered, Error::NotFound(format!("{SYSTEM}: the change")))
            }
            _ if status == 429 => (Delivery::Throttled, Error::unavailable(SYSTEM, text)),
            _ if status >= 500 => (Delivery::Unknown, Error::unavailable(SYSTEM, text)),
            _ if status == 403 => {
                let help = format!("{text}; check fleet.dns.access_key_id and what it may do");
                (Delivery::Answered, Error::unavailable(SYSTEM, help))
            }
            _ => (Delivery::Answered, Error::internal(SYSTEM, text)),
        };
        Failure::new(delivery, error)
    }
}

#[async_trait]
impl Dns for Route53 {
    async fn upsert(&self, records: &[Record]) -> Result<String> {
        let mut changes = BTreeMap::new();
        for record in records {
            let name = normalized(&record.name);
            // Route 53 refuses a batch that names a record twice.
            match changes.insert(name, record) {
                Some(other) if normalized(&other.target) != normalized(&record.target) => {
                    let (name, one, two) = (&record.name, &other.target, &record.target);
                    let why = format!("{name} cannot have the targets {one} and {two}");
                    return Err(Error::internal("DNS records", why));
                }
                _ => {}
            }
        }
        let changes: Vec<Change> =
            changes.into_values().map(|record| self.upsertion(record)).collect::<Result<_>>()?;
        let mut ids = Vec::new();
        for batch in batches(&changes, 2) {
            ids.push(self.change(batch).await?);
        }
        Ok(ids.join(","))
    }

    async fn in_sync(&self, change: &str) -> Result<bool> {
        for id in change.split(',').filter(|id| !id.is_empty()) {
            let response = self.target.call("get change", true, |_| async {
                let request = self.client()?.get_change().id(id);
                request.send().await.map_err(|error| self.failure(error))
            });
            match response.await {
                Ok(response) => {
                    let info = response
                        .change_info
                        .ok_or_else(|| incomplete("a response without a change"))?;
                    if info.status != ChangeStatus::Insync {
                        return Ok(false);
                    }
                }
                // Route 53 drops changes some time after they are done.
                Err(Error::NotFound(_)) => {
                    tracing::warn!(
                        change = id,
                        "a DNS change is no longer known; taking it as in sync"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn remove(&self, records: &[Record]) -> Result<()> {
        let names: BTreeMap<String, &str> =
            records.iter().map(|record| (normalized(&record.name), record.name.as_str())).collect();
        let names: Vec<&str> = names.into_values().collect();
        for _ in 1..ATTEMPTS_MAX {
            match self.remove_once(&names).await {
                // Another client deleted or changed a record after it was read.
                Err(Error::Conflict(_)) => {}
                done => return done,
            }
        }
        self.remove_once(&names).await
    }

    async fn find(&self, names: &[String]) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for name in names {
            for set in self.sets(name).await? {
                for value in set.resource_records() {
                    let target = normalized(value.value());
                    found.push(Record { name: name.clone(), target });
                }
            }
        }
        Ok(found)
    }
}

/// How often a removal is tried while the zone changes.
const ATTEMPTS_MAX: u32 = 3;

fn change(
    action: ChangeAction,
    set: ResourceRecordSet,
) -> Result<Change, aws_sdk_route53::error::BuildError> {
    Change::builder().action(action).resource_record_set(set).build()
}

fn incomplete(what: &str) -> Error {
    Error::unavailable(SYSTEM, what)
}

/// Splits changes by the limits of a batch: a thousand values with 32,000 characters, where each of
/// an UPSERT counts twice.
fn batches(changes: &[Change], weight: usize) -> Vec<&[Change]> {
    const VALUES_MAX: usize = 1000;
    const CHARACTERS_MAX: usize = 32_000;
    let sizes = |change: &Change| {
        let values = change.resource_record_set.as_ref().map(ResourceRecordSet::resource_records);
        let values = values.unwrap_or_default();
        let characters: usize = values.iter().map(|value| value.value().len()).sum();
        (values.len().max(1) * weight, characters * weight)
    };
    let mut all = Vec::new();
    let (mut start, mut values, mut characters) = (0, 0, 0);
    for (i, change) in changes.iter().enumerate() {
        let (more_values, more_characters) = sizes(change);
        let full =
            values + more_values > VALUES_MAX || characters + more_characters > CHARACTERS_MAX;
        if full && i > start {
            all.push(&changes[start..i]);
            (start, values, characters) = (i, 0, 0);
        }
        (values, characters) = (values + more_values, characters + more_characters);
    }
    if start < changes.len() {
        all.push(&changes[start..]);
    }
    all
}

/// An absolute name, with the dot at its end.
fn absolute(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}

/// A name for comparison: lower case, no dot at the end, and Route 53's `\052` read as `*`.
fn normalized(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name.trim_end_matches('.');
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => text.push(char::from(code)),
            None => text.push('\\'),
        }
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text.push_str(rest);
    text.make_ascii_lowercase();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_the_notation_of_route_53() {
        for (left, right) in [
            ("Demo.Example.", "demo.example"),
            ("\\052.demo.example.", "*.demo.example"),
            ("a\\b.example", "a\\b.example"),
            ("a\\05", "A\\05."),
        ] {
            assert_eq!(normalized(left), normalized(right), "{left}");
        }
        assert_eq!(absolute("a.example"), "a.example.");
        assert_eq!(absolute("a.example."), "a.example.");
    }

    fn upserts(count: usize, target_length: usize) -> Vec<Change> {
        let set = |i: usize| {
            let value = ResourceRecord::builder().value("t".repeat(target_length)).build().unwrap();
            let set = ResourceRecordSet::builder().name(format!("n{i}")).r#type(RrType::Cname);
            change(ChangeAction::Upsert, set.resource_records(value).build().unwrap()).unwrap()
        };
        (0..count).map(set).collect()
    }

    #[test]
    fn a_batch_never_exceeds_the_limits_of_route_53() {
        let sizes = |count, length, weight| -> Vec<usize> {
            batches(&upserts(count, length), weight).iter().map(|batch| batch.len()).collect()
        };
        assert_eq!(sizes(0, 10, 2), Vec::<usize>::new());
        assert_eq!(sizes(500, 10, 2), [500]);
        assert_eq!(sizes(501, 10, 2), [500, 1]);
        assert_eq!(sizes(1001, 10, 1), [1000, 1]);
        assert_eq!(sizes(400, 160, 2), [100, 100, 100, 100]);
    }
}
