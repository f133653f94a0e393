//! Where processes listen, from Linux's own tables: nothing of ours may be reached from elsewhere.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The TCP addresses on which any of these processes listens.
pub fn listeners(pids: &[u32]) -> Vec<SocketAddr> {
    let sockets: HashSet<String> = pids.iter().flat_map(|pid| sockets(*pid)).collect();
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // State 0A is LISTEN; the tenth word is the socket's number.
            if words.get(3) == Some(&"0A")
                && words.get(9).is_some_and(|inode| sockets.contains(*inode))
            {
                found.extend(words.get(1).and_then(|address| parse(address)));
            }
        }
    }
    found
}

fn sockets(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let socket = |link: std::path::PathBuf| {
        let text = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
        Some(text)
    };
    links.filter_map(socket).collect()
}

/// As in `0100007F:1F90`: words of 32 bits in the machine's order, then the port.
fn parse(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_listens_on_is_seen_whichever_address_it_is() {
        let bound: Vec<std::net::TcpListener> = ["127.0.0.1:0", "[::1]:0"]
            .iter()
            .filter_map(|at| std::net::TcpListener::bind(at).ok())
            .collect();
        let expected: Vec<SocketAddr> =
            bound.iter().map(|listener| listener.local_addr().unwrap()).collect();
        assert!(!expected.is_empty());
        let found = listeners(&[std::process::id()]);
        assert!(expected.iter().all(|address| found.contains(address)), "{expected:?}: {found:?}");
    }
}
