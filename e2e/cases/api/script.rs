//! The cases, as text: requests one below the other, read from `scripts/*.http`.
//!
//! ```text
//! ### name of the case [tag, tag]
//! made = POST $c                        a request; `made` names its answer
//! > Accept: application/yaml            a header
//! {"metadata":{"name":"a"}}             the body, up to the next request
//! MERGE $c/a?dryRun=All                 a patch of that type
//! {"metadata":{"uid":"${made.metadata.uid}"}}
//! WATCH w $c?watch=1                    opens a watch called `w`
//! SOCKET w $c?watch=1                   the same over WebSocket
//! > Show: a.b.C                         of OpenAPI v2 these definitions alone are compared
//! EVENTS w a                            its events up to one about object `a`, or `closed`, or a count
//! WAIT $c/a 404                         asks until the answer has this status, or contains a text;
//!                                       `as CALLER` at the end asks as somebody else
//! EXPECT 404 not found                  what the built-in server must have said (tag `profile ROW`)
//! ```
//!
//! `$name` stands for a path of `ALIASES`, `$id` for a name of the case's own, and a body `@name rest`
//! for the template `@name` at the head of the file with `$1` replaced by the rest.

use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// One case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The file, without its ending.
    pub(crate) area: String,
    /// Its name, unique in the file.
    pub(crate) name: String,
    /// A name that is free on every server, and the same on both.
    pub(crate) id: String,
    /// What it is about, beside its area.
    pub(crate) tags: Vec<String>,
    /// The requests.
    pub(crate) steps: Vec<Step>,
    /// Its text: times that a case writes itself are not replaced.
    pub(crate) source: String,
}

impl Case {
    /// The row of the profile that this case proves, if it is about something left out.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.tags
            .iter()
            .find_map(|tag| tag.strip_prefix("profile "))
    }

    /// Whether it has a tag.
    pub(crate) fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|t| t == tag)
    }

    /// `area: name`.
    pub(crate) fn title(&self) -> String {
        format!("{}: {}", self.area, self.name)
    }
}

/// One thing to do.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Ask, and keep the answer.
    Ask(Request),
    /// Open a watch.
    Watch {
        name: String,
        request: Request,
        /// Whether it is asked for over WebSocket.
        socket: bool,
    },
    /// Take events of a watch.
    Events { name: String, until: Until },
    /// Hold the last answer against what the profile says; for what is left out.
    Expect { code: u16, text: String },
    /// Ask until something holds; the answers are not compared.
    Wait {
        path: String,
        until: Holds,
        caller: Vec<(String, String)>,
    },
}

/// How far to read a watch.
#[derive(Debug, Clone)]
pub(crate) enum Until {
    /// So many events.
    Count(usize),
    /// An event about an object of this name.
    Object(String),
    /// Its end.
    End,
}

/// What is waited for.
#[derive(Debug, Clone)]
pub(crate) enum Holds {
    /// A status code.
    Code(u16),
    /// A text in the body.
    Contains(String),
    /// No such text in the body.
    Lacks(String),
}

/// One request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// Under what name later steps find the answer.
    pub(crate) bind: Option<String>,
    /// The method.
    pub(crate) method: String,
    /// The path and query.
    pub(crate) path: String,
    /// Headers; `Caller` is ours.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

const ALIASES: [(&str, &str); 11] = [
    ("$core", "/api/v1/namespaces/$id"),
    ("$apps", "/apis/apps/v1/namespaces/$id"),
    (
        "$crd",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ),
    (
        "$csr",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    ),
    ("$rbac", "/apis/rbac.authorization.k8s.io/v1"),
    ("$l", "/apis/coordination.k8s.io/v1/namespaces/$id/leases"),
    ("$pt", "/api/v1/namespaces/$id/podtemplates"),
    ("$x", "/apis/$id.example.com/v1/namespaces/$id"),
    ("$c", "/api/v1/namespaces/$id/configmaps"),
    ("$s", "/api/v1/namespaces/$id/secrets"),
    ("$review", "/apis/authorization.k8s.io/v1"),
];

const PATCHES: [(&str, &str); 4] = [
    ("MERGE", "application/merge-patch+json"),
    ("JSONP", "application/json-patch+json"),
    ("SMP", "application/strategic-merge-patch+json"),
    ("APPLY", "application/apply-patch+yaml"),
];

/// Reads every script; `run` makes ids of this run its own.
pub(crate) fn read_all(dir: &Path, run: &str) -> Result<Vec<Case>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .with_context(|| format!("failed to read {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "http"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let area = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let read = read(&area, &text, run).with_context(|| file.display().to_string())?;
        cases.extend(read);
    }
    Ok(cases)
}

/// Reads one script.
pub(crate) fn read(area: &str, text: &str, run: &str) -> Result<Vec<Case>> {
    let mut parts = text.split("\n### ");
    let head = parts.next().unwrap_or_default();
    let templates = templates(head);
    let mut cases = Vec::new();
    for (number, part) in parts.enumerate() {
        let (head, rest) = part.split_once('\n').unwrap_or((part, ""));
        let (name, tags) = match head.split_once(" [") {
            Some((name, tags)) => (name, tags.trim_end_matches(']')),
            None => (head, ""),
        };
        let id = format!("{}-{:02}-{run}", &area.replace('_', "-"), number + 1);
        let steps = steps(rest, &templates, &id).with_context(|| format!("case {name:?}"))?;
        ensure!(!steps.is_empty(), "case {name:?} does nothing");
        cases.push(Case {
            area: area.to_owned(),
            name: name.trim().to_owned(),
            id,
            tags: tags.split(',').map(|t| t.trim().to_owned()).collect(),
            steps,
            source: format!("{head}\n{part}"),
        });
    }
    Ok(cases)
}

