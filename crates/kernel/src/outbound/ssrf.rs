//! Restricts the addresses that users' URLs may resolve to: public ones, and those that the
//! configuration allows.
//!
//! A name is resolved when the user gives it, so that they see the mistake, and again when
//! connecting, by the same rule: the address that is dialled is the one that was checked, so a
//! name that changes in between (DNS rebinding) is refused.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::{Error, Result};

/// Resolves names.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

pub(super) fn system_lookup() -> Lookup {
    Arc::new(|host| {
        async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    })
}

/// Refuses addresses that only this server can reach.
#[derive(Clone)]
pub struct EgressPolicy {
    allowed: Arc<Vec<Allowed>>,
    lookup: Lookup,
}

#[derive(Debug, Clone, PartialEq)]
enum Allowed {
    Host(String),
    Network { base: u128, prefix: u32, v4: bool },
}

impl EgressPolicy {
    /// `allowed`: host names, addresses and networks such as `10.1.0.0/16`.
    pub fn new(allowed: &[String], lookup: Lookup) -> Result<EgressPolicy> {
        let allowed = allowed.iter().map(|text| Allowed::parse(text)).collect::<Result<_>>()?;
        Ok(EgressPolicy { allowed: Arc::new(allowed), lookup })
    }

    /// Validates a user's URL. `field` names the input.
    pub async fn check(&self, field: &str, text: &str) -> Result<Url> {
        let url = Url::parse(text)
            .map_err(|e| Error::invalid(field, format!("is not a URL ({e}); give http(s)://…")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(Error::invalid(field, "must begin with https:// or http://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::invalid(field, "must not hold a user or a password"));
        }
        self.check_host(&url).await.map_err(|reason| Error::invalid(field, reason))?;
        Ok(url)
    }

    /// Checks the URL's host.
    pub(super) async fn check_host(&self, url: &Url) -> Result<(), String> {
        match url.host() {
            Some(Host::Ipv4(ip)) => self.check_address(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => self.check_address(IpAddr::V6(ip)),
            Some(Host::Domain(name)) => self.resolve_name(name).await.map(|_| ()),
            None => Err("names no host".into()),
        }
    }

    async fn resolve_name(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let addresses = (self.lookup)(name.to_owned())
            .await
            .map_err(|e| format!("the host {name} cannot be found: {e}"))?;
        if addresses.is_empty() {
            return Err(format!("the host {name} has no address"));
        }
        let name_is_allowed = self
            .allowed
            .iter()
            .any(|one| matches!(one, Allowed::Host(host) if host.eq_ignore_ascii_case(name)));
        if !name_is_allowed {
            for address in &addresses {
                // One private address refuses the name: we do not choose which one is dialled.
                self.check_address(*address).map_err(|reason| format!("{name}: {reason}"))?;
            }
        }
        Ok(addresses)
    }

    fn check_address(&self, ip: IpAddr) -> Result<(), String> {
        if self.allowed.iter().any(|one| one.covers(ip)) {
            return Ok(());
        }
        match why_private(ip) {
            None => Ok(()),
            Some(what) => Err(format!(
                "leads to {ip}, {what}; only public addresses may be called, or those in outbound.allow_targets"
            )),
        }
    }
}

impl Resolve for EgressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.clone();
        async move {
            let addresses = egress.resolve_name(name.as_str()).await?;
            let sockets = addresses.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(sockets) as Addrs)
        }
        .boxed()
    }
}

impl Allowed {
    fn parse(text: &str) -> Result<Allowed> {
        let bad = || {
            let right = "is not a host name, an address or a network such as 10.1.0.0/16";
            Error::invalid("outbound.allow_targets", format!("`{text}` {right}"))
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().map_err(|_| bad())?)),
            None => (text, None),
        };
        match address.parse::<IpAddr>() {
            Ok(ip) => {
                let (base, bits) = number(ip);
                let prefix = prefix.unwrap_or(bits);
                (prefix <= bits)
                    .then_some(Allowed::Network { base, prefix, v4: ip.is_ipv4() })
                    .ok_or_else(bad)
            }
            Err(_) if prefix.is_none() && Host::parse(text).is_ok() => {
                Ok(Allowed::Host(text.to_owned()))
            }
            Err(_) => Err(bad()),
        }
    }

    fn covers(&self, ip: IpAddr) -> bool {
        match self {
            Allowed::Host(_) => false,
            Allowed::Network { base, prefix, v4 } => {
                let (number, bits) = number(ip);
                let below = bits - prefix.min(&bits);
                ip.is_ipv4() == *v4
                    && (number ^ base).checked_shr(below).is_none_or(|differ| differ == 0)
            }
        }
    }
}

fn number(ip: IpAddr) -> (u128, u32) {
    match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    }
}

/// Why users must not call an address; `None` if it is public.
pub fn why_private(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => refusal_v4(ip),
        IpAddr::V6(ip) => refusal_v6(ip),
    }
}

fn refusal_v4(ip: Ipv4Addr) -> Option<&'static str> {
    match ip.octets() {
        [0, ..] => Some("an unspecified address"),
        [127, ..] => Some("a loopback address"),
        // Azure's metadata service; other clouds use 169.254.
        [168, 63, 129, 16] => Some("a cloud's metadata address"),
        [169, 254, ..] => Some("a link-local address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            Some("a private address")
        }
        [192, 0, 0, _] | [192, 0, 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] => {
            Some("a reserved address")
        }
        [198, 51, 100, _] | [203, 0, 113, _] | [240..=255, ..] => Some("a reserved address"),
        [224..=239, ..] => Some("a multicast address"),
        _ => None,
    }
}

fn refusal_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if ip.is_unspecified() {
        return Some("an unspecified address");
    }
    if ip.is_loopback() {
        return Some("a loopback address");
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] => Some("an IPv4 address in disguise"),
        [0, 0, 0, 0, 0, 0, ..] => Some("an IPv4 address in disguise"),
        // NAT64, Teredo and 6to4 carry an IPv4 address that would escape the rules above.
        [0x64, 0xff9b, ..] | [0x2001, 0, ..] | [0x2002, ..] => Some("an IPv4 address in disguise"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("a private address"),
        [first, ..] if first & 0xff80 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
        // Only 2000::/3 is handed out for the public internet.
        [first, ..] if first & 0xe000 != 0x2000 => Some("a reserved address"),
        [0x2001, 0xdb8, ..] | [0x3fff, ..] => Some("a reserved address"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "ssrf_tests.rs"]
mod tests;
