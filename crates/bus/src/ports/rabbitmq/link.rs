//! One connection. It is never repaired: when it is lost, its owner opens another.

use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kernel::{Error, Result};
use lapin::tcp::{AMQPUriTcpExt as _, AsyncTcpStream, RustlsConnector, TLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Channel, Connection, ConnectionProperties, ConnectionStatus, Event};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{CONNECT_TIMEOUT, Login};

/// For an orderly end. A broker with an alarm does not answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the state is compared, in case that an event is missed.
const STATE_POLL: Duration = Duration::from_millis(500);

/// Why the broker takes no messages now: an alarm for memory or disk.
pub type Blocked = watch::Sender<Option<String>>;

/// Ends the connection at once when it is dropped; what was not sent by then never is.
pub struct Link {
    what: String,
    connection: Connection,
    _socket: Socket,
    blocked: Blocked,
    lost: watch::Receiver<Option<String>>,
    _watch: JoinSet<()>,
}

/// A second handle of the socket, which ends it when it is dropped. The library keeps the first to
/// itself, with a thread that lives until the connection ends in order; that may be never while the
/// broker is silent.
#[derive(Default)]
struct Socket(Arc<Mutex<Option<std::net::TcpStream>>>);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(socket) = self.0.lock().take() {
            // Fails if it is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Link {
    pub(super) async fn connect(
        what: String,
        owner: &str,
        uri: AMQPUri,
        login: Login,
        tls: Option<RustlsConnector>,
        blocked: Blocked,
    ) -> lapin::Result<Link> {
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("mainstay {owner}").into())
            .with_auth_provider(login);
        let socket = Socket::default();
        let kept = Arc::downgrade(&socket.0);
        let runtime = lapin::runtime::default_runtime()?;
        let connecting = Connection::connector(
            uri,
            runtime,
            async move |uri: AMQPUri, runtime| {
                silence_thread();
                // TLS is ours: the library would add our authorities to the system's.
                let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri };
                let connecting = async {
                    let stream =
                        plain.connect_with_config_async(TLSConfig::default(), &runtime).await?;
                    if let AsyncTcpStream::Plain(stream) = &stream {
                        let second = stream.get_ref().as_fd().try_clone_to_owned()?;
                        // The caller may have given up meanwhile.
                        let kept = kept.upgrade().ok_or(std::io::ErrorKind::ConnectionAborted)?;
                        *kept.lock() = Some(second.into());
                    }
                    match &tls {
                        Some(tls) => stream.into_rustls(tls, &plain.authority.host).await,
                        None => Ok(stream),
                    }
                };
                let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
                Ok(connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?)
            },
            properties,
        );
        let connection = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected?,
            Err(_) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        };
        let (sender, lost) = watch::channel(None);
        let watched = Watched {
            broker: what.clone(),
            status: connection.status().clone(),
            blocked: blocked.clone(),
            lost: sender,
        };
        let mut watching = JoinSet::new();
        watching.spawn(watched.run(connection.events_listener()));
        Ok(Link { what, connection, _socket: socket, blocked, lost, _watch: watching })
    }

    pub async fn channel(&self) -> Result<Channel> {
        let created = self.connection.create_channel().await;
        created.map_err(|error| self.failed("opening a channel", &error))
    }

    /// Why the broker takes no messages now, if so.
    pub fn blocked(&self) -> Option<String> {
        self.blocked.borrow().clone()
    }

    /// Says that the broker does not answer, or that it does again. It has not said so itself.
    pub fn set_blocked(&self, why: Option<&str>) {
        self.blocked.send_if_modified(|there| {
            let changed = there.is_some() != why.is_some();
            if changed {
                *there = why.map(Into::into);
            }
            changed
        });
    }

    /// Waits until the connection is lost; returns why.
    pub async fn lost(&self) -> Error {
        let mut lost = self.lost.clone();
        let why = lost.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        Error::unavailable(self.what.clone(), why.unwrap_or_else(|| "it is closed".into()))
    }

    /// The error of an attempt that failed.
    pub fn failed(&self, attempted: &str, error: &lapin::Error) -> Error {
        self.refused(attempted, error.to_string())
    }

    /// The error of an attempt that failed for this reason.
    pub fn refused(&self, attempted: &str, why: impl Into<String>) -> Error {
        Error::unavailable(format!("{attempted} on {}", self.what), why.into())
    }

    /// Closes in order, so that the broker has released everything of it when this returns.
    pub async fn close(self) {
        let closing = self.connection.close(200, "closed by its owner".into());
        if !matches!(tokio::time::timeout(CLOSE_TIMEOUT, closing).await, Ok(Ok(()))) {
            tracing::debug!(broker = self.what, "connection was cut without an orderly end");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.blocked.send_replace(None);
    }
}

/// Ends logging on the library's own thread. It writes every frame at the level `trace`, that with our
/// password, too, and every message that comes back at `warn`. What matters is in our errors.
fn silence_thread() {
    // For the life of the thread, which belongs to one connection.
    std::mem::forget(tracing::dispatcher::set_default(&tracing::Dispatch::none()));
}

/// What follows the broker's word about a connection.
struct Watched {
    broker: String,
    status: ConnectionStatus,
    blocked: Blocked,
    lost: watch::Sender<Option<String>>,
}

impl Watched {
    async fn run(self, events: impl futures::Stream<Item = Event>) {
        let broker = &*self.broker;
        let mut events = std::pin::pin!(events);
        let mut poll = tokio::time::interval(STATE_POLL);
        let mut last_error = None;
        while self.status.connected() {
            let event = tokio::select! {
                event = events.next() => event,
                _ = poll.tick() => None,
            };
            match event {
                Some(Event::ConnectionBlocked(reason)) => {
                    tracing::warn!(broker, reason, "connection blocked by the broker");
                    self.blocked.send_replace(Some(reason));
                }
                Some(Event::ConnectionUnblocked) => {
                    tracing::info!(broker, "connection unblocked by the broker");
                    self.blocked.send_replace(None);
                }
                // Errors of channels come here, too.
                Some(Event::Error(error)) => last_error = Some(error.to_string()),
                _ => {}
            }
        }
        let why = last_error.unwrap_or_else(|| "the connection was closed".into());
        self.lost.send_replace(Some(why));
    }
}
