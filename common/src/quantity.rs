//! Kubernetes quantities: exact parsing, arithmetic in whole nanos, and the canonical text.
//!
//! Pure. An API server stores quantities with at most nine fraction digits and magnitudes up to
//! 2^63-1, so an `i128` of nanos holds every value and every sum a cluster can have.

use std::fmt;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Larger magnitudes are cut to this, as Kubernetes does.
const CAP: i128 = (i64::MAX as i128) * NANOS;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct InvalidQuantity(String);

/// An exact amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Which suffixes the canonical text uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `m`, `k`, `M`, ...
    Decimal,
    /// `Ki`, `Mi`, ... for magnitudes from 1024.
    Binary,
}

impl Format {
    /// The format in which a resource is customarily written: bytes in powers of 1024.
    pub fn of_resource(name: &str) -> Self {
        let bytes = name == "memory" || name.ends_with("storage") || name.starts_with("hugepages-");
        if bytes { Self::Binary } else { Self::Decimal }
    }
}

impl Quantity {
    /// Reads a quantity; finer than a nano is rounded away from zero, as Kubernetes does.
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        parse(text).ok_or_else(|| InvalidQuantity(text.chars().take(64).collect()))
    }

    /// From thousandths.
    pub fn from_milli(milli: i128) -> Self {
        Self {
            nanos: milli.saturating_mul(NANOS_PER_MILLI),
        }
    }

    /// Thousandths, rounded up: the precision in which an API server keeps resource lists.
    pub fn milli_ceil(self) -> i128 {
        div_ceil(self.nanos, NANOS_PER_MILLI)
    }

    /// The canonical text: no fraction, no precision lost, the largest suffix that allows both.
    pub fn canonical(self, format: Format) -> impl fmt::Display {
        Canonical(self, format)
    }

    /// The amount as a float, for gauges only.
    pub fn approximate(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is an approximation")]
        let nanos = self.nanos as f64;
        nanos / 1e9
    }
}

struct Canonical(Quantity, Format);

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Quantity { nanos }, format) = *self;
        if format == Format::Binary && nanos.abs() >= 1024 * NANOS {
            let mut whole = div_ceil(nanos, NANOS);
            let mut suffix = "";
            for next in BINARY {
                if whole % 1024 != 0 {
                    break;
                }
                whole /= 1024;
                suffix = next;
            }
            return write!(f, "{whole}{suffix}");
        }
        if nanos == 0 {
            return f.write_str("0");
        }
        let mut mantissa = nanos;
        let mut step = 0;
        while mantissa % 1000 == 0 && step + 1 < DECIMAL.len() {
            mantissa /= 1000;
            step += 1;
        }
        write!(f, "{mantissa}{}", DECIMAL[step].0)
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits: i128 = match format!("{whole}{fraction}").trim_start_matches('0') {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let fraction = i32::try_from(fraction.len()).ok()?;
    let magnitude = match BINARY.iter().position(|s| *s == suffix) {
        Some(power) => {
            let scale = 1i128 << (10 * (power + 1));
            match digits.checked_mul(scale) {
                Some(scaled) => shift(scaled, 9 - fraction),
                None => CAP,
            }
        }
        None => shift(digits, 9 - fraction + decimal_exponent(suffix)?),
    };
    let magnitude = magnitude.min(CAP);
    Some(Quantity {
        nanos: if negative { -magnitude } else { magnitude },
    })
}

/// The power of ten a suffix stands for: `k`, or `e3`, `E-2`.
fn decimal_exponent(suffix: &str) -> Option<i32> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some(*exponent);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Beyond this every value is zero or over the cap; the bound keeps the sums in range.
    Some(exponent.clamp(-1000, 1000))
}

/// `digits` × 10^`exponent`, rounded up, cut to the cap; `digits` is not negative.
fn shift(digits: i128, exponent: i32) -> i128 {
    if digits == 0 {
        return 0;
    }
    match 10i128.checked_pow(exponent.unsigned_abs()) {
        Some(power) if exponent < 0 => div_ceil(digits, power),
        Some(power) => digits.checked_mul(power).unwrap_or(CAP),
        None if exponent < 0 => 1,
        None => CAP,
    }
}

