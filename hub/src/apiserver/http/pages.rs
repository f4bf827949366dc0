//! Paths that are no objects: discovery, version, health, metrics, OpenAPI, keys of tokens.

use super::negotiate::{READABLE, aggregated, openapi_acceptable};
use super::respond::{self, Body};
use super::router::{Asked, Router, method_not_allowed};
use super::turns::Cost;
use crate::apiserver::authn::ISSUER;
use crate::apiserver::error::ApiError;
use crate::apiserver::scheme::Document;
use crate::apiserver::{discovery, openapi};
use common::admin::Checks;
use common::exposition;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

/// Pages that tell whether the server is well.
pub(super) const HEALTH: [&str; 3] = ["healthz", "livez", "readyz"];

/// What a page costs. Probes wait for nobody.
pub(super) fn cost(path: &str) -> Cost {
    let first = path.split('/').nth(1);
    match first {
        Some("healthz" | "livez" | "readyz" | "version") => Cost::Nothing,
        _ => Cost::Cheap,
    }
}

impl Router {
    pub(super) fn page_of(&self, asked: &Asked<'_>) -> Response<Body> {
        let path = asked.info.path.trim_end_matches('/');
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        // Health and metrics are at their paths exactly.
        let of_health = parts.first().is_some_and(|first| HEALTH.contains(first));
        let exact = of_health || parts == ["metrics"] || parts == ["metrics", "slis"];
        if exact && path.len() < asked.info.path.len() {
            return respond::not_found();
        }
        let Some(response) = self.find_page(asked, &parts) else {
            return respond::not_found();
        };
        let fits = match *asked.method {
            Method::GET => true,
            Method::HEAD => parts != ["version"],
            // However it is asked, the answer about health and of OpenAPI is the same.
            _ => of_health || parts.first() == Some(&"openapi"),
        };
        if !fits {
            return method_not_allowed(&asked.reply);
        }
        response
    }

    fn find_page(&self, asked: &Asked<'_>, parts: &[&str]) -> Option<Response<Body>> {
        let kinds = self.parts().scheme.snapshot();
        let ok = |value: &Value| Some(asked.reply.value(StatusCode::OK, value));
        match parts {
            [] | ["index.html"] => ok(&discovery::paths(&kinds)),
            ["api"] | ["apis"] => {
                if let Some(version) = aggregated(asked.header(ACCEPT)) {
                    let core = parts == ["api"];
                    return Some(self.aggregated(asked, version, core));
                }
                if !asked.acceptable {
                    return Some(asked.reply.error(&ApiError::not_acceptable(&READABLE)));
                }
                if parts == ["api"] {
                    return ok(&discovery::core_versions(&self.parts().address));
                }
                ok(&discovery::groups(&kinds))
            }
            ["api", ..] | ["apis", _, ..] if !asked.acceptable => {
                Some(asked.reply.error(&ApiError::not_acceptable(&READABLE)))
            }
            ["api", version] => match discovery::resources(&kinds, "", version) {
                Some(list) => Some(asked.reply.written(&list, discovery::written)),
                None => Some(asked.reply.error(&ApiError::no_such_path())),
            },
            ["apis", group] => ok(&discovery::group(&kinds, group)?),
            ["apis", group, version] => match discovery::resources(&kinds, group, version) {
                Some(list) => Some(asked.reply.written(&list, discovery::written)),
                // Of a group of custom kinds there is no page beside those of its versions.
                None => kinds
                    .all()
                    .iter()
                    .any(|kind| *kind.group == **group && !kind.is_custom())
                    .then(|| asked.reply.error(&ApiError::no_such_path())),
            },
            ["version"] => ok(&discovery::version()),
            ["healthz" | "livez", check @ ..] => {
                self.health(asked, &self.parts().admin.liveness, parts[0], check)
            }
            ["readyz", check @ ..] => {
                self.health(asked, &self.parts().admin.readiness, parts[0], check)
            }
            ["metrics"] => Some(self.metrics(asked.header(ACCEPT))),
            ["metrics", "slis"] => Some(exposed(self.slis().render(asked.header(ACCEPT)))),
            ["openapi", "v2"] => {
                let accept = asked.header(ACCEPT);
                if !accept.contains("com.github.proto-openapi.spec.v2") {
                    return Some(document_v2(asked, &openapi::v2(&kinds)));
                }
                let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
                let document = openapi::empty_v2();
                let etag = discovery::etag(&document);
                let body = || asked.reply.raw(document);
                Some(cached(
                    asked,
                    body,
                    &etag,
                    content_type,
                    "no-cache, private",
                ))
            }
            ["openapi", "v3"] if !asked.info.path.ends_with('/') => {
                let index = openapi::index(&kinds).to_string();
                Some(respond::bare(StatusCode::OK, index))
            }
            ["openapi", "v3", path @ ..] => {
                let exact = !asked.info.path.ends_with('/');
                let found = exact.then(|| openapi::kept(&kinds, &path.join("/")));
                Some(match found.flatten() {
                    Some(document) => document_page(asked, path, &document),
                    None => without_body(StatusCode::NOT_FOUND),
                })
            }
            [".well-known", "openid-configuration"] => Some(kept(asked.reply.value(
                StatusCode::OK,
                &json!({
                    "issuer": ISSUER,
                    "jwks_uri": format!("https://{}/openid/v1/jwks", self.parts().address),
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                }),
            ))),
            ["openid", "v1", "jwks"] => {
                let keys = self.parts().authenticator.key_set();
                let mut response = kept(asked.reply.value(StatusCode::OK, &keys));
                response.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static("application/jwk-set+json"),
                );
                Some(response)
            }
            _ => None,
        }
    }

    fn aggregated(&self, asked: &Asked<'_>, version: &str, core: bool) -> Response<Body> {
        let kinds = self.parts().scheme.snapshot();
        let body = discovery::aggregated(&kinds, version, core).to_string();
        let etag = discovery::etag(body.as_bytes());
        let content_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let body = || asked.reply.raw(body.into());
        cached(asked, body, &etag, &content_type, "public")
    }

    fn health(
        &self,
        asked: &Asked<'_>,
        checks: &Checks,
        name: &str,
        check: &[&str],
    ) -> Option<Response<Body>> {
        let report = checks.report();
        if check.is_empty() {
            self.slis().asked(name, checks);
        }
        if !check.is_empty() {
            let wanted = check.join("/");
            if wanted == "ping" {
                return Some(respond::bare(StatusCode::OK, "ok"));
            }
            let line = report.lines().find(|line| {
                let named = line.get(3..).unwrap_or_default();
                named.split(' ').next() == Some(&wanted)
            })?;
            return Some(if line.starts_with("[+]") {
                respond::bare(StatusCode::OK, "ok")
            } else {
                let text = format!("internal server error: {}\n", &line[3..]);
                respond::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            });
        }
        let report = format!("[+]ping ok\n{report}");
        Some(if !checks.all_ok() {
            let text = format!("{report}{name} check failed\n");
            respond::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        } else if asked.query.get("verbose").is_some() {
            respond::text(StatusCode::OK, format!("{report}{name} check passed\n"))
        } else {
            respond::text(StatusCode::OK, "ok")
        })
    }

    fn metrics(&self, accept: &str) -> Response<Body> {
        let registry = &self.parts().admin.registry;
        let registry = registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        exposed(exposition::render(&registry, accept).ok())
    }
}

