//! The client of one API server.

use std::time::Duration;

use kernel::{Ambient, Result};

use crate::connect::connect;

/// The timeout of any request but a watch. The API server itself gives up after a minute, but a
/// request that took ten seconds is better sent again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    pub(crate) ambient: Ambient,
    pub(crate) timeout: Duration,
}

impl Client {
    pub fn new(config: kube::Config) -> Result<Client> {
        Ok(Client { kube: connect(config)?, ambient: Ambient::system(), timeout: REQUEST_TIMEOUT })
    }

    /// Sets the timeout of each request.
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout;
        self
    }
}
