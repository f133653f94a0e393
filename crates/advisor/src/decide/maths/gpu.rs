//! GPUs: the smallest MIG profile whose memory and compute cover what was used.

use super::columns::Series;
use super::percentile;
use crate::model::notice::{Notice, Notices};
use crate::model::recommendation::MigProfile;

/// How far a sample may be from the bucket that it counts for.
const TOLERANCE_MS: i64 = 5 * 60 * 1000;

/// A GPU of a container, and the maxima that were measured in each interval.
#[derive(Debug, Clone, Copy)]
pub struct Accelerator<'a> {
    /// As the driver names it: `NVIDIA A100-SXM4-40GB`.
    pub model: &'a str,
    /// Use of the cores in percent.
    pub core: Series<'a>,
    /// Use of the memory's bandwidth in percent.
    pub memory: Series<'a>,
    /// Use of the memory in MiB, or in percent up to 100.
    pub frame_buffer: Series<'a>,
}

/// Whether the models that a data source reports are considered at all.
pub fn is_considered(model: &str) -> bool {
    ["A100", "H100", "H200"].iter().any(|name| model.contains(name))
}

/// The GPU that counts: the first that is considered.
pub fn first_considered<'a, 'b>(gpus: &'b [Accelerator<'a>]) -> Option<&'b Accelerator<'a>> {
    gpus.iter().find(|gpu| is_considered(gpu.model))
}

