//! Sends the one count that the existing operator sends to DogStatsD.

use std::io::{Error, Result};
use std::sync::Arc;

use tokio::net::{UdpSocket, UnixDatagram};

use super::legacy::class_labels;
use crate::model::class::Class;

const PREFIX: &str = "arcane.sneaksanddata.com";

fn line(class: &Class) -> String {
    let tags =
        class_labels(class).map(|(name, value)| format!("{PREFIX}/{name}:{value}")).join(",");
    format!("arcane.operator.stream_class:1|c|#{tags}")
}

/// Sends one packet per class to `udp://host:8125` or `unix:///path`.
pub async fn count(url: &str, classes: &[Arc<Class>]) -> Result<()> {
    let lines = classes.iter().map(|class| line(class));
    if let Some(address) = url.strip_prefix("udp://") {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(address).await?;
        for line in lines {
            socket.send(line.as_bytes()).await?;
        }
        return Ok(());
    }
    let path = url.strip_prefix("unix://").ok_or_else(|| Error::other("neither udp nor unix"))?;
    let socket = UnixDatagram::unbound()?;
    for line in lines {
        socket.send_to(line.as_bytes(), path).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CrdVersion;

    #[tokio::test]
    async fn a_class_is_counted_as_the_existing_operator_counts_it() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let raw = serde_json::json!({
            "metadata": { "name": "c" },
            "spec": { "apiVersion": "v1", "kindRef": "MicrosoftSqlServerStream", "pluralName": "x" },
            "status": { "phase": "Ready" },
        });
        let class = Class::of(&serde_json::from_value(raw).unwrap(), CrdVersion::V1);
        let url = format!("udp://{}", server.local_addr().unwrap());
        count(&url, &[class.into()]).await.unwrap();
        let mut packet = [0; 500];
        let size = server.recv(&mut packet).await.unwrap();
        assert_eq!(
            std::str::from_utf8(&packet[..size]).unwrap(),
            "arcane.operator.stream_class:1|c|#arcane.sneaksanddata.com/namespace:unknown,\
             arcane.sneaksanddata.com/kind_ref:microsoft_sql_server_stream,\
             arcane.sneaksanddata.com/kind:stream_class,arcane.sneaksanddata.com/phase:ready"
        );
    }
}
