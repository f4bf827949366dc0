//! Values that JSON has in one piece: times, quantities, bytes.

use super::Unread;
use super::wire::{Field, Reader};
use crate::apiserver::schema::shown_duration;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use serde_json::Value;

/// Seconds of the year 1, which Go writes for no time at all.
const NO_TIME: i64 = -62_135_596_800;

/// Text, which has to be text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Unread> {
    std::str::from_utf8(bytes).map_err(|_| Unread::Wire("a string has bytes that are no UTF-8"))
}

/// Bytes as base64.
pub(super) fn bytes(bytes: &[u8]) -> Value {
    Value::from(STANDARD.encode(bytes))
}

/// A number that is negative when its highest bit says so.
#[allow(clippy::cast_possible_wrap, reason = "varints are two's complement")]
pub(super) fn signed(number: u64) -> i64 {
    number as i64
}

/// The numbers of a message that has no others.
fn numbers(message: &[u8]) -> Result<[i64; 2], Unread> {
    let mut found = [0; 2];
    let mut reader = Reader::new(message);
    while let Some((number, field)) = reader.next()? {
        if let (1 | 2, Field::Varint(value)) = (number, field) {
            found[usize::from(number == 2)] = signed(value);
        }
    }
    Ok(found)
}

/// The bytes of a message that has no others.
pub(super) fn only(message: &[u8]) -> Result<&[u8], Unread> {
    let mut found: &[u8] = &[];
    let mut reader = Reader::new(message);
    while let Some((number, field)) = reader.next()? {
        if let (1, Field::Bytes(bytes)) = (number, field) {
            found = bytes;
        }
    }
    Ok(found)
}

/// A time, to the second or to the microsecond.
pub(super) fn time(message: &[u8], micro: bool) -> Result<Value, Unread> {
    let [seconds, nanos] = numbers(message)?;
    if (seconds == 0 && nanos == 0) || seconds == NO_TIME {
        return Ok(Value::Null);
    }
    let nanos = if micro {
        u32::try_from(nanos).unwrap_or(0)
    } else {
        0
    };
    let time = DateTime::from_timestamp(seconds, nanos)
        .ok_or(Unread::Wire("a time is out of all range"))?;
    let format = if micro {
        SecondsFormat::Micros
    } else {
        SecondsFormat::Secs
    };
    Ok(Value::from(time.to_rfc3339_opts(format, true)))
}

/// `1h2m`.
pub(super) fn duration(message: &[u8]) -> Result<Value, Unread> {
    let [nanos, _] = numbers(message)?;
    Ok(Value::from(shown_duration(nanos)))
}

/// A quantity is sent as it was written.
pub(super) fn quantity(message: &[u8]) -> Result<Value, Unread> {
    let shown = text(only(message)?)?;
    Ok(Value::from(if shown.is_empty() { "0" } else { shown }))
}

/// A number or a string, whichever its type says.
pub(super) fn int_or_string(message: &[u8]) -> Result<Value, Unread> {
    let (mut is_string, mut number, mut shown) = (false, 0, "");
    let mut reader = Reader::new(message);
    while let Some((at, field)) = reader.next()? {
        match (at, field) {
            (1, Field::Varint(kind)) => is_string = kind == 1,
            (2, Field::Varint(value)) => number = int32(value),
            (3, Field::Bytes(bytes)) => shown = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_string {
        Value::from(shown)
    } else {
        Value::from(number)
    })
}

/// The lower half of a number.
#[allow(clippy::cast_possible_truncation, reason = "as Go reads it")]
pub(super) fn int32(number: u64) -> i32 {
    number as u32 as i32
}

/// A number as Go writes it: whole ones without a point.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(super) fn float(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

/// JSON within a message; nothing is null.
pub(super) fn json(raw: &[u8], field: &str) -> Result<Value, Unread> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|_| Unread::Json(field.to_owned()))
}
