//! A bad network in front of a server: a TCP proxy on a loopback port of its own that a test cuts,
//! slows, silences and resets. It never changes a byte: what arrives is what was sent, in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Gone with its connections when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    open: Arc<AtomicUsize>,
    stop: CancellationToken,
}

#[derive(Clone, Default)]
struct Weather {
    /// Where connections lead; nowhere until the test says so.
    upstream: String,
    link: Link,
    delay: Duration,
    bytes_per_s: Option<u32>,
    /// Counts up: connections from before a reset feel it, those after it do not.
    resets: u32,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Link {
    #[default]
    Up,
    /// Connections stay open and carry nothing, as when a cable is pulled.
    Silent,
    /// Connections are closed, and new ones are closed at once.
    Cut,
}

impl Proxy {
    /// To a server such as `127.0.0.1:5432`.
    pub async fn to(upstream: &str) -> Proxy {
        let proxy = Proxy::new().await;
        proxy.lead_to(upstream);
        proxy
    }

    /// For a server that must know the proxy's address before it starts; see [`Proxy::lead_to`].
    pub async fn new() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("it is bound");
        let (weather, forecast) = watch::channel(Weather::default());
        let (open, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        tokio::spawn(serve(listener, forecast, open.clone(), stop.clone()));
        Proxy { address, weather, open, stop }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn lead_to(&self, upstream: &str) {
        self.weather.send_modify(|weather| weather.upstream = upstream.into());
    }

    /// Closes all connections, and every new one at once, until [`Proxy::mend`].
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.link = Link::Cut);
    }

    /// Carries nothing any more and closes nothing: what was open stays half open.
    pub fn silence(&self) {
        self.weather.send_modify(|weather| weather.link = Link::Silent);
    }

    /// Good weather again: no cut, no silence, no delay, full speed.
    pub fn mend(&self) {
        self.weather.send_modify(|weather| {
            let (upstream, resets) = (std::mem::take(&mut weather.upstream), weather.resets);
            *weather = Weather { upstream, resets, ..Weather::default() };
        });
    }

    /// Every byte arrives this much later, in both directions.
    pub fn delay(&self, by: Duration) {
        self.weather.send_modify(|weather| weather.delay = by);
    }

    /// At most so many bytes a second on each connection and in each direction.
    pub fn throttle(&self, bytes_per_s: u32) {
        self.weather.send_modify(|weather| weather.bytes_per_s = Some(bytes_per_s.max(1)));
    }

    /// Ends all connections with a TCP reset; new ones are welcome.
    pub fn reset(&self) {
        self.weather.send_modify(|weather| weather.resets += 1);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(
    listener: TcpListener,
    forecast: watch::Receiver<Weather>,
    open: Arc<AtomicUsize>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((client, _)) = accepted else { continue };
        let (forecast, open, stop) = (forecast.clone(), open.clone(), stop.clone());
        tokio::spawn(async move {
            open.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection(client, forecast) => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn connection(client: TcpStream, mut forecast: watch::Receiver<Weather>) {
    let weather = forecast.borrow_and_update().clone();
    let since = weather.resets;
    let up = async {
        // One that cannot be reached looks like one that hangs up.
        let Ok(server) = TcpStream::connect(&weather.upstream).await else { return };
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let there = pump(from_client, to_server, forecast.clone(), since);
        let back = pump(from_server, to_client, forecast.clone(), since);
        tokio::join!(there, back);
    };
    if weather.link != Link::Cut {
        up.await;
    }
}

/// What is on its way, and when it arrives. Some in flight, so that a delay is not a lower speed.
const IN_FLIGHT: usize = 256;
const CHUNK: usize = 16 * 1024;

/// Carries one direction to its end.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    forecast: watch::Receiver<Weather>,
    since: u32,
) {
    let (sender, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let mut sky = forecast.clone();
    let departing = async move {
        loop {
            if !fair(&mut sky, since).await {
                return;
            }
            let mut chunk = vec![0; CHUNK];
            let read = tokio::select! {
                read = from.read(&mut chunk) => read.unwrap_or(0),
                _ = sky.changed() => continue,
            };
            chunk.truncate(read);
            let due = Instant::now() + sky.borrow().delay;
            if read == 0 || sender.send((due, chunk)).await.is_err() {
                return;
            }
        }
    };
    let mut sky = forecast;
    let delivery = async move {
        while let Some((due, chunk)) = arriving.recv().await {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                if !fair(&mut sky, since).await {
                    return hang_up(&sky, to, since).await;
                }
                let speed = sky.borrow().bytes_per_s;
                // A tenth of a second's worth at a time.
                let share = speed.map_or(rest.len(), |speed| (speed as usize).div_ceil(10));
                let (now, later) = rest.split_at(share.min(rest.len()));
                let pause = speed.map_or(Duration::ZERO, |speed| {
                    Duration::from_secs_f64(now.len() as f64 / f64::from(speed))
                });
                tokio::select! {
                    () = tokio::time::sleep_until(due.max(Instant::now() + pause)) => {}
                    _ = sky.changed() => continue,
                }
                if to.write_all(now).await.is_err() {
                    return;
                }
                rest = later;
            }
        }
        hang_up(&sky, to, since).await;
    };
    tokio::join!(departing, delivery);
}

/// Waits out a silence. False if this connection is at its end.
async fn fair(sky: &mut watch::Receiver<Weather>, since: u32) -> bool {
    let settled = sky.wait_for(|now| now.link != Link::Silent || now.resets != since).await;
    settled.is_ok_and(|now| now.link == Link::Up && now.resets == since)
}

/// Says that no more comes. The socket is closed when both directions have ended, and that is a
/// reset if it was not closed before.
async fn hang_up(sky: &watch::Receiver<Weather>, mut to: OwnedWriteHalf, since: u32) {
    if sky.borrow().resets == since {
        let _ = to.shutdown().await;
    } else {
        let _ = to.as_ref().set_zero_linger();
        to.forget();
    }
}