/// Division that rounds away from zero; `by` is positive.
fn div_ceil(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    match value % by {
        0 => quotient,
        rest => quotient + rest.signum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str, format: Format) -> String {
        Quantity::parse(text)
            .expect("a quantity")
            .canonical(format)
            .to_string()
    }

    #[test]
    fn texts_become_canonical() {
        let cases = [
            ("0", Format::Decimal, "0"),
            ("-0", Format::Decimal, "0"),
            ("100m", Format::Decimal, "100m"),
            ("0.1", Format::Decimal, "100m"),
            (".5", Format::Decimal, "500m"),
            ("1.", Format::Decimal, "1"),
            ("+32", Format::Decimal, "32"),
            ("1000m", Format::Decimal, "1"),
            ("12000", Format::Decimal, "12k"),
            ("1e3", Format::Decimal, "1k"),
            ("1E3", Format::Decimal, "1k"),
            ("1E", Format::Decimal, "1E"),
            ("25e-1", Format::Decimal, "2500m"),
            ("1n", Format::Decimal, "1n"),
            ("0.1n", Format::Decimal, "1n"),
            ("-0.1n", Format::Decimal, "-1n"),
            ("128Gi", Format::Binary, "128Gi"),
            ("1.5Gi", Format::Binary, "1536Mi"),
            ("1023", Format::Binary, "1023"),
            ("1024", Format::Binary, "1Ki"),
            ("1000", Format::Binary, "1k"),
            ("16412345Ki", Format::Binary, "16412345Ki"),
            (
                "9223372036854775807",
                Format::Decimal,
                "9223372036854775807",
            ),
            (
                "9223372036854775808",
                Format::Decimal,
                "9223372036854775807",
            ),
            ("1e400", Format::Decimal, "9223372036854775807"),
            ("1e-400", Format::Decimal, "1n"),
            ("1000Ei", Format::Decimal, "9223372036854775807"),
        ];
        for (text, format, want) in cases {
            assert_eq!(canonical(text, format), want, "{text}");
        }
        for bad in [
            "", "-", ".", "m", "1.2.3", "1x", "1kk", "1e", "e3", "1 ", "--1", "1Kib",
        ] {
            assert!(Quantity::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bytes_are_written_in_powers_of_1024() {
        for name in ["memory", "ephemeral-storage", "storage", "hugepages-2Mi"] {
            assert_eq!(Format::of_resource(name), Format::Binary);
        }
        for name in ["cpu", "pods", "nvidia.com/gpu"] {
            assert_eq!(Format::of_resource(name), Format::Decimal);
        }
    }

    proptest! {
        #[test]
        fn canonical_text_reads_back(milli in -9_000_000_000_000_000i128..9_000_000_000_000_000) {
            let quantity = Quantity::from_milli(milli);
            let text = quantity.canonical(Format::Decimal).to_string();
            prop_assert_eq!(Quantity::parse(&text), Ok(quantity));
            let whole = Quantity::from_milli(milli * 1000);
            let text = whole.canonical(Format::Binary).to_string();
            prop_assert_eq!(Quantity::parse(&text), Ok(whole));
        }

        #[test]
        fn suffixes_agree(digits in 0u32..u32::MAX) {
            let same = |a: String, b: String| {
                prop_assert_eq!(Quantity::parse(&a), Quantity::parse(&b));
                Ok(())
            };
            same(format!("{digits}m"), format!("{digits}e-3"))?;
            same(format!("{digits}k"), format!("{digits}000"))?;
            same(format!("{digits}Ki"), format!("{}", u64::from(digits) * 1024))?;
            same(format!("{digits}.5Mi"), format!("{}", u64::from(digits) * (1 << 20) + (1 << 19)))?;
        }

        #[test]
        fn milli_never_rounds_down(nanos in 0u64..10_000_000_000) {
            let quantity = Quantity::parse(&format!("{nanos}n")).expect("a quantity");
            let milli = quantity.milli_ceil();
            prop_assert!(Quantity::from_milli(milli) >= quantity);
            prop_assert!(Quantity::from_milli(milli - 1) < quantity);
        }

        #[test]
        fn any_text_is_judged_without_panic(text in "[-+0-9.eEkMGTPKinum]{0,60}") {
            let _ = Quantity::parse(&text);
        }
    }
}
