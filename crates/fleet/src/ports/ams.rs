//! Quota, terms and accounts from an account management service: the HTTP APIs `accounts_mgmt/v1` and
//! `authorizations/v1`.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use kernel::outbound::{self, Delivery, Failure, Outbound, Target, Tls};
use kernel::secret::{SecretSource, SecretValue};
use kernel::telemetry;
use kernel::{Error, Result};
use parking_lot::Mutex;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use crate::model::quota::Quota;
use crate::ports::http::{base_url, below};

pub const SYSTEM: &str = "AMS";
const ACCOUNTS: &str = "api/accounts_mgmt/v1";
const TERMS: &str = "api/authorizations/v1/terms_review";
/// Of a response: a page of a hundred items is far smaller.
const BODY_BYTES_MAX: usize = 4 << 20;
const PAGE: usize = 100;
/// More pages than any organisation has; bounds the reading of a broken response.
const PAGES_MAX: usize = 50;
/// At this size the cache of organisations is cleared: they are quickly read again.
const ORGS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The name of its user.
    pub account: String,
    pub org: String,
    /// The instance; reserving for the same one again changes nothing.
    pub instance: String,
    pub product: String,
    pub resource: String,
    pub billing_model: String,
    pub billing_account: Option<String>,
    /// Such as `aws` or `rhm`; empty without a marketplace.
    pub marketplace: String,
    /// `single` or `multi`.
    pub az_type: String,
    pub units: i64,
    pub display_name: String,
    /// The subscription that the instance has and gives back for this one; empty if it has none.
    pub replaces: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: String,
    /// The external id, as in tokens.
    pub org: String,
    pub banned: bool,
}

#[async_trait]
pub trait Ams: Send + Sync + 'static {
    /// The organisation's quota of a product and billing model; none if it has no such quota.
    async fn quota(&self, org: &str, product: &str, billing_model: &str) -> Result<Option<Quota>>;
    /// Reserves quota; `Ok(None)` if it does not suffice. The same instance again gets the same
    /// subscription.
    async fn reserve(&self, reservation: &Reservation) -> Result<Option<String>>;
    async fn release(&self, subscription: &str) -> Result<()>;
    /// The URL of terms that were not accepted (empty if it is unknown); none if all were.
    async fn open_terms(&self, account: &str, site: &str, event: &str) -> Result<Option<String>>;
    async fn account(&self, username: &str) -> Result<Option<Account>>;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Up to, not including, `/api`. Empty: disabled.
    pub url: String,
    pub token: SecretSource,
    pub timeout_s: u64,
    pub tls: Tls,
}

impl Default for Config {
    fn default() -> Config {
        let (url, token, tls) = Default::default();
        Config { url, token, timeout_s: 20, tls }
    }
}

impl Config {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }
}

