//! Runs one case on one server and keeps all that it answered.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

use super::proto;
use super::script::{Case, Holds, Request, Step, Until};
use super::server::{Raw, Server, Watch};
use super::socket;
use crate::env::wait_for;

/// How long an event is waited for.
const EVENT_WITHIN: Duration = Duration::from_secs(30);
/// How long a condition is waited for; garbage collection and namespaces take their time.
const HOLDS_WITHIN: Duration = Duration::from_secs(120);

/// What a step saw.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// The step, as written.
    pub(crate) step: String,
    /// The status code; 0 when there is none.
    pub(crate) code: u16,
    /// Headers that matter.
    pub(crate) headers: Vec<(String, String)>,
    /// The body: JSON, text, or a list of events.
    pub(crate) body: Value,
}

/// Everything that a case saw, in order.
pub(crate) type Transcript = Vec<Seen>;

/// Runs it.
pub(crate) async fn run(server: &Server, case: &Case) -> Result<Transcript> {
    if !case.has("nons") {
        make_namespace(server, &case.id).await?;
    }
    let mut run = Run {
        server,
        answers: HashMap::new(),
        bodies: HashMap::new(),
        watches: HashMap::new(),
    };
    let mut transcript = Vec::new();
    for step in &case.steps {
        if let Step::Expect { code, text } = step {
            let last: Option<&Seen> = transcript.last();
            transcript.extend(last.and_then(|seen| unexpected(seen, *code, text)));
        } else if let Some(seen) = run.step(step).await? {
            transcript.push(seen);
        }
    }
    Ok(transcript)
}

/// Begins the step of an answer that is not what was expected.
pub(crate) const UNEXPECTED: &str = "not as the profile says: ";

fn unexpected(seen: &Seen, code: u16, text: &str) -> Option<Seen> {
    let said = match &seen.body {
        Value::String(body) => body.clone(),
        body => body.to_string(),
    };
    let holds = seen.code == code && said.contains(text);
    (!holds).then(|| Seen {
        step: format!("{UNEXPECTED}{} must be {code} {text:?}", seen.step),
        code: seen.code,
        body: Value::String(shortened(&said, 400)),
        ..Seen::default()
    })
}

