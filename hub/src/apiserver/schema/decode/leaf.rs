//! Types that read and write themselves: times, durations, quantities, bytes.

use super::quantity;
use crate::go::quote;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| {
        format!(
            "json: cannot unmarshal {} into Go value of type string",
            super::found(value)
        )
    })
}

fn instant(text: &str, layout: &str) -> Result<DateTime<Utc>, String> {
    // Go reads an upper-case T and Z, and a fraction of any length unless the layout has one.
    let parsed = DateTime::parse_from_rfc3339(text).ok();
    let shape = text.as_bytes();
    let whole = layout == SECONDS || fraction(text) == 6;
    parsed
        .filter(|_| shape.get(10) == Some(&b'T') && !text.ends_with('z') && whole)
        .map(|at| at.to_utc())
        .ok_or_else(|| not_a_time(text, layout))
}

/// How many digits of a second there are.
fn fraction(text: &str) -> usize {
    let after = text.get(19..).and_then(|rest| rest.strip_prefix('.'));
    after.map_or(0, |rest| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    })
}

/// Go says what of the layout was not found; the parts are taken one by one.
fn not_a_time(text: &str, layout: &str) -> String {
    let parts: [(&str, usize, bool); 11] = [
        ("2006", 4, true),
        ("-", 1, false),
        ("01", 2, true),
        ("-", 1, false),
        ("02", 2, true),
        ("T", 1, false),
        ("15", 2, true),
        (":", 1, false),
        ("04", 2, true),
        (":", 1, false),
        ("05", 2, true),
    ];
    let mut rest = text;
    for (part, length, digits) in parts {
        let fits = rest.get(..length).is_some_and(|found| {
            if digits {
                found.bytes().all(|b| b.is_ascii_digit())
            } else {
                found == part
            }
        });
        if !fits {
            return format!(
                "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"
            );
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    if layout == MICROS && fraction(text) != 6 {
        return format!(
            "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \".000000\""
        );
    }
    format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \"Z07:00\"")
}

pub(super) fn time(value: &mut Value) -> Result<(), String> {
    let at = instant(text(value)?, SECONDS)?;
    *value = Value::from(at.to_rfc3339_opts(SecondsFormat::Secs, true));
    Ok(())
}

pub(super) fn micro_time(value: &mut Value) -> Result<(), String> {
    let at = instant(text(value)?, MICROS)?;
    *value = Value::from(at.to_rfc3339_opts(SecondsFormat::Micros, true));
    Ok(())
}

pub(super) fn bytes(value: &mut Value) -> Result<(), String> {
    let given = text(value)?;
    let compact: String = given
        .chars()
        .filter(|c| !matches!(c, '\n' | '\r'))
        .collect();
    match STANDARD.decode(&compact) {
        Ok(_) => {
            *value = Value::String(compact);
            Ok(())
        }
        Err(_) => Err(format!(
            "illegal base64 data at input byte {}",
            first_illegal(given)
        )),
    }
}

/// Where Go's decoder stops.
fn first_illegal(text: &str) -> usize {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'\n' | b'\r');
    let padding = text.bytes().position(|b| !fits(b)).unwrap_or(text.len());
    let rest = text.as_bytes().get(padding..).unwrap_or_default();
    let quads = padding / 4 * 4;
    match rest {
        // Too short: the last group of four began here.
        [] => quads,
        [b'=', ..] if padding % 4 >= 2 => (padding + 1 + (padding + 1) % 4 / 3).min(text.len()),
        _ => padding,
    }
}

pub(super) fn duration(value: &mut Value) -> Result<(), String> {
    let given = text(value)?;
    let nanos = parse_duration(given).ok_or_else(|| format!("time: invalid duration {given:?}"))?;
    *value = Value::from(shown_duration(nanos));
    Ok(())
}

/// The same, with what Go says of a text that is none.
pub(crate) fn duration_nanos(text: &str) -> Result<i64, String> {
    parse_duration(text).ok_or_else(|| {
        let said = format!("duration {}", quote(text));
        let bare = text.trim_start_matches(['-', '+']);
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let mut units = bare.split(number).filter(|unit| !unit.is_empty());
        let known = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        match units.find(|unit| !known.contains(unit)) {
            _ if !bare.starts_with(number) => format!("time: invalid {said}"),
            Some(unit) => format!("time: unknown unit {} in {said}", quote(unit)),
            None if bare.ends_with(number) => format!("time: missing unit in {said}"),
            None => format!("time: invalid {said}"),
        }
    })
}

/// `1h2.5m`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_f64;
    let mut exact = 0_i64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number = rest.get(..digits)?;
        rest = rest.get(digits..)?;
        let unit_length = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let scale: i64 = match rest.get(..unit_length)? {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = rest.get(unit_length..)?;
        if let Ok(whole) = number.parse::<i64>() {
            exact = exact.checked_add(whole.checked_mul(scale)?)?;
        } else {
            #[allow(clippy::cast_precision_loss, reason = "a unit has few digits")]
            let part = number.parse::<f64>().ok()? * scale as f64;
            total += part;
        }
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below a century in nanoseconds"
    )]
    let nanos = exact.checked_add(total.round() as i64)?;
    Some(if negative { -nanos } else { nanos })
}

/// Nanoseconds as Go writes a duration.
pub(crate) fn shown_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let fraction = |of: u64, unit: &str| {
        let (whole, rest) = (all / of, all % of);
        if rest == 0 {
            return format!("{sign}{whole}{unit}");
        }
        let width = of.to_string().len() - 1;
        let digits = format!("{rest:0width$}");
        format!("{sign}{whole}.{}{unit}", digits.trim_end_matches('0'))
    };
    if all < 1_000 {
        return fraction(1, "ns");
    }
    if all < 1_000_000 {
        return fraction(1_000, "µs");
    }
    if all < 1_000_000_000 {
        return fraction(1_000_000, "ms");
    }
    let second = 1_000_000_000;
    let (hours, minutes) = (all / (3_600 * second), all / (60 * second) % 60);
    let seconds = all % (60 * second);
    let (whole, rest) = (seconds / second, seconds % second);
    let tail = if rest == 0 {
        format!("{whole}s")
    } else {
        let digits = format!("{rest:09}");
        format!("{whole}.{}s", digits.trim_end_matches('0'))
    };
    if hours > 0 {
        format!("{sign}{hours}h{minutes}m{tail}")
    } else if minutes > 0 {
        format!("{sign}{minutes}m{tail}")
    } else {
        format!("{sign}{tail}")
    }
}

pub(super) fn quantity(value: &mut Value) -> Result<(), String> {
    let given = match &*value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    *value = Value::String(quantity::written(&given)?);
    Ok(())
}

pub(super) fn int_or_string(value: &Value) -> Result<(), String> {
    match value {
        Value::String(_) => Ok(()),
        Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
            Ok(())
        }
        Value::Number(number) => Err(format!(
            "json: cannot unmarshal number {number} into Go value of type int32"
        )),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type int32",
            super::found(other)
        )),
    }
}
