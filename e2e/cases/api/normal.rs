//! Takes out of a transcript what two right servers may say differently, and nothing else: uids,
//! resourceVersions (kept by rank), times, addresses, certificates, keys, and letters drawn by chance.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::prose;
use super::run::Transcript;

/// Makes a transcript comparable; `source` is the case's text, whose own times and uids stay.
pub(crate) fn normalise(mut transcript: Transcript, source: &str) -> Transcript {
    let mut objects = BTreeSet::new();
    for seen in &transcript {
        collect_versions(&seen.body, &mut objects);
    }
    let mut normal = Normal {
        source,
        versions: objects.into_iter().collect(),
        uids: BTreeMap::new(),
        prefixes: prefixes(source),
    };
    for seen in &mut transcript {
        for (name, value) in &mut seen.headers {
            *value = match name.as_str() {
                "audit-id" | "etag" => "<set>".to_owned(),
                _ => normal.text(value),
            };
        }
        normal.value(&mut seen.body);
    }
    transcript
}

/// Makes plain text comparable.
pub(crate) fn plain(text: &str, source: &str) -> String {
    let mut normal = Normal {
        source,
        versions: Vec::new(),
        uids: BTreeMap::new(),
        prefixes: Vec::new(),
    };
    let leads = [
        "resourceVersion: \"",
        "\"resourceVersion\": \"",
        "Resource Version:  ",
    ];
    let hidden = leads
        .iter()
        .fold(text.to_owned(), |text, lead| hide_number(&text, lead));
    normal.patterns(&hidden)
}

