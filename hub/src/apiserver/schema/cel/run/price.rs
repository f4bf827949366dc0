//! What a call that was made cost.

use super::calls::held;
use kube_cel::cel::Value as Cel;

/// For each letter of a text that is gone through.
const LETTER: f64 = 0.1;
/// For each letter of a pattern.
const PATTERN: f64 = 0.25;
const LIST: u64 = 10;
/// For a pattern that is not known.
const LONG_PATTERN: u64 = 128;

/// The cost of a call, whose first value is what it was called on, if anything.
pub(super) fn of(function: &str, form: &str, values: &[Cel], result: &Cel) -> u64 {
    let size = |at: usize| values.get(at).map_or(1, size);
    let walked = |size: u64| scaled(size, LETTER);
    let matched = |pattern: u64| scaled(size(0) + 1, LETTER) * scaled(pattern, PATTERN);
    let listed = |each: f64, size: u64| scaled_down(size, each) + 1 + LIST;
    if let Some(cost) = of_lists(form, values, result, listed) {
        return cost;
    }
    match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            return values.first().map_or(0, all);
        }
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" => return walked(size(0)),
        "ip" if form == "cidr_ip" => return 1,
        "ip" => return walked(size(0)),
        "replace" | "split" | "ip.isCanonical" => return scaled(size(0), 2.0 * LETTER),
        "join" => return scaled(self::size(result), 2.0 * LETTER),
        "find" | "findAll" => return matched(size(1)),
        "validate" => {
            return scaled(size(1) + 1, LETTER) * scaled(LONG_PATTERN, PATTERN);
        }
        _ => {}
    }
    match form {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => walked(size(0)),
        "in_list" => size(1),
        "equals" | "not_equals" => walked(size(0).min(size(1))),
        "add_string" | "add_bytes" => walked(size(0) + size(1)),
        "matches_string" => matched(size(1)),
        "contains_string" => walked(size(0)) * walked(size(1)),
        _ if is_order_of_texts(form) => walked(size(0).min(size(1))),
        _ => 1,
    }
}

fn of_lists(
    form: &str,
    values: &[Cel],
    result: &Cel,
    listed: impl Fn(f64, u64) -> u64,
) -> Option<u64> {
    let count = |at: usize| values.get(at).map_or(1, size);
    let with_itself = |at: usize| {
        let walked = match values.get(at) {
            Some(Cel::List(list)) => {
                matches!(list.first(), Some(Cel::String(_) | Cel::Bytes(_)))
            }
            _ => false,
        };
        let each = if walked { 2.0 + LETTER } else { 2.0 };
        listed(each, count(at).saturating_mul(count(at)))
    };
    Some(match form {
        "list_slice" | "lists_range" | "list_reverse" => listed(1.0, size(result)),
        "list_flatten" | "list_flatten_int" => listed(1.0, count(0)),
        "list_distinct" => with_itself(0),
        _ if form.ends_with("_sort") => with_itself(0),
        _ if form.ends_with("_sortByAssociatedKeys") => with_itself(1),
        "list_sets_equivalent_list" => 1 + 2 * count(0).saturating_mul(count(1)),
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            1 + count(0).saturating_mul(count(1))
        }
        _ => return None,
    })
}

fn is_order_of_texts(form: &str) -> bool {
    let ordered = form.starts_with("less_") || form.starts_with("greater_");
    ordered && (form.ends_with("_string") || form.ends_with("_bytes"))
}

/// How many letters, bytes or members a value has.
fn size(value: &Cel) -> u64 {
    let size = match value {
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(list) => list.len(),
        Cel::Map(map) => map.map.len(),
        other => match held(other) {
            Some(Some(inner)) => return size(inner),
            _ => 1,
        },
    };
    size as u64
}

/// What going through all of a value costs.
fn all(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => scaled_down(text.len() as u64, LETTER),
        Cel::Bytes(bytes) => scaled_down(bytes.len() as u64, LETTER),
        Cel::List(list) => list.iter().map(all).sum(),
        Cel::Map(map) => {
            let pairs = map.map.iter();
            pairs
                .map(|(key, value)| all(&Cel::from(key)) + all(value))
                .sum()
        }
        _ => 1,
    }
}

fn scaled(count: u64, each: f64) -> u64 {
    cut(product(count, each).ceil())
}

fn scaled_down(count: u64, each: f64) -> u64 {
    cut(product(count, each))
}

#[expect(clippy::cast_precision_loss, reason = "sizes are small")]
fn product(count: u64, each: f64) -> f64 {
    count as f64 * each
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are small and not negative"
)]
fn cut(size: f64) -> u64 {
    size as u64
}
