//! Certificate requests that are decided, forgotten or used up. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use x509_parser::prelude::FromDer as _;

const DECIDED: TimeDelta = TimeDelta::hours(1);
const PENDING: TimeDelta = TimeDelta::hours(24);

/// Whether nobody needs a request any more.
pub(super) fn is_over(request: &Value, now: DateTime<Utc>) -> bool {
    let time = |value: &Value| {
        let time = DateTime::parse_from_rfc3339(value.as_str()?).ok()?;
        Some(time.with_timezone(&Utc))
    };
    let older = |value: &Value, age: TimeDelta| time(value).is_some_and(|at| at + age < now);
    let conditions = request["status"]["conditions"].as_array();
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    if conditions.is_empty() && older(&request["metadata"]["creationTimestamp"], PENDING) {
        return true;
    }
    let decided = conditions
        .iter()
        .filter(|one| matches!(one["type"].as_str(), Some("Approved" | "Denied" | "Failed")));
    if decided
        .into_iter()
        .any(|one| older(&one["lastUpdateTime"], DECIDED))
    {
        return true;
    }
    let certificate = request["status"]["certificate"]
        .as_str()
        .unwrap_or_default();
    ends(certificate).is_some_and(|end| end < now)
}

/// When a certificate in base64 of PEM runs out.
fn ends(encoded: &str) -> Option<DateTime<Utc>> {
    let pem = BASE64_STANDARD.decode(encoded).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, certificate) =
        x509_parser::certificate::X509Certificate::from_der(&pem.contents).ok()?;
    DateTime::from_timestamp(certificate.validity().not_after.timestamp(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_end() {
        let hours = |hours: i64| {
            let at = DateTime::from_timestamp(hours * 3600, 0).expect("in range");
            at.to_rfc3339()
        };
        let now = DateTime::from_timestamp(100 * 3600 + 1, 0).expect("in range");
        let request = |created: i64, decided: Option<(&str, i64)>| {
            let conditions: Vec<Value> = decided
                .into_iter()
                .map(|(kind, at)| json!({"type": kind, "lastUpdateTime": hours(at)}))
                .collect();
            json!({"metadata": {"creationTimestamp": hours(created)},
                "status": {"conditions": conditions}})
        };
        let cases = [
            (request(99, None), false),
            (request(76, None), true),
            (request(10, Some(("Approved", 100))), false),
            (request(10, Some(("Approved", 99))), true),
            (request(10, Some(("Denied", 99))), true),
            (request(10, Some(("Other", 99))), false),
        ];
        for (request, over) in cases {
            assert_eq!(is_over(&request, now), over, "{request}");
        }
    }
}
