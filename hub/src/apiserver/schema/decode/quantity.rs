//! Quantities: numbers with a suffix.

use std::fmt;

/// How a quantity was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// A quantity in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    nano: i128,
    format: Format,
}

const MILLI: i128 = 1_000_000;
const ONE: i128 = 1_000_000_000;
/// As far as the type goes: 2^63-1.
const MAX: i128 = (i64::MAX as i128) * ONE;

const MALFORMED: &str = "quantities must match the regular expression \
                         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Whether a quantity has no part of a unit.
pub(crate) fn is_whole(text: &str) -> bool {
    parse(text).is_ok_and(Quantity::is_whole)
}

/// Reads a quantity; the error is Go's text.
pub(crate) fn parse(text: &str) -> Result<Quantity, String> {
    let malformed = || MALFORMED.to_owned();
    if text.is_empty() {
        return Err(malformed());
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.len() + fraction.len();
    if digits == 0 || fraction.contains('.') {
        return Err(malformed());
    }
    let well_formed = suffix
        .trim_start_matches(|c: char| "eEinumkKMGTP".contains(c))
        .trim_start_matches(['+', '-']);
    if !well_formed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(malformed());
    }
    let (format, base_two, exponent) = scale(suffix).ok_or(SUFFIX.to_owned())?;
    // More digits than a quantity can hold do not change it.
    let mantissa: i128 = format!("{whole}{fraction}")
        .trim_start_matches('0')
        .get(..)
        .map(|all| if all.is_empty() { "0" } else { all })
        .and_then(|all| all.parse().ok())
        .unwrap_or(MAX);
    let shift = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let nano = if base_two {
        let scaled = mantissa
            .checked_mul(1_i128 << exponent)
            .and_then(|n| n.checked_mul(ONE))
            .unwrap_or(MAX);
        times_ten(scaled, -shift)
    } else {
        times_ten(mantissa, exponent + 9 - shift)
    }
    .min(MAX);
    Ok(Quantity {
        nano: if negative { -nano } else { nano },
        format,
    })
}

/// Multiplied by a power of ten, away from zero where digits are lost.
fn times_ten(number: i128, exponent: i32) -> i128 {
    let mut scaled = number;
    if exponent >= 0 {
        for _ in 0..exponent {
            scaled = match scaled.checked_mul(10) {
                Some(more) => more,
                None => return MAX,
            };
        }
        return scaled;
    }
    let mut lost = false;
    for _ in exponent..0 {
        lost |= scaled % 10 != 0;
        scaled /= 10;
        if scaled == 0 {
            break;
        }
    }
    scaled + i128::from(lost)
}

fn scale(suffix: &str) -> Option<(Format, bool, i32)> {
    let decimal = |exponent| Some((Format::Decimal, false, exponent));
    let binary = |exponent| Some((Format::Binary, true, exponent));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?;
            let power: i32 = power.parse().ok()?;
            (-100..=100)
                .contains(&power)
                .then_some((Format::Exponent, false, power))
        }
    }
}

impl Quantity {
    /// The same without anything below thousandths.
    pub(crate) fn round_up_to_milli(self) -> Self {
        let rest = self.nano % MILLI;
        let nano = if rest == 0 {
            self.nano
        } else {
            self.nano - rest + MILLI * rest.signum()
        };
        Self { nano, ..self }
    }

    /// In billionths, to compare.
    pub(crate) fn nano(self) -> i128 {
        self.nano
    }

    /// Whether it is a whole number.
    pub(crate) fn is_whole(self) -> bool {
        self.nano % ONE == 0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano > -1024 * ONE && self.nano < 1024 * ONE;
        if self.format == Format::Binary && !small && self.is_whole() {
            let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            let mut number = self.nano / ONE;
            let mut at = 0;
            while number % 1024 == 0 && at + 1 < suffixes.len() {
                number /= 1024;
                at += 1;
            }
            return write!(f, "{number}{}", suffixes.get(at).unwrap_or(&""));
        }
        let mut number = self.nano;
        let mut exponent = -9;
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::Exponent {
            return if exponent == 0 {
                write!(f, "{number}")
            } else {
                write!(f, "{number}e{exponent}")
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{number}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form_loses_nothing() {
        let cases = [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("2048Ki", "2Mi"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("100Mi", "100Mi"),
            ("0", "0"),
            ("0.0", "0"),
            ("-2000m", "-2"),
            ("1Ki", "1Ki"),
            ("512Ki", "512Ki"),
            ("1000k", "1M"),
            ("0.1m", "100u"),
            (".5", "500m"),
            ("5.", "5"),
            ("1E2", "100"),
        ];
        for (text, shortest) in cases {
            assert_eq!(
                parse(text).map(|q| q.to_string()),
                Ok(shortest.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn resources_are_rounded_to_thousandths() {
        for (text, rounded) in [
            ("0.1m", "1m"),
            ("1.0001", "1001m"),
            ("100u", "1m"),
            ("3", "3"),
        ] {
            let parsed = parse(text).map(Quantity::round_up_to_milli);
            assert_eq!(
                parsed.map(|q| q.to_string()),
                Ok(rounded.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_none_is_refused_in_the_known_words() {
        for (text, error) in [
            ("", MALFORMED),
            ("x", MALFORMED),
            ("1Q", MALFORMED),
            ("1.2.3", MALFORMED),
            ("1mm", SUFFIX),
            ("1i", SUFFIX),
            ("1 Gi", MALFORMED),
        ] {
            assert_eq!(parse(text).err().as_deref(), Some(error), "{text}");
        }
    }
}