/// One line of a table, whose columns are as wide as what is not compared makes them.
pub(crate) fn columns(line: &str) -> String {
    let words = line.split_whitespace();
    let words = words.map(|word| if is_age(word) { "<age>" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// What has a resourceVersion of the moment, not of an object.
fn is_of_a_moment(object: &Map<String, Value>) -> bool {
    let named = object
        .get("metadata")
        .is_some_and(|m| m.get("name").is_some());
    let list = ["items", "rows", "columnDefinitions"]
        .iter()
        .any(|key| object.contains_key(*key));
    list || !named
}

fn collect_versions(value: &Value, found: &mut BTreeSet<u64>) {
    match value {
        Value::Object(object) => {
            let version = object
                .get("metadata")
                .and_then(|m| m.get("resourceVersion"));
            let version = version.and_then(Value::as_str).and_then(|v| v.parse().ok());
            if let Some(version) = version
                && !is_of_a_moment(object)
            {
                found.insert(version);
            }
            object
                .values()
                .for_each(|inner| collect_versions(inner, found));
        }
        Value::Array(all) => all.iter().for_each(|inner| collect_versions(inner, found)),
        _ => {}
    }
}

struct Normal<'a> {
    source: &'a str,
    versions: Vec<u64>,
    uids: BTreeMap<String, String>,
    prefixes: Vec<&'a str>,
}

impl Normal<'_> {
    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|inner| self.value(inner)),
            Value::Object(object) => self.object(object),
            _ => {}
        }
    }

    fn object(&mut self, object: &mut Map<String, Value>) {
        let moment = is_of_a_moment(object);
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            self.metadata(metadata, moment);
        }
        for rules in ["resourceRules", "nonResourceRules"] {
            if let Some(Value::Array(rules)) = object.get_mut(rules) {
                // So are bindings.
                rules.sort_by_key(Value::to_string);
            }
        }
        if let Some(Value::Array(groups)) = object.get_mut("groups") {
            // Definitions of other cases come and go.
            let of_case = |group: &Value| {
                let name = group["name"].as_str().unwrap_or_default();
                !name.ends_with(".example.com") || self.source.contains(name)
            };
            groups.retain(of_case);
        }
        let version = object.get("groupVersion").and_then(Value::as_str);
        if version.is_some_and(|version| version.contains(".example.com/"))
            && let Some(Value::Array(resources)) = object.get_mut("resources")
        {
            // The server takes definitions as its map gives them.
            resources.sort_by_key(|one| one["name"].as_str().map(str::to_owned));
        }
        if let Some(Value::Array(causes)) = object.get_mut("causes") {
            // The server takes managers as its map gives them.
            causes.sort_by_key(|cause| match cause["reason"].as_str() {
                Some("FieldManagerConflict") => cause.to_string(),
                _ => String::new(),
            });
        }
        if object.contains_key("columnDefinitions") || object.contains_key("rows") {
            hide_ages(object);
            self.hide_prose(object);
        }
        if let Some(Value::Object(paths)) = object.get_mut("paths") {
            // So do their documents.
            paths.retain(|path, _| {
                let group = path.split('/').nth(1).unwrap_or_default();
                !group.ends_with(".example.com") || self.source.contains(group)
            });
        }
        if object.contains_key("openapi") || object.contains_key("swagger") {
            for part in ["components", "paths"] {
                if let Some(part) = object.get_mut(part) {
                    prose::hide(part, self.source);
                }
            }
        }
        if object.contains_key("kty") {
            // A key, of which each server has its own.
            for part in ["kid", "x", "y", "n"] {
                if let Some(part) = object.get_mut(part) {
                    *part = json!("<key>");
                }
            }
        }
        if let Some(Value::String(token)) = object.get_mut("token")
            && let Some(claims) = claims(token)
        {
            object.insert("token".to_owned(), claims);
        }
        // serde_json keeps keys sorted, so the first uid is the same one on both sides.
        object.values_mut().for_each(|inner| self.value(inner));
        // Lists by uid have it in the names of their fields.
        let keyed: Vec<String> = object
            .keys()
            .filter(|key| key.contains("uid"))
            .cloned()
            .collect();
        for key in keyed {
            let shown = self.text(&key);
            if shown != key
                && let Some(inner) = object.remove(&key)
            {
                object.insert(shown, inner);
            }
        }
    }

    /// Texts of the reference's own documentation, which the profile leaves out (row `prose`).
    fn hide_prose(&self, table: &mut Map<String, Value>) {
        let columns = table
            .get_mut("columnDefinitions")
            .and_then(Value::as_array_mut);
        for column in columns.into_iter().flatten() {
            let text = column["description"].as_str().unwrap_or_default();
            if !text.starts_with("Custom resource definition column") && !self.source.contains(text)
            {
                column["description"] = json!("");
            }
        }
    }

    fn metadata(&mut self, metadata: &mut Map<String, Value>, moment: bool) {
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion") {
            *version = self.version(version, moment);
        }
        if let Some(Value::String(token)) = metadata.get_mut("continue") {
            *token = self.token(token);
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            sort_managers(entries);
        }
    }

    /// `rv2`: the second smallest of the case; for a list, how many writes of the case it has seen.
    fn version(&self, text: &str, moment: bool) -> String {
        let well_formed = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(version) if well_formed => {
                let rank = self.versions.partition_point(|known| *known <= version);
                let kind = if moment { "seen" } else { "rv" };
                format!("<{kind}{rank}>")
            }
            _ if text.is_empty() => String::new(),
            _ => format!("<malformed {text}>"),
        }
    }

    /// A continue token is the server's own; ours and theirs say the same when they can be read.
    fn token(&self, token: &str) -> String {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let read = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        match read {
            Some(mut value) => {
                if let Some(version) = value.get("rv").and_then(Value::as_i64) {
                    let text = version.to_string();
                    let rank = if version < 0 {
                        text
                    } else {
                        self.version(&text, true)
                    };
                    value["rv"] = json!(rank);
                }
                value.to_string()
            }
            None if token.is_empty() => String::new(),
            None => "<token>".to_owned(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        if text.contains("-----BEGIN ") {
            return pem_kinds(text);
        }
        if text.starts_with("X509SHA256=") {
            return "X509SHA256=<certificate>".to_owned();
        }
        if text.starts_with("LS0tLS1CRUdJTi")
            && let Ok(bytes) = BASE64_STANDARD
                .decode(text)
                .or_else(|_| BASE64_STANDARD_NO_PAD.decode(text))
        {
            return pem_kinds(&String::from_utf8_lossy(&bytes));
        }
        let mut out = self.patterns(text);
        for lead in VERSION_LEADS {
            out = hide_number(&out, lead);
        }
        if out.starts_with("/openapi/v3/")
            && let Some((path, hash)) = out.split_once("?hash=")
        {
            // What a document says of itself is in it.
            let shown = if hash.is_empty() { "" } else { "<hash>" };
            out = format!("{path}?hash={shown}");
        }
        for prefix in &self.prefixes {
            out = hide_drawn(&out, prefix);
        }
        out
    }

    fn patterns(&mut self, text: &str) -> String {
        let bytes = text.as_bytes();
        let mut out = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let before = at.checked_sub(1).map(|i| bytes[i]);
            if before.is_none_or(|b| !b.is_ascii_alphanumeric()) {
                if let Some(length) = fits(rest, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
                    && !self.source.contains(&text[at..at + length])
                {
                    let next = format!("<uid{}>", self.uids.len() + 1);
                    let uid = self.uids.entry(text[at..at + length].to_owned());
                    out.extend(uid.or_insert(next).as_bytes());
                    at += length;
                    continue;
                }
                if let Some((length, kind)) = time(rest)
                    && !self.source.contains(&text[at..at + length])
                {
                    out.extend(kind.as_bytes());
                    at += length;
                    continue;
                }
                if let Some(port) = rest.strip_prefix(b"127.0.0.1:") {
                    at += 10 + port.iter().take_while(|b| b.is_ascii_digit()).count();
                    out.extend(b"<address>");
                    continue;
                }
            }
            out.push(bytes[at]);
            at += 1;
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// The length of a pattern of `x` (a hexadecimal digit), `9` (a digit), `a` (a letter) and itself.
fn fits(bytes: &[u8], pattern: &str) -> Option<usize> {
    let pattern = pattern.as_bytes();
    let fits = bytes.len() >= pattern.len()
        && pattern.iter().zip(bytes).all(|(p, b)| match p {
            b'x' => b.is_ascii_hexdigit(),
            b'9' => b.is_ascii_digit(),
            b'a' => b.is_ascii_alphabetic(),
            p => p == b,
        });
    fits.then_some(pattern.len())
}

fn time(bytes: &[u8]) -> Option<(usize, &'static str)> {
    [
        ("9999-99-99T99:99:99.999999Z", "<microtime>"),
        ("9999-99-99T99:99:99Z", "<time>"),
        ("aaa, 99 aaa 9999 99:99:99 +9999", "<time>"),
    ]
    .into_iter()
    .find_map(|(pattern, shown)| Some((fits(bytes, pattern)?, shown)))
}

/// What a case asks names to begin with; longer ones are cut.
fn prefixes(source: &str) -> Vec<&str> {
    let texts = source.split("\"generateName\":\"").skip(1);
    let texts = texts.filter_map(|text| text.split('"').next());
    texts.map(|text| text.get(..58).unwrap_or(text)).collect()
}

/// The five letters that the server draws for a name.
fn hide_drawn(text: &str, prefix: &str) -> String {
    let mut parts = text.split(prefix);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let drawn = |b: &u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        let length = part.bytes().take_while(|b| drawn(b)).count();
        out.push_str(prefix);
        out.push_str(if length == 5 {
            "?????"
        } else {
            &part[..length]
        });
        out.push_str(&part[length..]);
    }
    out
}

fn hide_number(text: &str, lead: &str) -> String {
    let mut parts = text.split(lead);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(lead);
        if rest.len() < part.len() {
            out.push('#');
        }
        out.push_str(rest);
    }
    out
}

/// What stands before a resourceVersion in messages.
const VERSION_LEADS: [&str; 7] = [
    "in the precondition (",
    "in record (",
    "resource version: ",
    "current: ",
    "(current ",
    "resourceVersion\\\":\\\"",
    "resourceVersion\":\"",
];

fn pem_kinds(text: &str) -> String {
    let kinds = text.split("-----BEGIN ").skip(1);
    let kinds: Vec<_> = kinds
        .filter_map(|part| part.split("-----").next())
        .collect();
    format!("<{}>", kinds.join(", ").to_lowercase())
}

/// Entries are ordered by the second in which they were written: keep the kinds of operation in
/// order, and sort within them by what does not depend on a clock.
fn sort_managers(entries: &mut [Value]) {
    let key = |entry: &Value| {
        let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        (
            field("manager"),
            field("apiVersion"),
            field("subresource"),
            field("operation"),
        )
    };
    for run in entries.chunk_by_mut(|a, b| a["operation"] == b["operation"]) {
        run.sort_by_key(key);
    }
}

const AGES: [&str; 4] = ["Age", "Last Seen", "First Seen", "Created At"];

fn hide_ages(table: &mut Map<String, Value>) {
    let columns = table.get("columnDefinitions").and_then(Value::as_array);
    let columns = columns.cloned().unwrap_or_default();
    let rows = table.get_mut("rows").and_then(Value::as_array_mut);
    if columns.is_empty() {
        // Later events of a watch name no columns.
        let cells = rows.into_iter().flatten();
        let cells = cells
            .filter_map(|row| row["cells"].as_array_mut())
            .flatten();
        for cell in cells.filter(|cell| cell.as_str().is_some_and(is_age)) {
            *cell = json!("<age>");
        }
        return;
    }
    for row in rows.into_iter().flatten() {
        let cells = row.get_mut("cells").and_then(Value::as_array_mut);
        for (cell, column) in cells.into_iter().flatten().zip(&columns) {
            let name = column["name"].as_str().unwrap_or_default();
            if AGES.contains(&name) && cell.as_str().is_some_and(is_age) {
                *cell = json!("<age>");
            }
        }
    }
}

fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'd', 'y'])
}

/// What a token of a ServiceAccount says, with its times taken relative to each other.
fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let mut part = || -> Option<Value> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()
    };
    let (mut header, mut claims) = (part()?, part()?);
    let time = |claims: &Value, name: &str| claims[name].as_i64();
    let (issued, ends) = (time(&claims, "iat")?, time(&claims, "exp")?);
    let warned = claims
        .pointer("/kubernetes.io/warnafter")
        .and_then(Value::as_i64);
    claims["exp"] = json!(ends - issued);
    claims["nbf"] = json!(time(&claims, "nbf")? - issued);
    claims["iat"] = json!(0);
    if let Some(warned) = warned {
        claims["kubernetes.io"]["warnafter"] = json!(warned - issued);
    }
    header["kid"] = json!("<set>");
    // The kind of signature follows the kind of key, which is each server's own.
    header["alg"] = json!("<set>");
    Some(json!({"header": header, "claims": claims}))
}