/// `@name` at a line's begin, and what follows up to the next one.
fn templates(head: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in head.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('@') {
            Some(next) => next.clone_into(&mut name),
            None => found.entry(name.clone()).or_default().push_str(line),
        }
    }
    found
}

fn steps(text: &str, templates: &BTreeMap<String, String>, id: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        if let Some(step) = head(line, id)? {
            steps.push(step);
            continue;
        }
        let Some(Step::Ask(request) | Step::Watch { request, .. }) = steps.last_mut() else {
            ensure!(line.trim().is_empty(), "a line without a request: {line:?}");
            continue;
        };
        if let Some(header) = line.strip_prefix("> ") {
            let (name, value) = header.split_once(": ").context("a header has a colon")?;
            let value = value.replace("$id", id);
            request.headers.push((name.to_owned(), value));
        } else if !request.body.is_empty() || !line.trim().is_empty() {
            request.body.push_str(line);
            request.body.push('\n');
        }
    }
    for step in &mut steps {
        if let Step::Ask(request) | Step::Watch { request, .. } = step {
            finish(request, templates, id)?;
        }
    }
    Ok(steps)
}

fn finish(request: &mut Request, templates: &BTreeMap<String, String>, id: &str) -> Result<()> {
    let mut body = request.body.trim_end().to_owned();
    if let Some(call) = body.strip_prefix('@') {
        let (name, rest) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
        let template = templates
            .get(name)
            .with_context(|| format!("no template @{name}"))?;
        body = template.replace("$1", rest);
    }
    request.body = body.replace("$id", id);
    if let Some((_, media)) = PATCHES.iter().find(|(name, _)| *name == request.method) {
        request.method = "PATCH".to_owned();
        if !has_header(request, "content-type") {
            request
                .headers
                .push(("Content-Type".to_owned(), (*media).to_owned()));
        }
    } else if !request.body.is_empty() && !has_header(request, "content-type") {
        let json = ("Content-Type".to_owned(), "application/json".to_owned());
        request.headers.push(json);
    }
    Ok(())
}

fn has_header(request: &Request, name: &str) -> bool {
    request
        .headers
        .iter()
        .any(|(n, _)| n.eq_ignore_ascii_case(name))
}

/// The step that a line begins, if it begins one.
fn head(line: &str, id: &str) -> Result<Option<Step>> {
    let (bind, rest) = match line.split_once(" = ") {
        Some((bind, rest)) if bind.chars().all(|c| c.is_ascii_alphanumeric()) => {
            (Some(bind.to_owned()), rest)
        }
        _ => (None, line),
    };
    let Some((verb, rest)) = rest.split_once(' ') else {
        return Ok(None);
    };
    let rest = rest.trim();
    let pair = || {
        rest.split_once(' ')
            .with_context(|| format!("{line:?} lacks a word"))
    };
    Ok(Some(match verb {
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS" | "MERGE" | "JSONP"
        | "SMP" | "APPLY" => Step::Ask(Request {
            bind,
            method: verb.to_owned(),
            path: path(rest, id),
            ..Request::default()
        }),
        "WATCH" | "SOCKET" => Step::Watch {
            socket: verb == "SOCKET",
            name: pair()?.0.to_owned(),
            request: Request {
                method: "GET".to_owned(),
                path: path(pair()?.1, id),
                ..Request::default()
            },
        },
        "EVENTS" => Step::Events {
            name: pair()?.0.to_owned(),
            until: match pair()?.1 {
                "closed" => Until::End,
                word => match word.parse() {
                    Ok(count) => Until::Count(count),
                    Err(_) => Until::Object(word.replace("$id", id)),
                },
            },
        },
        "EXPECT" => {
            let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let code = code
                .parse()
                .with_context(|| format!("{code:?} is no status code"))?;
            let text = text.replace("$id", id);
            Step::Expect { code, text }
        }
        "WAIT" => {
            let (what, caller) = pair()?.1.split_once(" as ").unwrap_or((pair()?.1, ""));
            let named = (!caller.is_empty()).then(|| caller.replace("$id", id));
            Step::Wait {
                path: path(pair()?.0, id),
                until: holds(what, id)?,
                caller: named
                    .map(|c| ("Caller".to_owned(), c))
                    .into_iter()
                    .collect(),
            }
        }
        _ => return Ok(None),
    }))
}

fn holds(text: &str, id: &str) -> Result<Holds> {
    let text = text.replace("$id", id);
    Ok(match text.split_once(' ') {
        Some(("contains", text)) => Holds::Contains(text.to_owned()),
        Some(("lacks", text)) => Holds::Lacks(text.to_owned()),
        _ => match text.parse() {
            Ok(code) => Holds::Code(code),
            Err(_) => bail!("cannot wait for {text:?}"),
        },
    })
}

fn path(text: &str, id: &str) -> String {
    let alias = ALIASES.iter().find_map(|(name, long)| {
        let rest = text.strip_prefix(name)?;
        let whole = rest.is_empty() || rest.starts_with(['/', '?']);
        whole.then(|| format!("{long}{rest}"))
    });
    alias.unwrap_or_else(|| text.to_owned()).replace("$id", id)
}