pub struct Http {
    target: Target,
    base: Url,
    token: SecretValue,
    /// Ids by external ids, which never change.
    orgs: Mutex<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct ListResponse<T> {
    #[serde(default)]
    total: usize,
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct Organization {
    id: String,
    #[serde(default)]
    external_id: String,
}

#[derive(Deserialize)]
struct AccountResponse {
    id: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    banned: bool,
    organization: Option<Organization>,
}

#[derive(Deserialize)]
struct Cost {
    #[serde(default)]
    allowed: i64,
    #[serde(default)]
    consumed: i64,
    #[serde(default)]
    related_resources: Vec<Related>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Related {
    product: String,
    billing_model: String,
}

#[derive(Deserialize)]
struct Subscription {
    id: String,
    #[serde(default)]
    cluster_id: String,
    #[serde(default)]
    status: String,
}

#[derive(Deserialize)]
struct Authorization {
    allowed: bool,
    subscription: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    id: String,
}

impl Http {
    pub fn new(config: &Config, outbound: &Outbound) -> Result<Http> {
        let base = base_url("fleet.ams.url", &config.url, "https://host")?;
        if config.token.is_empty() {
            return Err(Error::invalid("fleet.ams.token", "is empty"));
        }
        let timeout = Duration::from_secs(config.timeout_s);
        let tls = outbound.tls("fleet.ams.tls", &config.tls)?;
        Ok(Http {
            target: outbound.target(SYSTEM).with_timeout(timeout).with_tls(tls),
            base,
            token: outbound.secret("fleet.ams.token", &config.token)?,
            orgs: Mutex::default(),
        })
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder> {
        let root = path.iter().take(1).flat_map(|root| root.split('/'));
        let url = below(&self.base, root.chain(path.iter().skip(1).copied()));
        let token = self.token.current()?;
        Ok(self.target.request(method, url).bearer_auth(token.expose()))
    }

    /// Reads all items of a collection.
    async fn list<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for number in 1..=PAGES_MAX {
            let paging = [("page", number.to_string()), ("size", PAGE.to_string())];
            let request = self.request(Method::GET, path)?.query(query).query(&paging);
            let page: ListResponse<T> =
                read(operation, self.target.http(operation, request).await?).await?;
            let items = page.items.unwrap_or_default();
            let last = items.is_empty();
            all.extend(items);
            if last || all.len() >= page.total {
                break;
            }
        }
        Ok(all)
    }

    /// Finds the items with this value of a field.
    async fn search<T: DeserializeOwned>(
        &self,
        collection: &str,
        field: &str,
        value: &str,
    ) -> Result<Vec<T>> {
        // The API does not document how a quote is escaped, and no existing name has one.
        if value.is_empty() || value.contains(['\'', '"', '\\']) || has_control(value) {
            return Ok(Vec::new());
        }
        let search = format!("{field}='{value}'");
        self.list(collection, &[ACCOUNTS, collection], &[("search", &search)]).await
    }

    async fn org_id(&self, external_id: &str) -> Result<Option<String>> {
        if let Some(id) = self.orgs.lock().get(external_id) {
            return Ok(Some(id.clone()));
        }
        let found: Vec<Organization> =
            self.search("organizations", "external_id", external_id).await?;
        let Some(org) = found.into_iter().find(|org| org.external_id == external_id) else {
            return Ok(None);
        };
        let mut orgs = self.orgs.lock();
        if orgs.len() >= ORGS_MAX {
            orgs.clear();
        }
        orgs.insert(external_id.to_owned(), org.id.clone());
        Ok(Some(org.id))
    }

    async fn reserved(&self, reservation: &Reservation) -> Result<Option<String>> {
        let Reservation { instance, replaces, .. } = reservation;
        let found: Vec<Subscription> = self.search("subscriptions", "cluster_id", instance).await?;
        let holds = |one: &Subscription| {
            one.cluster_id == *instance
                && one.id != *replaces
                && !["Deprovisioned", "Archived"].contains(&&*one.status)
        };
        Ok(found.into_iter().find(holds).map(|one| one.id))
    }

    /// One attempt of a reservation. A refusal may have the status "too many requests": only the body
    /// distinguishes it from throttling, so it must be read before the status counts as an error.
    async fn authorize(&self, body: &Value) -> Result<Authorization, Failure> {
        let mut request =
            self.request(Method::POST, &[ACCOUNTS, "cluster_authorizations"])?.json(body);
        if let Some(trace) = telemetry::current_traceparent() {
            request = request.header("traceparent", trace);
        }
        let response = request.send().await.map_err(|error| {
            let delivery = if error.is_connect() { Delivery::NotSent } else { Delivery::Unknown };
            Failure::new(delivery, Error::unavailable(SYSTEM, error.without_url()))
        })?;
        let status = response.status();
        let body = outbound::body(response, BODY_BYTES_MAX).await?;
        if let Ok(authorization) = serde_json::from_slice::<Authorization>(&body)
            && (status.is_success() || !authorization.allowed)
        {
            return Ok(authorization);
        }
        let delivery = match status {
            StatusCode::TOO_MANY_REQUESTS => Delivery::Throttled,
            status if status.is_server_error() => Delivery::Unknown,
            _ => Delivery::Answered,
        };
        Err(Failure::new(delivery, refusal("reserve", status, &body)))
    }
}

#[async_trait]
impl Ams for Http {
    async fn quota(&self, org: &str, product: &str, billing_model: &str) -> Result<Option<Quota>> {
        let Some(id) = self.org_id(org).await? else { return Ok(None) };
        let path = [ACCOUNTS, "organizations", &id, "quota_cost"];
        let query = [("fetchRelatedResources", "true")];
        let costs: Vec<Cost> = self.list("quota_cost", &path, &query).await?;
        let matching = costs.iter().filter(|cost| {
            let mut related = cost.related_resources.iter();
            related.any(|one| one.product == product && covers(&one.billing_model, billing_model))
        });
        let sum = |total: Option<Quota>, cost: &Cost| {
            let Quota { allowed, consumed } = total.unwrap_or(Quota { allowed: 0, consumed: 0 });
            Some(Quota {
                allowed: allowed.saturating_add(cost.allowed),
                consumed: consumed.saturating_add(cost.consumed),
            })
        };
        Ok(matching.fold(None, sum))
    }

    async fn reserve(&self, reservation: &Reservation) -> Result<Option<String>> {
        // A response may have been lost, here or before a crash.
        if let Some(subscription) = self.reserved(reservation).await? {
            return Ok(Some(subscription));
        }
        let body = authorization_request(reservation);
        let authorization = self.target.call("reserve", false, |_| self.authorize(&body)).await?;
        match authorization {
            Authorization { allowed: false, .. } => Ok(None),
            Authorization { subscription: Some(subscription), .. } => Ok(Some(subscription.id)),
            _ => Err(Error::unavailable(SYSTEM, "the reservation has no subscription")),
        }
    }

    async fn release(&self, subscription: &str) -> Result<()> {
        if subscription.is_empty() {
            return Ok(());
        }
        let request = self.request(Method::DELETE, &[ACCOUNTS, "subscriptions", subscription])?;
        let response = self.target.http("release", request).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            status => {
                let body = outbound::body(response, BODY_BYTES_MAX).await?;
                Err(refusal("release", status, &body))
            }
        }
    }

    async fn open_terms(&self, account: &str, site: &str, event: &str) -> Result<Option<String>> {
        let body = json!({"account_username": account, "site_code": site, "event_code": event});
        let request = self.request(Method::POST, &[TERMS])?.json(&body);
        // The request is read-only, although it is a POST.
        let request = request.header("idempotency-key", "terms");
        let response = self.target.http("terms_review", request).await?;
        if response.status() == StatusCode::NOT_FOUND {
            // An unknown user has accepted nothing.
            return Ok(Some(String::new()));
        }
        let review: Value = read("terms_review", response).await?;
        match review["terms_required"].as_bool() {
            Some(required) => {
                Ok(required.then(|| review["redirect_url"].as_str().unwrap_or_default().to_owned()))
            }
            None => Err(Error::unavailable(SYSTEM, "the response lacks terms_required")),
        }
    }

    async fn account(&self, username: &str) -> Result<Option<Account>> {
        let found: Vec<AccountResponse> = self.search("accounts", "username", username).await?;
        let Some(found) = found.into_iter().find(|one| one.username == username) else {
            return Ok(None);
        };
        let org = match found.organization {
            Some(org) if org.external_id.is_empty() => {
                let request = self.request(Method::GET, &[ACCOUNTS, "organizations", &org.id])?;
                let response = self.target.http("organizations", request).await?;
                read::<Organization>("organizations", response).await?.external_id
            }
            Some(org) => org.external_id,
            None => String::new(),
        };
        Ok(Some(Account { id: found.id, org, banned: found.banned }))
    }
}

fn authorization_request(reservation: &Reservation) -> Value {
    let mut resource = json!({
        "resource_name": reservation.resource,
        "billing_model": charged(&reservation.billing_model, &reservation.marketplace),
        "availability_zone_type": reservation.az_type,
        "byoc": false,
        "count": reservation.units,
    });
    if let Some(account) = &reservation.billing_account {
        resource["billing_marketplace_account"] = json!(account);
    }
    json!({
        "account_username": reservation.account,
        "product_id": reservation.product,
        "cluster_id": reservation.instance,
        "external_cluster_id": reservation.instance,
        "display_name": reservation.display_name,
        "availability_zone": reservation.az_type,
        "managed": true,
        "disconnected": false,
        "byoc": false,
        "reserve": true,
        "resources": [resource],
    })
}

/// The billing model of a charge includes the marketplace, except the original one.
fn charged(billing_model: &str, marketplace: &str) -> String {
    match (billing_model, marketplace) {
        ("marketplace", "" | "rhm") => "marketplace".into(),
        ("marketplace", marketplace) => format!("marketplace-{marketplace}"),
        (other, _) => other.to_owned(),
    }
}

/// Whether a quota's billing model covers the requested one.
fn covers(offered: &str, asked: &str) -> bool {
    let of_marketplace = asked == "marketplace" && offered.starts_with("marketplace-");
    offered == asked || offered == "any" || of_marketplace
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

async fn read<T: DeserializeOwned>(operation: &str, response: Response) -> Result<T> {
    let status = response.status();
    let body = outbound::body(response, BODY_BYTES_MAX).await?;
    if !status.is_success() {
        return Err(refusal(operation, status, &body));
    }
    serde_json::from_slice(&body).map_err(|e| {
        Error::unavailable(SYSTEM, format!("the response of {operation} cannot be parsed: {e}"))
    })
}

/// The error of a failed request.
fn refusal(operation: &str, status: StatusCode, body: &[u8]) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let reason = body["reason"].as_str().unwrap_or("no reason given");
    let help = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; check fleet.ams.token and what it may do"
        }
        StatusCode::NOT_FOUND => "; check fleet.ams.url",
        _ => "",
    };
    Error::unavailable(SYSTEM, format!("{operation} returned {status}: {reason}{help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marketplace_is_part_of_the_charged_and_of_the_offered_billing_model() {
        assert_eq!(charged("standard", "aws"), "standard");
        assert_eq!(charged("marketplace", ""), "marketplace");
        assert_eq!(charged("marketplace", "rhm"), "marketplace");
        assert_eq!(charged("marketplace", "aws"), "marketplace-aws");
        for (offered, asked, expected) in [
            ("standard", "standard", true),
            ("any", "standard", true),
            ("marketplace-aws", "marketplace", true),
            ("marketplace", "marketplace", true),
            ("marketplace-aws", "marketplace-aws", true),
            ("marketplace-aws", "marketplace-gcp", false),
            ("marketplace", "standard", false),
            ("", "standard", false),
        ] {
            assert_eq!(covers(offered, asked), expected, "{offered} for {asked}");
        }
    }
}
