//! Time, ids and randomness. All nondeterminism comes from here,
//! so that the whole control plane can run under a seed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since 1970. Printed, and serialised, as RFC 3339 in UTC; [`Timestamp::MAX`] is
/// printed as `never` and serialised as null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    pub fn millis(self) -> i64 {
        self.0
    }

    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    pub fn plus(self, by: Duration) -> Timestamp {
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(by_ms))
    }

    /// The same time by another clock, which shows `there` when this one shows `here`.
    pub fn translated(self, here: Timestamp, there: Timestamp) -> Timestamp {
        if self == Timestamp::MAX {
            return self;
        }
        Timestamp(self.0.saturating_add(there.0.saturating_sub(here.0)))
    }

    /// How long from `self` until `later`; zero if it has passed.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "never"),
        }
    }
}

/// RFC 3339 in UTC with milliseconds. Every object has several, so this avoids a general formatter;
/// only years without four digits need one.
fn rfc3339(at: jiff::Timestamp) -> Option<[u8; 24]> {
    let at = jiff::tz::Offset::UTC.to_datetime(at);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let fields = [
        (0..4, u32::try_from(at.year()).ok()?),
        (5..7, at.month().unsigned_abs().into()),
        (8..10, at.day().unsigned_abs().into()),
        (11..13, at.hour().unsigned_abs().into()),
        (14..16, at.minute().unsigned_abs().into()),
        (17..19, at.second().unsigned_abs().into()),
        (20..23, at.millisecond().unsigned_abs().into()),
    ];
    for (place, mut number) in fields {
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    Some(text)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ok(at) = jiff::Timestamp::from_millisecond(self.0) else {
            return serializer.serialize_none();
        };
        match rfc3339(at) {
            Some(text) => serializer.serialize_str(std::str::from_utf8(&text).expect("ASCII")),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let at = Option::<jiff::Timestamp>::deserialize(deserializer)?;
        Ok(at.map_or(Timestamp::MAX, |at| Timestamp(at.as_millisecond())))
    }
}

/// The source of a process's time, ids and randomness.
#[derive(Clone)]
pub struct Ambient {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Arc<Mutex<StdRng>>,
    process: [u8; 5],
    next: Arc<std::sync::atomic::AtomicU32>,
}

impl Ambient {
    /// The system's clock and entropy.
    pub fn system() -> Ambient {
        let now = || Timestamp(jiff::Timestamp::now().as_millisecond());
        Ambient::new(now, StdRng::from_os_rng())
    }

    /// A clock of the caller's and randomness from a seed.
    pub fn seeded(now: impl Fn() -> Timestamp + Send + Sync + 'static, seed: u64) -> Ambient {
        Ambient::new(now, StdRng::seed_from_u64(seed))
    }

    fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, mut random: StdRng) -> Ambient {
        let mut process = [0; 5];
        random.fill_bytes(&mut process);
        let first = random.random_range(0..1 << 24);
        Ambient {
            now: Arc::new(now),
            random: Arc::new(Mutex::new(random)),
            process,
            next: Arc::new(std::sync::atomic::AtomicU32::new(first)),
        }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// A new id: 20 characters, unique across replicas, in the order of creation to the second
    /// (the xid layout: seconds, process, counter, in lower-case base 32).
    pub fn id(&self) -> String {
        let seconds = u32::try_from(self.now().seconds()).unwrap_or(u32::MAX);
        let count = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(&self.process);
        bytes[9..].copy_from_slice(&count.to_be_bytes()[1..]);
        base32(&bytes)
    }

    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.lock().fill_bytes(&mut bytes);
        bytes
    }

    /// A number in `0.0..1.0`, for jitter.
    pub fn fraction(&self) -> f64 {
        self.random.lock().random()
    }
}

fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut out = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            out.push(char::from(DIGITS[(bits >> held & 31) as usize]));
        }
    }
    if held > 0 {
        out.push(char::from(DIGITS[(bits << (5 - held) & 31) as usize]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_twenty_characters_and_rise_with_time() {
        let ambient = Ambient::seeded(|| Timestamp(1_700_000_000_000), 1);
        let (a, b) = (ambient.id(), ambient.id());
        assert_eq!(a.len(), 20);
        assert_ne!(a, b);
        let later = Ambient::seeded(|| Timestamp(1_700_000_001_000), 2).id();
        assert!(later > a && later > b, "{later} is not after {a} and {b}");
    }

    #[test]
    fn a_timestamp_reads_back_as_it_was_written() {
        let at = Timestamp(1_700_000_000_123);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
        for millis in [0, -1, 951_782_400_000, 253_402_207_199_999, -62_167_219_200_000] {
            let at = Timestamp(millis);
            assert_eq!(serde_json::to_string(&at).unwrap(), format!("\"{at}\""));
        }
        let before_christ = Timestamp(-62_167_219_200_001);
        let text = serde_json::to_string(&before_christ).unwrap();
        assert_eq!(text, format!("\"{before_christ}\""));
        assert_eq!(serde_json::to_string(&Timestamp::MAX).unwrap(), "null");
        assert_eq!(serde_json::from_str::<Timestamp>("null").unwrap(), Timestamp::MAX);
    }
}
