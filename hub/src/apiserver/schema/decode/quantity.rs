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
    /// What `nano` has no room for: a number and its power of ten.
    beyond: Option<(i128, i32)>,
}

const MILLI: i128 = 1_000_000;
const ONE: i128 = 1_000_000_000;
/// As far as binary ones go: 2^63-1.
const MAX: i128 = (i64::MAX as i128) * ONE;

/// No power of ten is larger.
const MOST_POWER: i32 = 1_000_000;

const MALFORMED: &str = "quantities must match the regular expression \
                         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Whether a quantity has no part of a unit.
pub(crate) fn is_whole(text: &str) -> bool {
    parse(text).is_ok_and(Quantity::is_whole)
}

/// Whether a quantity is more than another.
pub(crate) fn above(text: &str, other: &str) -> bool {
    let amount = |text| parse(text).map(Quantity::nano);
    matches!((amount(text), amount(other)), (Ok(a), Ok(b)) if a > b)
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
    // More digits than fit here do not change it.
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let mantissa: i128 = match digits {
        "" => 0,
        digits => digits.parse().unwrap_or(i128::MAX),
    };
    let shift = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let sign = if negative { -1 } else { 1 };
    let (nano, beyond) = if base_two {
        let scaled = mantissa
            .checked_mul(1_i128 << exponent)
            .and_then(|n| n.checked_mul(ONE))
            .unwrap_or(MAX);
        (times_ten(scaled, -shift).unwrap_or(MAX).min(MAX), None)
    } else {
        let power = exponent.saturating_sub(shift);
        match times_ten(mantissa, power.saturating_add(9)) {
            Some(nano) => (nano, None),
            None => (i128::MAX, Some((sign * mantissa, power))),
        }
    };
    Ok(Quantity {
        nano: sign * nano,
        format,
        beyond,
    })
}

/// A quantity as Go writes it once it was read.
pub(crate) fn written(text: &str) -> Result<String, String> {
    let parsed = parse(text)?;
    Ok(match kept(text) {
        Some(_) => text.to_owned(),
        None => parsed.to_string(),
    })
}

/// The same of one in a list of resources, which has nothing below thousandths.
pub(crate) fn written_in_milli(text: &str) -> Result<String, String> {
    let parsed = parse(text)?;
    Ok(match kept(text) {
        Some(scale) if scale >= -3 => text.to_owned(),
        _ => parsed.round_up_to_milli().to_string(),
    })
}

/// The power of ten of a quantity whose text is taken for its shortest form and kept.
fn kept(text: &str) -> Option<i32> {
    /// A decimal, and a binary number, of more digits is not looked at closely.
    const DECIMAL: usize = 18;
    const BINARY: usize = 14;
    if text == "0" {
        return Some(0);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let (_, base_two, exponent) = scale(suffix)?;
    if base_two {
        let thousands = usize::try_from(exponent).ok()? * 3 / 10;
        let value: i64 = whole.parse().ok()?;
        let fits = fraction.is_empty() && whole.len() + thousands <= BINARY;
        return (fits && value & 7 != 0).then_some(0);
    }
    let digits = format!("{whole}{fraction}");
    let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let shortest = digits.len() <= DECIMAL
        && scale >= -9
        && scale % 3 == 0
        && !digits.ends_with("000")
        && !digits.starts_with('0');
    shortest.then_some(scale)
}

/// Multiplied by a power of ten, away from zero where digits are lost; `None` where there is no room.
fn times_ten(number: i128, exponent: i32) -> Option<i128> {
    let mut scaled = number;
    if exponent >= 0 {
        for _ in 0..exponent {
            if scaled == 0 {
                break;
            }
            scaled = scaled.checked_mul(10)?;
        }
        return Some(scaled);
    }
    let mut lost = false;
    for _ in exponent..0 {
        lost |= scaled % 10 != 0;
        scaled /= 10;
        if scaled == 0 {
            break;
        }
    }
    Some(scaled + i128::from(lost))
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
            (-MOST_POWER..=MOST_POWER)
                .contains(&power)
                .then_some((Format::Exponent, false, power))
        }
    }
}

impl Quantity {
    /// The same without anything below thousandths.
    pub(crate) fn round_up_to_milli(self) -> Self {
        let rest = self.nano % MILLI;
        let nano = if rest == 0 || self.beyond.is_some() {
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

    /// In thousand millionths, for those who reckon with it: none is so large that sums of some wrap around.
    pub(crate) fn bounded_nano(self) -> i128 {
        self.nano.clamp(-MAX, MAX)
    }

    /// Whether it is a whole number.
    pub(crate) fn is_whole(self) -> bool {
        self.beyond.is_some() || self.nano % ONE == 0
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
        let (mut number, mut exponent) = self.beyond.unwrap_or((self.nano, -9));
        while number % 10 == 0 {
            number /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            number = number.saturating_mul(10);
            exponent -= 1;
        }
        if self.format == Format::Exponent || exponent > 18 {
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
    fn what_seems_to_be_shortest_is_kept() {
        for (text, kept) in [
            ("010", "010"),
            ("+5", "+5"),
            ("5.", "5."),
            ("1E3", "1E3"),
            ("99999999999999999999", "99999999999999999999"),
            ("1e400", "10e399"),
            ("1e1", "10"),
            ("1000000k", "1G"),
            ("1.0Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1n", "1m"),
            ("1000m", "1"),
            ("0", "0"),
        ] {
            assert_eq!(written_in_milli(text), Ok(kept.to_owned()), "{text}");
        }
        assert_eq!(written("1n"), Ok("1n".to_owned()));
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
