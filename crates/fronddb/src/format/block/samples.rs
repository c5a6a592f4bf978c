//! Messages for tests: random ones of every shape, and rows of the iiBench table.

use crate::base::random::Random;
use crate::base::{CommitNumber, Extent, TxnId};
use crate::format::blob::BlobRef;
use crate::format::{Kind, Message, Stamp};

/// A message that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: u64,
    pub(crate) stamp: Stamp,
    pub(crate) kind: Kind,
    pub(crate) blob: bool,
    pub(crate) payload: Vec<u8>,
}

impl Sample {
    pub(crate) fn message(&self) -> Message<'_> {
        Message {
            key: &self.key,
            seq: self.seq,
            stamp: self.stamp,
            kind: self.kind,
            blob: self.blob,
            payload: &self.payload,
        }
    }
}

/// Time that this thread has spent on a processor: what else runs on the machine counts less.
#[derive(Debug)]
pub(crate) struct CpuTime(u64);

impl CpuTime {
    fn nanos() -> u64 {
        // The kernel brings it up to date when the thread is scheduled.
        std::thread::yield_now();
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn now() -> CpuTime {
        CpuTime(CpuTime::nanos())
    }

    /// Nanoseconds since then.
    pub(crate) fn elapsed(&self) -> f64 {
        (CpuTime::nanos() - self.0) as f64
    }
}

/// A reference to a large value with this head, which lies nowhere.
fn reference(random: &mut Random, head: Vec<u8>) -> Vec<u8> {
    let (count, mut out) = (random.below(3) + 1, Vec::new());
    let extents = (0..count).map(|_| Extent { start: random.below(1 << 30), pages: random.below(100) as u32 + 1 });
    let blob = BlobRef { bytes: 1 << 20, extents: extents.collect(), chunks: Vec::new(), head };
    blob.encode(&mut out);
    out
}

/// About `count` messages in the order of a run: several trees, keys of one or of many lengths, several
/// versions of some keys, all kinds and stamps. The seed decides which of these.
pub(crate) fn mixed(seed: u64, count: usize) -> Vec<Sample> {
    let mut random = Random(seed);
    let key_shape = random.below(4);
    let payload_shape = random.below(4);
    let stamp_shape = random.below(4);
    let versions = random.below(2) * 30;
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let mut key = (random.below(3) as u32 + 5).to_be_bytes().to_vec();
            match key_shape {
                0 => key.extend((random.next() >> 44).to_be_bytes()),
                1 => {
                    let length = random.below(20) as usize;
                    key.extend((0..length).map(|_| random.below(3) as u8 + b'a'));
                }
                2 => {
                    let length = random.below(300) as usize;
                    key.extend(random.bytes(length));
                }
                _ => key.extend(format!("user/{:09}/profile", random.below(1_000_000)).bytes()),
            }
            key
        })
        .collect();
    keys.sort();
    keys.dedup();
    let mut samples = Vec::new();
    for key in keys {
        let mut seq = 1_000_000 + random.below(1_000_000);
        loop {
            let kind = [Kind::Put, Kind::Put, Kind::InsertIfAbsent, Kind::Delete, Kind::SingleDelete, Kind::Update]
                [random.below(if payload_shape == 0 { 1 } else { 6 }) as usize];
            let payload = match (kind, payload_shape) {
                (Kind::Delete | Kind::SingleDelete, _) => Vec::new(),
                (_, 0) => random.bytes(8),
                (_, 1) => Vec::new(),
                (_, 2) => random.next().to_be_bytes()[..].repeat(3),
                _ => {
                    let length = random.below(400) as usize;
                    random.bytes(length)
                }
            };
            let stamp = match if stamp_shape == 3 { random.below(3) } else { stamp_shape } {
                0 => Stamp::Settled,
                1 => Stamp::Committed(CommitNumber(random.below(1 << 40))),
                _ => Stamp::Written { txn: TxnId(random.below(5000) + 1), step: random.below(4) as u32 },
            };
            let blob = matches!(kind, Kind::Put | Kind::InsertIfAbsent) && random.below(50) == 0 && payload_shape == 3;
            let payload = if blob { reference(&mut random, payload) } else { payload };
            samples.push(Sample { key: key.clone(), seq, stamp, kind, blob, payload });
            seq -= random.below(1000) + 1;
            if random.below(100) >= versions {
                break;
            }
        }
    }
    samples
}

/// Sorted, settled puts of the four indexes of `rows` rows of the iiBench table: the primary key (8 bytes
/// ascending, 34 bytes of row), then three secondary keys of 16, 20 and 21 bytes without values.
pub(crate) fn iibench(rows: u64) -> [Vec<Sample>; 4] {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut random = Random(42);
    let mut trees: [Vec<Sample>; 4] = Default::default();
    for row in 0..rows {
        let id = (1_000_000 + row).to_be_bytes();
        let cash = random.below(1000) as u32;
        let product = random.below(10_000) as u32;
        let customer = random.below(100_000) as u32;
        let price = (random.below(500 << 20) as f64 / f64::from(1 << 20) + f64::from(customer)) / 100.0;
        let price = (price as f32).to_bits();
        let time = (0x99_b200_0000 + row / 5000).to_be_bytes();
        let mut value = vec![0];
        value.extend_from_slice(&time[3..]);
        [cash, customer, product, price].iter().for_each(|column| value.extend(column.to_le_bytes()));
        value.extend([10, 0]);
        value.extend((0..5).map(|_| LETTERS[random.below(62) as usize]));
        value.extend(b"aaaaa");
        let price = (price | 1 << 31).to_be_bytes();
        let (cash, customer) = (cash.to_be_bytes(), customer.to_be_bytes());
        let keys: [&[&[u8]]; 4] = [
            &[&id],
            &[&price, &customer, &id],
            &[&cash, &price, &customer, &id],
            &[&price, &time[3..], &customer, &id],
        ];
        for (tree, parts) in keys.iter().enumerate() {
            let mut key = (5 + tree as u32).to_be_bytes().to_vec();
            parts.iter().for_each(|part| key.extend_from_slice(part));
            let payload = if tree == 0 { value.clone() } else { Vec::new() };
            trees[tree].push(Sample { key, seq: 7, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload });
        }
    }
    // Cloned once sorted, so that what is measured does not wait for scattered memory.
    trees.map(|mut tree| {
        tree.sort_by(|a, b| a.key.cmp(&b.key));
        tree.to_vec()
    })
}