/// The namespace of a case.
pub(crate) async fn make_namespace(server: &Server, id: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": id}});
    let json = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = body.to_string().into_bytes();
    let answer = server
        .ask("POST", "/api/v1/namespaces", &json, body)
        .await?;
    anyhow::ensure!(
        answer.code == 201,
        "{} does not make a namespace: {} {}",
        server.label,
        answer.code,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(())
}

/// A request as it is sent: path, headers and body.
type Resolved = (String, Vec<(String, String)>, Vec<u8>);

struct Run<'a> {
    server: &'a Server,
    answers: HashMap<String, Value>,
    /// Bodies as they came, of answers that have a name.
    bodies: HashMap<String, Vec<u8>>,
    watches: HashMap<String, Watch>,
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Result<Option<Seen>> {
        match step {
            Step::Expect { .. } => Ok(None),
            Step::Ask(request) => self.ask(request).await.map(Some),
            Step::Watch {
                name,
                request,
                socket,
            } => {
                let (path, headers, _) = self.resolve(request)?;
                let watch = match socket {
                    true => socket::open(self.server.kubeconfig(), &path, &headers).await,
                    false => self.server.watch(&path, &headers).await,
                }?;
                let seen = seen(&format!("WATCH {}", request.path), &watch.head);
                self.watches.insert(name.clone(), watch);
                Ok(Some(seen))
            }
            Step::Events { name, until } => {
                let watch = self.watches.get_mut(name);
                let watch = watch.with_context(|| format!("no watch {name:?}"))?;
                let events = events(watch, until).await;
                self.answers
                    .insert(name.clone(), Value::Array(events.clone()));
                Ok(Some(Seen {
                    step: format!("EVENTS {name}"),
                    body: Value::Array(events),
                    ..Seen::default()
                }))
            }
            Step::Wait {
                path,
                until,
                caller,
            } => {
                let shown = path;
                let path = encode(&self.substitute(path));
                let caller: Vec<_> = caller
                    .iter()
                    .map(|(n, v)| (n.clone(), self.substitute(v)))
                    .collect();
                let caller = caller.as_slice();
                let server = self.server;
                let what = format!("{}: {path} to be {until:?}", server.label);
                let held = wait_for(&what, HOLDS_WITHIN, || {
                    let path = path.clone();
                    async move {
                        let answer = server.ask("GET", &path, caller, Vec::new()).await?;
                        let body = String::from_utf8_lossy(&answer.body).into_owned();
                        let holds = match until {
                            Holds::Code(code) => answer.code == *code,
                            Holds::Contains(text) => body.contains(text.as_str()),
                            Holds::Lacks(text) => !body.contains(text.as_str()),
                        };
                        anyhow::ensure!(holds, "it is {} {body}", answer.code);
                        Ok(true)
                    }
                })
                .await;
                // That it never came is a difference like others.
                Ok(held.err().map(|error| Seen {
                    step: format!("WAIT {shown}"),
                    body: Value::String(shortened(&format!("{error:#}"), 400)),
                    ..Seen::default()
                }))
            }
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Seen> {
        let (path, headers, body) = self.resolve(request)?;
        // As written: an uid or a version in it is each server's own.
        let shown = format!("{} {}", request.method, request.path);
        let raw = self
            .server
            .ask(&request.method, &path, &headers, body)
            .await?;
        let mut seen = seen(&shown, &raw);
        if let Some((_, names)) = request.headers.iter().find(|(name, _)| name == "Show") {
            seen.body = definitions(&seen.body, names);
        }
        if let Some(name) = &request.bind {
            self.answers.insert(name.clone(), seen.body.clone());
            self.bodies.insert(name.clone(), raw.body.to_vec());
        }
        let watch = raw
            .headers
            .iter()
            .any(|(n, v)| n == "content-type" && v.contains("stream=watch"));
        if watch || seen.step.contains("watch") && is_events(&raw.body) {
            seen.body = lines(&raw.body);
        }
        Ok(seen)
    }

    fn resolve(&self, request: &Request) -> Result<Resolved> {
        let path = encode(&self.substitute(&request.path));
        let headers = request.headers.iter();
        let headers = headers
            .filter(|(name, _)| name != "Body" && name != "Show")
            .map(|(name, value)| (name.clone(), self.substitute(value)))
            .collect();
        let body = self.substitute(&request.body);
        let form = request.headers.iter().find(|(name, _)| name == "Body");
        let body = match form.map(|(_, form)| form.as_str()) {
            None => body.into_bytes(),
            // A body too large to write down: a text where `#` stands for so many letters.
            Some(form) if form.starts_with("fill ") => {
                let count = form[5..].parse().context("fill has a count")?;
                body.replace('#', &"x".repeat(count)).into_bytes()
            }
            // An answer, sent back as it came.
            Some(form) if form.starts_with("answer ") => {
                let sent = self.bodies.get(&form[7..]);
                sent.with_context(|| format!("no {form}"))?.clone()
            }
            Some("protobuf") => proto::encode(&body)?,
            Some("base64") => BASE64_STANDARD.decode(body.trim())?,
            Some(form) => anyhow::bail!("no such form of a body: {form}"),
        };
        Ok((path, headers, body))
    }

    /// `${answer.path.to.field}`, with `+N` added, or `${csr:USER:GROUP}`.
    fn substitute(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                rest = after;
                continue;
            };
            out.push_str(&self.value(name));
            rest = after;
        }
        out + rest
    }

    fn value(&self, name: &str) -> String {
        if let Some(subject) = name.strip_prefix("csr:") {
            return certificate_request(subject).unwrap_or_else(|e| format!("{e:#}"));
        }
        let (name, plus) = name.split_once('+').unwrap_or((name, ""));
        let mut words = name.split('.');
        let mut found = words.next().and_then(|name| self.answers.get(name));
        for word in words {
            found = found.and_then(|value| match word.parse::<usize>() {
                Ok(index) => value.get(index),
                Err(_) => value.get(word.replace("__", ".")),
            });
        }
        let text = match found {
            None => return "missing".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        match (text.parse::<u64>(), plus.parse::<u64>()) {
            (Ok(number), Ok(plus)) => (number + plus).to_string(),
            _ => text,
        }
    }
}

fn certificate_request(subject: &str) -> Result<String> {
    use rcgen::{CertificateParams, DistinguishedName, DnType};
    let (user, group) = subject.split_once(':').unwrap_or((subject, ""));
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    if !group.is_empty() {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    let key = common::chance::secret::key_pair().context("failed to make a key")?;
    let request = params
        .serialize_request(&key)
        .context("failed to make a request")?;
    Ok(BASE64_STANDARD.encode(request.pem().context("failed to write a request")?))
}

/// Events up to the wished end; bookmarks come when a server likes, so only the one that ends the
/// initial events counts.
async fn events(watch: &mut Watch, until: &Until) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        if matches!(until, Until::Count(count) if events.len() >= *count) {
            return events;
        }
        let line = match timeout(EVENT_WITHIN, watch.lines.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => {
                events.push(json!("the stream ended"));
                return events;
            }
            Err(_) => {
                events.push(json!("nothing more came"));
                return events;
            }
        };
        let event = json_or_text(&line);
        if is_idle(&event) {
            continue;
        }
        let name = event
            .pointer("/object/metadata/name")
            .or(event.pointer("/object/rows/0/object/metadata/name"));
        let last = matches!(until, Until::Object(wanted) if name.is_some_and(|n| n == wanted));
        events.push(event);
        if last {
            return events;
        }
    }
}

