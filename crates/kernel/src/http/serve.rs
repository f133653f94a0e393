//! Listens, serves each connection in its own task, and drains on shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deadline::Deadline;
use super::router::closable_router;
use super::tls::Certificates;
use super::{Config, HttpService, Routes};
use crate::{App, Error, Result};

/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted; the system may allow fewer. Clients that find it full get
/// no error: they retry after one second, three, seven.
const LISTEN_BACKLOG: u32 = 4096;
/// hyper's limits are above ours, so that a violation of ours gets a JSON response.
const HEADER_BYTES_SLACK: usize = 16 << 10;

/// Binds with a large accept backlog.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of the previous server in TIME_WAIT must not prevent the bind.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Serves until `shutdown` is cancelled, then drains open requests for up to `drain_s`.
pub async fn serve(
    app: App,
    routes: Routes,
    listener: TcpListener,
    config: Config,
    shutdown: CancellationToken,
) -> Result<()> {
    let tasks = Tasks { tracker: TaskTracker::new(), kill: CancellationToken::new() };
    let server = Arc::new(Server {
        service: closable_router(app.clone(), routes, &config, shutdown.clone())?,
        certificates: config.tls.as_ref().map(Certificates::load).transpose()?,
        http: http(&config, &tasks),
        head_timeout: config.header_timeout(),
        app,
    });
    let graceful = GracefulShutdown::new();
    let connection_permits = Arc::new(Semaphore::new(config.connections_max));
    while let Some((stream, peer, permit)) = accept(&listener, &connection_permits, &shutdown).await
    {
        let connection = server.clone().connection(stream, peer, graceful.watcher(), permit);
        tasks.spawn(connection);
    }
    drop(listener);
    tracing::info!(connections = graceful.count(), "draining connections");
    let drained = tokio::time::timeout(Duration::from_secs(config.drain_s), graceful.shutdown());
    if drained.await.is_err() {
        tracing::warn!(drain_s = config.drain_s, "drain timeout reached; closing open connections");
    }
    tasks.kill.cancel();
    tasks.tracker.close();
    tasks.tracker.wait().await;
    Ok(())
}

/// The connection tasks, which all end with the server.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    kill: CancellationToken,
}

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            kill.run_until_cancelled_owned(task).await;
        });
    }
}

/// Lets hyper spawn the streams of an HTTP/2 connection.
impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

fn http(config: &Config, tasks: &Tasks) -> Builder<Tasks> {
    let header_bytes_max = config.header_bytes_max + HEADER_BYTES_SLACK;
    let mut builder = Builder::new(tasks.clone());
    builder.http1().header_read_timeout(config.header_timeout()).max_buf_size(header_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(header_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Returns the next connection, or `None` on shutdown. Acquires a permit before it accepts, so that
/// excess connections wait in the backlog and cost no memory.
async fn accept(
    listener: &TcpListener,
    connection_permits: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    shutdown
        .run_until_cancelled(async {
            let permit = connection_permits.clone().acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => return (stream, peer, permit),
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
        .await
}

struct Server {
    app: App,
    service: HttpService,
    certificates: Option<Certificates>,
    http: Builder<Tasks>,
    /// A connection that has not sent the complete head of a request by then is closed.
    head_timeout: Duration,
}

impl Server {
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        watcher: Watcher,
        _permit: OwnedSemaphorePermit,
    ) {
        let _open = self.app.metrics.connection();
        // Responses are written whole; waiting for more data only delays them.
        let _ = stream.set_nodelay(true);
        let ended = match &self.certificates {
            None => self.serve(stream, peer, watcher).await,
            Some(certificates) => {
                let handshake = certificates.acceptor().accept(stream);
                match tokio::time::timeout(self.head_timeout, handshake).await {
                    Ok(Ok(stream)) => self.serve(stream, peer, watcher).await,
                    Ok(Err(error)) => Err(error.into()),
                    Err(_) => Err("the TLS handshake took too long".into()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, error, "a connection ended early");
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        watcher: Watcher,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let received = Arc::new(AtomicBool::new(false));
        let (service, any, deadline) =
            (self.service.clone(), received.clone(), Deadline::default());
        let origin = Some(peer.ip().to_canonical());
        let handler = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            any.store(true, Ordering::Relaxed);
            let service = service.clone();
            let request = request
                .map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
            async move { Ok::<_, Infallible>(service.handle(request, origin).await) }
        });
        let mut http = self.http.clone();
        http.http1().timer(deadline.clone());
        let connection = http.serve_connection(TokioIo::new(stream), handler);
        let mut connection = std::pin::pin!(watcher.watch(connection));
        let mut check = std::pin::pin!(tokio::time::sleep(self.head_timeout));
        loop {
            tokio::select! {
                biased;
                ended = &mut connection => return ended,
                () = &mut check => {}
            }
            if !received.load(Ordering::Relaxed) {
                return Err(Error::invalid("request", "did not come in time").into());
            }
            check.as_mut().reset(deadline.next(self.head_timeout).into());
        }
    }
}
