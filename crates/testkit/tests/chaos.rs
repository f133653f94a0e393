//! The chaos proxy does what its verbs say, and nothing else.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::ErrorKind;
use std::time::Duration;

use testkit::chaos::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Answers what it is sent, and then hangs up.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

const MINUTE: Duration = Duration::from_secs(60);

async fn says(stream: &mut TcpStream, word: &[u8]) {
    stream.write_all(word).await.unwrap();
    let mut back = vec![0; word.len()];
    timeout(MINUTE, stream.read_exact(&mut back)).await.unwrap().unwrap();
    assert_eq!(back, word);
}

async fn is_silent(stream: &mut TcpStream) {
    let read = stream.read_u8();
    assert!(timeout(Duration::from_millis(100), read).await.is_err(), "it said something");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_arrives_as_it_was_sent_also_late_and_slowly() {
    let proxy = Proxy::to(&echo().await).await;
    proxy.delay(Duration::from_millis(20));
    proxy.throttle(8_000_000);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = stream.split();
    let mut received = Vec::new();
    let all = async {
        let send = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        tokio::join!(send, async { read.read_to_end(&mut received).await.unwrap() })
    };
    timeout(MINUTE, all).await.unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_is_felt() {
    let proxy = Proxy::to(&echo().await).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut stream, b"now").await;
    proxy.delay(MINUTE);
    stream.write_all(b"in a minute").await.unwrap();
    is_silent(&mut stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_closes_what_is_open_and_what_comes_until_it_is_mended() {
    let proxy = Proxy::to(&echo().await).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut stream, b"before").await;
    assert_eq!(proxy.connections(), 1);
    proxy.cut();
    assert!(timeout(MINUTE, stream.read_u8()).await.unwrap().is_err());
    let mut during = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(timeout(MINUTE, during.read_u8()).await.unwrap().is_err());
    proxy.mend();
    says(&mut TcpStream::connect(proxy.address()).await.unwrap(), b"after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_keeps_connections_open_and_loses_nothing() {
    let proxy = Proxy::to(&echo().await).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut stream, b"before").await;
    proxy.silence();
    stream.write_all(b"held back").await.unwrap();
    is_silent(&mut stream).await;
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    new.write_all(b"as well").await.unwrap();
    is_silent(&mut new).await;
    proxy.mend();
    for (stream, word) in [(&mut stream, b"held back".as_slice()), (&mut new, b"as well")] {
        let mut back = vec![0; word.len()];
        timeout(MINUTE, stream.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(back, word);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_ends_what_is_open_and_spares_what_comes() {
    let proxy = Proxy::to(&echo().await).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    says(&mut stream, b"before").await;
    proxy.reset();
    let end = timeout(MINUTE, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    says(&mut TcpStream::connect(proxy.address()).await.unwrap(), b"after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_looks_like_one_that_hangs_up() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::to(&nobody.to_string()).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(timeout(MINUTE, stream.read_u8()).await.unwrap().is_err());
}