const HEADERS: [&str; 12] = [
    "content-type",
    "warning",
    "location",
    "retry-after",
    "cache-control",
    "content-encoding",
    "www-authenticate",
    "allow",
    "x-content-type-options",
    "audit-id",
    "vary",
    "etag",
];

fn seen(step: &str, raw: &Raw) -> Seen {
    let headers = raw.headers.iter();
    let mut headers: Vec<_> = headers
        .filter(|(name, _)| HEADERS.contains(&name.as_str()))
        .cloned()
        .collect();
    headers.sort();
    Seen {
        step: step.to_owned(),
        code: raw.code,
        body: yaml(&headers, &raw.body).unwrap_or_else(|| json_or_text(&raw.body)),
        headers,
    }
}

/// Of a document of OpenAPI v2 the definitions of these names, and what the document says of itself.
fn definitions(document: &Value, names: &str) -> Value {
    if !document["definitions"].is_object() {
        return document.clone();
    }
    let named = names.split_whitespace();
    let shown: serde_json::Map<String, Value> = named
        .map(|name| (name.to_owned(), document["definitions"][name].clone()))
        .collect();
    json!({
        "swagger": document["swagger"],
        "info": document["info"],
        "security": document["security"],
        "components": {"schemas": shown},
    })
}

/// An object in YAML, read: where lines are folded is each writer's own.
fn yaml(headers: &[(String, String)], body: &[u8]) -> Option<Value> {
    let named = |(name, value): &(String, String)| {
        name == "content-type" && value.starts_with("application/yaml")
    };
    if !headers.iter().any(named) || body.starts_with(b"{") {
        return None;
    }
    let value: Value = serde_yaml::from_slice(body).ok()?;
    value.is_object().then_some(value)
}

fn json_or_text(body: &[u8]) -> Value {
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    serde_json::from_slice(body).unwrap_or_else(|_| text())
}

/// A bookmark that says no more than how far a server has come.
fn is_idle(event: &Value) -> bool {
    let initial_end = "/object/metadata/annotations/k8s.io~1initial-events-end";
    event["type"] == "BOOKMARK" && event.pointer(initial_end).is_none()
}

/// Whether a body is events of a watch, one in each line.
fn is_events(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut events = text.lines().map(|line| json_or_text(line.as_bytes()));
    events.all(|event| event["type"].is_string() && event["object"].is_object())
}

/// The lines of a body, less the bookmarks that come when a server likes.
fn lines(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let all = text.lines().map(|line| json_or_text(line.as_bytes()));
    all.filter(|event| !is_idle(event)).collect()
}

fn shortened(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

/// What a path may not hold as it is written.
fn encode(path: &str) -> String {
    let mut out = String::new();
    for c in path.chars() {
        match c {
            ' ' | '"' | '<' | '>' | '{' | '}' | '|' | '^' => {
                out.push_str(&format!("%{:02X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}