/// One profile: its name, and its parts of the memory and of the compute units.
type Profile = (&'static str, f64, f64);

/// A card: the size of its memory and its profiles, smallest first.
#[derive(Debug, Clone, Copy)]
struct Card {
    memory_gib: f64,
    profiles: &'static [Profile],
}

/// A card of seven compute slices and eight memory slices.
macro_rules! sevenths {
    ($memory_gib:literal, $one:literal, $one_large:literal, $two:literal, $three:literal,
     $four:literal, $seven:literal) => {
        Card {
            memory_gib: $memory_gib,
            profiles: &[
                ($one, 1.0 / 8.0, 1.0 / 7.0),
                ($one_large, 1.0 / 4.0, 1.0 / 7.0),
                ($two, 2.0 / 8.0, 2.0 / 7.0),
                ($three, 4.0 / 8.0, 3.0 / 7.0),
                ($four, 4.0 / 8.0, 4.0 / 7.0),
                ($seven, 1.0, 1.0),
            ],
        }
    };
}

/// A card of four slices.
macro_rules! quarters {
    ($memory_gib:literal, $one:literal, $two:literal, $four:literal) => {
        Card {
            memory_gib: $memory_gib,
            profiles: &[($one, 0.25, 0.25), ($two, 0.5, 0.5), ($four, 1.0, 1.0)],
        }
    };
}

const A100_40: Card =
    sevenths!(40.0, "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb");
const X100_80: Card =
    sevenths!(80.0, "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb");
const H100_94: Card =
    sevenths!(94.0, "1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb");
const H100_96: Card =
    sevenths!(96.0, "1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb");
const H200: Card =
    sevenths!(141.0, "1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb");
const B200: Card =
    sevenths!(180.0, "1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb");
const RTX_PRO_5000: Card = quarters!(48.0, "1g.12gb-me", "2g.24gb-me", "4g.48gb+gfx");
const RTX_PRO_6000: Card = quarters!(96.0, "1g.24gb+gfx", "2g.48gb+gfx", "4g.96gb+gfx");

/// The card of a model name, by the first line whose words it all contains.
const CARDS: [(&[&str], Card); 12] = [
    (&["H200"], H200),
    (&["H100", "96"], H100_96),
    (&["H100", "94"], H100_94),
    (&["H100", "NVL"], H100_94),
    (&["H100"], X100_80),
    (&["A100", "80"], X100_80),
    (&["A100"], A100_40),
    (&["B200"], B200),
    (&["RTX", "PRO", "5000"], RTX_PRO_5000),
    (&["RTX", "PRO", "6000"], RTX_PRO_6000),
    (&["RTXPRO5000"], RTX_PRO_5000),
    (&["RTXPRO6000"], RTX_PRO_6000),
];

impl Card {
    fn of(model: &str) -> Option<Card> {
        let has = |words: &&[&str]| words.iter().all(|word| model.contains(word));
        CARDS.iter().find(|(words, _)| has(words)).map(|(_, card)| *card)
    }

    /// The smallest profile that covers these parts of the card.
    fn profile(self, memory: f64, core: f64) -> Option<MigProfile> {
        let (memory, core) = (memory.min(1.0), core.min(1.0));
        let covers = |profile: &&Profile| profile.1 >= memory && profile.2 >= core;
        self.profiles.iter().find(covers).map(|(name, ..)| MigProfile { name: (*name).into() })
    }

    /// Use of the memory in percent, from MiB if it cannot be percent.
    fn frame_buffer_percent(self, used: f64) -> f64 {
        if used > 100.0 { used / (self.memory_gib * 1024.0) * 100.0 } else { used }
    }
}

/// What a GPU was used for, by the index of the bucket. Intervals without use are left out.
pub(super) struct Usage {
    card: Option<Card>,
    core: Vec<(usize, f64)>,
    memory: Vec<(usize, f64)>,
    frame_buffer: Vec<(usize, f64)>,
    keys: Vec<i64>,
}

impl Usage {
    /// Assigns the samples of a GPU to the buckets that end at these times.
    pub(super) fn new(gpu: &Accelerator<'_>, end_ms: &[i64]) -> Self {
        let card = Card::of(gpu.model);
        let mut frame_buffer = assign(gpu.frame_buffer, end_ms);
        if let Some(card) = card {
            frame_buffer.iter_mut().for_each(|(_, used)| *used = card.frame_buffer_percent(*used));
        }
        Self {
            card,
            core: assign(gpu.core, end_ms),
            memory: assign(gpu.memory, end_ms),
            frame_buffer,
            keys: Vec::new(),
        }
    }

    /// The profile for the buckets of a window. A GPU without any use has none.
    pub(super) fn profile(
        &mut self,
        window: std::ops::Range<usize>,
        percentile: f64,
        notices: &mut Notices,
    ) -> Option<MigProfile> {
        let Some(card) = self.card else {
            notices.add(Notice::AcceleratorNotSupported);
            return None;
        };
        let mut fraction = |samples: &[(usize, f64)]| {
            let inside = samples.iter().filter(|(bucket, _)| window.contains(bucket));
            self.keys.clear();
            self.keys.extend(inside.map(|(_, used)| percentile::key(*used)));
            percentile::of(percentile, &mut self.keys) / 100.0
        };
        let core = fraction(&self.core);
        // A profile must have the bandwidth and the room.
        let memory = fraction(&self.memory).max(fraction(&self.frame_buffer));
        if core == 0.0 && memory == 0.0 {
            return None;
        }
        let profile = card.profile(memory, core);
        if profile.is_some() {
            notices.add(Notice::AcceleratorAvailable);
        }
        profile
    }
}

/// Gives each positive sample to the nearest bucket, if one is near. The last one of a bucket stays.
fn assign(series: Series<'_>, end_ms: &[i64]) -> Vec<(usize, f64)> {
    let mut assigned: Vec<(usize, f64)> = Vec::new();
    for (at, used) in series.samples().filter(|(_, used)| *used > 0.0) {
        let later = end_ms.partition_point(|end| *end < at);
        let near = [later.wrapping_sub(1), later].into_iter().filter(|i| *i < end_ms.len());
        let Some(bucket) = near.min_by_key(|i| (end_ms[*i] - at).abs()) else { continue };
        if (end_ms[bucket] - at).abs() > TOLERANCE_MS {
            continue;
        }
        assigned.pop_if(|(other, _)| *other == bucket);
        assigned.push((bucket, used));
    }
    assigned
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    const MODELS: [(&str, Card); 11] = [
        ("NVIDIA A100-SXM4-40GB", A100_40),
        ("NVIDIA-A100-PCIE-40GB", A100_40),
        ("NVIDIA A100 80GB PCIe", X100_80),
        ("NVIDIA H100 80GB HBM3", X100_80),
        ("NVIDIA H100 NVL", H100_94),
        ("NVIDIA H100 94GB", H100_94),
        ("NVIDIA-H100-96GB", H100_96),
        ("NVIDIA H200", H200),
        ("NVIDIA B200", B200),
        ("NVIDIA RTX PRO 5000 Blackwell", RTX_PRO_5000),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", RTX_PRO_6000),
    ];

    #[test]
    fn every_model_has_its_list() {
        for (model, card) in MODELS {
            let found = Card::of(model).unwrap();
            assert_eq!(found.profiles, card.profiles, "{model}");
            assert_eq!(found.memory_gib, card.memory_gib, "{model}");
        }
        for model in ["Tesla T4", "NVIDIA L40S", ""] {
            assert!(Card::of(model).is_none(), "{model}");
        }
    }

    #[test]
    fn every_profile_of_every_list_is_reachable_and_covers() {
        for (model, card) in MODELS {
            for (i, (listed, memory, core)) in card.profiles.iter().enumerate() {
                let exact = card.profile(*memory, *core).unwrap();
                assert_eq!(exact.name, *listed, "{model}");
                let more = card.profile(memory + 1e-9, *core).map(name);
                let next = card.profiles[i..].iter().find(|next| next.1 > *memory);
                let next = next.or(card.profiles.last()).map(|next| next.0);
                assert_eq!(more, next, "{model} above {listed}");
            }
            let last = card.profiles.last().unwrap();
            assert_eq!((last.1, last.2), (1.0, 1.0), "{model}");
            assert_eq!(card.profile(7.0, 7.0).unwrap().name, last.0, "{model}");
        }
    }

    #[test]
    fn lists_have_the_names_of_the_vendor() {
        let names = |card: Card| card.profiles.iter().map(|it| it.0).collect::<Vec<_>>().join(" ");
        let table = [
            (A100_40, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
            (X100_80, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
            (H100_94, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
            (H100_96, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
            (H200, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
            (B200, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
            (RTX_PRO_5000, "1g.12gb-me 2g.24gb-me 4g.48gb+gfx"),
            (RTX_PRO_6000, "1g.24gb+gfx 2g.48gb+gfx 4g.96gb+gfx"),
        ];
        for (card, expected) in table {
            assert_eq!(names(card), expected);
        }
        assert_eq!(MigProfile { name: "7g.40gb".into() }.resource(), "nvidia.com/mig-7g.40gb");
    }

    #[test]
    fn only_some_models_are_considered_and_the_first_of_them_counts() {
        let gpu = |model| Accelerator {
            model,
            core: Series::default(),
            memory: Series::default(),
            frame_buffer: Series::default(),
        };
        let gpus = [gpu("Tesla T4"), gpu("NVIDIA B200"), gpu("NVIDIA H200"), gpu("NVIDIA A100")];
        assert_eq!(first_considered(&gpus).unwrap().model, "NVIDIA H200");
        assert!(first_considered(&gpus[..2]).is_none());
    }

    fn name(profile: MigProfile) -> &'static str {
        let Cow::Borrowed(name) = profile.name else { panic!("{profile:?} is not of a list") };
        name
    }

    fn profile(model: &str, core: f64, memory: f64, frame_buffer: f64) -> (Option<&str>, Notices) {
        let end_ms = [1_000_000];
        let values = [[core], [memory], [frame_buffer]];
        let series = |i: usize| Series::new(&end_ms, &values[i]).unwrap();
        let gpu =
            Accelerator { model, core: series(0), memory: series(1), frame_buffer: series(2) };
        let mut notices = Notices::default();
        let profile = Usage::new(&gpu, &end_ms).profile(0..1, 60.0, &mut notices);
        (profile.map(name), notices)
    }

    #[test]
    fn use_becomes_a_profile() {
        let available = Notices::from_iter([Notice::AcceleratorAvailable]);
        let table = [
            (("NVIDIA A100-SXM4-40GB", 10.0, 10.0, 0.0), Some("1g.5gb")),
            (("NVIDIA A100-SXM4-40GB", 10.0, 20.0, 0.0), Some("1g.10gb")),
            (("NVIDIA A100-SXM4-40GB", 20.0, 20.0, 0.0), Some("2g.10gb")),
            (("NVIDIA A100-SXM4-40GB", 40.0, 20.0, 0.0), Some("3g.20gb")),
            (("NVIDIA A100-SXM4-40GB", 50.0, 20.0, 0.0), Some("4g.20gb")),
            (("NVIDIA A100-SXM4-40GB", 87.1, 82.7, 14_479.8), Some("7g.40gb")),
            (("NVIDIA A100-SXM4-40GB", 250.0, 1.0, 0.0), Some("7g.40gb")),
            // 10 GiB are a quarter of one card and an eighth of the other.
            (("NVIDIA A100-SXM4-40GB", 10.0, 1.0, 10_240.0), Some("1g.10gb")),
            (("NVIDIA A100 80GB PCIe", 10.0, 1.0, 10_240.0), Some("1g.10gb")),
            (("NVIDIA A100 80GB PCIe", 10.0, 1.0, 10_241.0), Some("1g.20gb")),
            // Up to 100 it is percent already.
            (("NVIDIA H200", 10.0, 1.0, 100.0), Some("7g.141gb")),
            (("NVIDIA H200", 10.0, 1.0, 101.0), Some("1g.18gb")),
        ];
        for ((model, core, memory, frame_buffer), expected) in table {
            let found = profile(model, core, memory, frame_buffer);
            assert_eq!(found, (expected, available), "{model} {core} {memory} {frame_buffer}");
        }
    }

    #[test]
    fn an_unused_gpu_has_no_profile_and_an_unknown_one_says_so() {
        assert_eq!(profile("NVIDIA H200", 0.0, 0.0, -1.0), (None, Notices::default()));
        let unsupported = Notices::from_iter([Notice::AcceleratorNotSupported]);
        assert_eq!(profile("Tesla T4", 50.0, 50.0, 0.0), (None, unsupported));
    }

    #[test]
    fn samples_go_to_the_nearest_bucket_within_five_minutes() {
        let minute = 60_000;
        let end_ms = [15 * minute, 30 * minute, 45 * minute];
        let times = [10, 19, 21, 26, 36, 44, 46].map(|minutes| minutes * minute);
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let assigned = assign(Series::new(&times, &values).unwrap(), &end_ms);
        assert_eq!(assigned, [(0, 2.0), (1, 4.0), (2, 7.0)]);
        assert!(assign(Series::new(&times, &values).unwrap(), &[]).is_empty());
    }
}