/// Metrics in their form, if they could be written.
fn exposed(rendered: Option<(String, &'static str)>) -> Response<Body> {
    let Some((text, form)) = rendered else {
        return respond::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to encode the metrics\n",
        );
    };
    let mut response = respond::text(StatusCode::OK, text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
    response
}

/// An OpenAPI document. Who asks for it by a hash that it no longer has is sent to the one it has.
fn document_page(asked: &Asked<'_>, path: &[&str], document: &Document) -> Response<Body> {
    let hash = document.hash.as_str();
    if !openapi_acceptable(asked.header(ACCEPT)) {
        let mut response = without_body(StatusCode::NOT_ACCEPTABLE);
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_static("Accept"));
        return response;
    }
    let etag = format!("\"{hash}\"");
    // A document that is asked for by its hash never changes.
    let fresh = match asked.query.get("hash") {
        Some(wanted) if wanted == hash => "public, immutable",
        _ => "no-cache, private",
    };
    match asked.query.get("hash").filter(|wanted| !wanted.is_empty()) {
        Some(wanted) if wanted != hash => {
            let empty = || asked.reply.raw(bytes::Bytes::new());
            let mut response = cached(asked, empty, &etag, "application/json", fresh);
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            let place = format!("/openapi/v3/{}?hash={hash}", path.join("/"));
            if let Ok(place) = HeaderValue::from_str(&place) {
                response.headers_mut().insert(LOCATION, place);
            }
            response
        }
        _ => {
            let body = || {
                let plain = || document.plain();
                asked.reply.compressed(document.gzip.clone(), plain)
            };
            cached(asked, body, &etag, "application/json", fresh)
        }
    }
}

/// The document of OpenAPI v2, as it is kept where the client undoes that.
fn document_v2(asked: &Asked<'_>, document: &Document) -> Response<Body> {
    let varies = |response: &mut Response<Body>| {
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        headers.append(VARY, HeaderValue::from_static("Accept"));
    };
    if !openapi_acceptable(asked.header(ACCEPT)) {
        let mut response = without_body(StatusCode::NOT_ACCEPTABLE);
        varies(&mut response);
        return response;
    }
    let etag = format!("\"{}\"", document.hash);
    let body = match asked.reply.gzip {
        true => document.gzip.clone(),
        false => document.plain(),
    };
    let whole = || Response::new(respond::whole(body));
    let mut response = cached(asked, whole, &etag, "application/json", "no-cache, private");
    if asked.reply.gzip {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
    }
    varies(&mut response);
    response
}

/// An answer with a status alone.
fn without_body(code: StatusCode) -> Response<Body> {
    let mut response = respond::bare(code, "");
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// An answer that clients may keep for an hour.
fn kept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=3600"),
    );
    response
}

/// A body that clients may keep, and ask about by its tag.
fn cached(
    asked: &Asked<'_>,
    body: impl FnOnce() -> Response<Body>,
    etag: &str,
    content_type: &str,
    fresh: &'static str,
) -> Response<Body> {
    let known = asked
        .header(IF_NONE_MATCH)
        .split(',')
        .any(|tag| tag.trim().trim_start_matches("W/") == etag);
    let mut response = if known {
        let mut response = Response::new(respond::whole(bytes::Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        body()
    };
    let headers = response.headers_mut();
    for (name, value) in [(ETAG, etag), (CONTENT_TYPE, content_type)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(fresh));
    headers.append(VARY, HeaderValue::from_static("Accept"));
    response
}
