//! Sizes, counts and times, from and for people.

use std::time::Duration;

/// Parses a size: bytes, or with K, M, G, T (powers of 1024; `KiB` and the like are the same).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text.trim_end_matches("iB").trim_end_matches('B'), 1 << 10)
}

/// Parses a count: a number, or with k, M, G (powers of 1000).
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    parse(text, 1_000)
}

/// Parses a time in seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("not a time in seconds: {text:?}"))
}

/// `_` may stand between digits anywhere, `,` only where it groups thousands: `1,5G` may mean one and a half.
fn parse(text: &str, thousand: u64) -> Result<u64, String> {
    let wrong = || format!("not a number with an optional K, M, G or T: {text:?}");
    let mut groups = text.split(',').skip(1);
    if groups.any(|group| group.bytes().take_while(u8::is_ascii_digit).count() != 3) {
        return Err(format!("{text:?}: a comma groups thousands here (1,500,000); a fraction takes a point (1.5)"));
    }
    let digits: String = text.chars().filter(|character| !matches!(character, '_' | ',')).collect();
    let (number, unit) = match digits.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (&digits[..at], unit.to_ascii_uppercase()),
        _ => (digits.as_str(), ' '),
    };
    let power = match unit {
        ' ' => 0,
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ => return Err(wrong()),
    };
    let factor = thousand.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok((value * factor as f64).round() as u64),
        _ => Err(wrong()),
    }
}

/// A number of bytes, with a unit.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{} {unit}", digits(value)) }
}

/// A count, its thousands grouped.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time given in microseconds, with the unit that fits.
pub(crate) fn micros(value: u64) -> String {
    match value {
        0..1_000 => format!("{value} µs"),
        1_000..1_000_000 => format!("{} ms", digits(value as f64 / 1e3)),
        _ => format!("{} s", digits(value as f64 / 1e6)),
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("256M"), Ok(256 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_count("2_000k"), Ok(2_000_000));
        assert_eq!(parse_count("20M"), Ok(20_000_000));
        assert_eq!(parse_count("1,234,567"), Ok(1_234_567));
        assert_eq!(parse_count("1,500k"), Ok(1_500_000));
        for wrong in ["", "M", "-1", "1x", "99999999999T", "1,5G", "1,", "1,2345"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_a_time_that_can_pass() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("8"), Ok(Duration::from_secs(8)));
        for wrong in ["", "x", "-1", "nan", "inf", "1e20"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_shown_with_three_digits() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(micros(12_345), "12.3 ms");
        assert_eq!(micros(999), "999 µs");
    }
}
