//! YCSB's key choosers (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010), after Gray et al.,
//! "Quickly generating billion-record synthetic databases" (SIGMOD 1994).

use super::random::{Random, mix};

/// YCSB's skew.
const THETA: f64 = 0.99;

/// Ranks `0..count`, rank 0 the most popular.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Over `count` ranks, `count ≥ 2`. Takes time in proportion to `count`.
    pub fn new(count: u64) -> Zipf {
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-THETA)).sum();
        let zeta_two = 1.0 + 2f64.powf(-THETA);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - zeta_two / zeta);
        Zipf { count, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// A rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

/// Popular items spread over the whole key range.
#[derive(Debug, Clone)]
pub struct ScrambledZipf(Zipf);

impl ScrambledZipf {
    /// Over `count` items.
    pub fn new(count: u64) -> ScrambledZipf {
        ScrambledZipf(Zipf::new(count))
    }

    /// An item.
    pub fn next(&self, random: &mut Random) -> u64 {
        mix(self.0.next(random)) % self.0.count
    }
}

/// The newest items are the most popular.
#[derive(Debug, Clone)]
pub struct Latest(Zipf);

impl Latest {
    /// Ranks are drawn over the `count` newest items.
    pub fn new(count: u64) -> Latest {
        Latest(Zipf::new(count))
    }

    /// An item among `0..end`.
    pub fn next(&self, random: &mut Random, end: u64) -> u64 {
        end - 1 - self.0.next(random).min(end - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_is_drawn_as_often_as_the_law_says() {
        let zipf = Zipf::new(10_000);
        let mut random = Random::new(3);
        let draws = 200_000;
        let first = (0..draws).filter(|_| zipf.next(&mut random) == 0).count() as f64 / f64::from(draws);
        assert!((first * zipf.zeta - 1.0).abs() < 0.05, "share={first}");
    }

    #[test]
    fn every_draw_is_in_range() {
        let mut random = Random::new(4);
        let (scrambled, latest) = (ScrambledZipf::new(1_000), Latest::new(1_000));
        for _ in 0..50_000 {
            assert!(scrambled.next(&mut random) < 1_000);
            assert!(latest.next(&mut random, 10) < 10);
        }
    }
}
