//! Numbers of values that have no Go type: what is no int64 is a float64, and a float64 is written as
//! the shortest text that stands for it, which reads as a whole number where it has no fraction.

use serde_json::{Number, Value};

/// From here on Go writes an exponent.
const EXPONENT: f64 = 1e21;

/// Puts all numbers into the form in which Go reads back what it wrote.
pub(crate) fn settle(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(written) = settled(number) {
                *number = written;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(members) => members.values_mut().for_each(settle),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The same number as Go writes it; `None` where that changes nothing.
fn settled(number: &Number) -> Option<Number> {
    if number.is_i64() {
        return None;
    }
    let float = number.as_f64()?;
    if float.fract() != 0.0 || float.abs() >= EXPONENT {
        return None;
    }
    let text = float.to_string();
    let whole = text.parse::<i64>().map(Number::from);
    whole
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_without_a_fraction_are_whole() {
        let mut value =
            json!({"a": 1.0, "b": [1e3, 0.5, -0.0, 1e21, 1.5e-7, i64::MAX], "c": 1_u64 << 63});
        settle(&mut value);
        assert_eq!(
            value,
            json!({"a": 1, "b": [1000, 0.5, 0, 1e21, 1.5e-7, i64::MAX], "c": 9_223_372_036_854_776_000_u64})
        );
        let once = value.clone();
        settle(&mut value);
        assert_eq!(value, once);
    }
}
