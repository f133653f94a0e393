//! Allocates ports for instances: free on the loopback address, and never the same for two, even
//! before they listen.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use kernel::{Ambient, Error, Result};
use parking_lot::Mutex;

/// Below the range of outgoing connections, which could take a port while its instance restarts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// More misses than a handful mean that something else is wrong.
const ATTEMPTS_MAX: u32 = 1_000;

#[derive(Default)]
pub struct Ports {
    allocated: Mutex<BTreeSet<u16>>,
}

impl Ports {
    /// Marks ports as allocated, whether or not they are free.
    pub fn reserve(&self, ports: &[u16]) {
        self.allocated.lock().extend(ports);
    }

    pub fn release(&self, ports: &[u16]) {
        let mut allocated = self.allocated.lock();
        for port in ports {
            allocated.remove(port);
        }
    }

    /// Makes `ports` so many, and replaces those that another process uses.
    pub fn ensure_count(
        &self,
        ports: &mut Vec<u16>,
        count: usize,
        ambient: &Ambient,
    ) -> Result<()> {
        let spare = ports.split_off(count.min(ports.len()));
        self.release(&spare);
        for port in ports.iter_mut() {
            if !is_free(*port) {
                let other = self.allocate(ambient)?;
                self.release(&[*port]);
                *port = other;
            }
        }
        while ports.len() < count {
            ports.push(self.allocate(ambient)?);
        }
        Ok(())
    }

    fn allocate(&self, ambient: &Ambient) -> Result<u16> {
        let mut allocated = self.allocated.lock();
        let port = free(ambient, |port| !allocated.contains(&port))?;
        allocated.insert(port);
        Ok(port)
    }
}

/// A free port that also suits the caller.
pub fn free(ambient: &Ambient, suits: impl Fn(u16) -> bool) -> Result<u16> {
    let random = || FIRST + u16::from_le_bytes(ambient.random_bytes()) % COUNT;
    let found = (0..ATTEMPTS_MAX).map(|_| random()).find(|port| suits(*port) && is_free(*port));
    found.ok_or_else(|| {
        let what = format!("a free port of 127.0.0.1 from {FIRST} to {}", FIRST + COUNT - 1);
        Error::unavailable(what, format!("none of {ATTEMPTS_MAX} that were tried is free"))
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_kept_until_another_process_uses_it() {
        let (ports, ambient) = (Ports::default(), Ambient::system());
        let (mut mine, mut yours) = (Vec::new(), Vec::new());
        ports.ensure_count(&mut mine, 2, &ambient).unwrap();
        ports.ensure_count(&mut yours, 1, &ambient).unwrap();
        assert!(!mine.contains(&yours[0]) && mine[0] != mine[1]);
        let before = mine.clone();
        ports.ensure_count(&mut mine, 2, &ambient).unwrap();
        assert_eq!(mine, before);
        let _thief = TcpListener::bind((Ipv4Addr::LOCALHOST, before[0])).unwrap();
        ports.ensure_count(&mut mine, 1, &ambient).unwrap();
        assert_eq!(mine.len(), 1);
        assert_ne!(mine[0], before[0]);
        assert_eq!(ports.allocated.lock().len(), 2, "unused ports are released");
    }
}
