//! Route 53: moto, which is the same for every client of Amazon's and forgives much; and
//! [`strict::Strict`], which refuses what the real one refuses.

mod records;
pub mod strict;

use aws_sdk_route53::Client;
use aws_sdk_route53::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::{Builder, tls};

use super::{Instance, unique};

pub struct Route53 {
    pub server: Instance,
}

/// The shared one; `None` skips the test.
pub fn route53() -> Option<Route53> {
    Instance::shared("route53").map(|server| Route53 { server })
}

impl Route53 {
    pub async fn private(&self) -> Route53 {
        Route53 { server: self.server.private(&[]).await }
    }

    pub fn endpoint(&self) -> &str {
        self.server.get("")
    }

    pub fn client(&self) -> Client {
        client(self.endpoint())
    }

    pub async fn zone(&self) -> Zone {
        zone(&self.client()).await
    }
}

/// A zone that no other test has.
pub struct Zone {
    pub id: String,
    /// As in `t1.example.`, with the dot at its end.
    pub name: String,
}

pub async fn zone(client: &Client) -> Zone {
    let name = format!("{}.example.", unique());
    let made = client.create_hosted_zone().name(&name).caller_reference(unique()).send().await;
    let made = made.expect("a zone is made");
    let id = made.hosted_zone().expect("it answers with the zone").id().to_owned();
    Zone { id: id.trim_start_matches("/hostedzone/").to_owned(), name }
}

/// Amazon's own client, for an endpoint of ours.
pub fn client(endpoint: &str) -> Client {
    let http = Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https();
    let config = aws_sdk_route53::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(endpoint)
        .http_client(http);
    Client::from_conf(config.build())
}
