//! What a path and a method come to on a kind: where its objects are, which one, and what happens to it.
//! Pure.
//!
//! Rights are judged by what the path says, and what is carried out is what stands in a [`Route`]. A route
//! has no namespace but that of the path, and that only for a kind whose objects lie in namespaces: a
//! request that is judged in one place and carried out in another has no route.

use crate::apiserver::request::RequestInfo;
use crate::apiserver::scheme::Resource;
use http::Method;
use std::sync::Arc;

/// Where the objects of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// In no namespace: their kind is one of the cluster.
    Cluster,
    /// In every namespace; only for those who list and watch.
    Everywhere,
    /// In this one.
    In(&'a str),
}

impl<'a> Scope<'a> {
    /// The namespace that a verb works in; empty for none and for all.
    pub fn namespace(self) -> &'a str {
        match self {
            Self::Cluster | Self::Everywhere => "",
            Self::In(namespace) => namespace,
        }
    }
}

/// What is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    /// In which namespace, in all of them, or in none.
    pub place: Scope<'a>,
    /// On which object; empty for a collection.
    pub name: &'a str,
    /// On what of it; empty for the object itself.
    pub subresource: &'a str,
}

/// Why a request has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// The kind has no such path.
    Path,
    /// Its objects have no such subresource.
    Subresource,
    /// The path has no such method.
    Method,
}

/// What a request comes to on a kind.
pub fn route<'a>(
    info: &'a RequestInfo,
    method: &Method,
    resource: &Resource,
) -> Result<Route<'a>, Misplaced> {
    let has = |verbs: &[Arc<str>]| verbs.iter().any(|verb| **verb == *info.verb);
    let custom = resource.is_custom();
    let collection = matches!(info.verb.as_str(), "list" | "watch");
    let named = ["get", "update", "patch", "delete"];
    let on_name = named.contains(&info.verb.as_str());
    if info.has_rest || info.resource != *resource.plural {
        return Err(Misplaced::Path);
    }
    let name = match info.name_in_path {
        true => info.name.as_str(),
        false => "",
    };
    // A built-in kind has a path for a name where something can be done with one object of it.
    let nameless = !resource.verbs.iter().any(|verb| named.contains(&&**verb));
    if !name.is_empty() && info.subresource.is_empty() && !custom && nameless {
        return Err(Misplaced::Path);
    }
    let place = place(info, resource)?;
    // One object of a kind in namespaces has a namespace; so has what is written.
    let homeless = place == Scope::Everywhere && !collection;
    // Across namespaces a built-in kind has a path where it can be listed.
    let across = !custom && resource.verbs.iter().any(|verb| &**verb == "list");
    if homeless && (!across || !name.is_empty()) {
        return Err(Misplaced::Path);
    }
    let route = Route {
        place,
        name,
        subresource: &info.subresource,
    };
    if !info.subresource.is_empty() {
        let subresource = resource.subresource(&info.subresource);
        let subresource = subresource.ok_or(Misplaced::Subresource)?;
        return has(&subresource.verbs)
            .then_some(route)
            .ok_or(Misplaced::Method);
    }
    let fits = has(&resource.verbs)
        && !homeless
        && (on_name == info.name_in_path || info.verb == "watch")
        // The old form of a watch says it in the path, whatever the method.
        && (!collection || matches!(*method, Method::GET | Method::HEAD));
    // Built-in kinds have no route for HEAD.
    let head = *method == Method::HEAD && !custom;
    (fits && !head).then_some(route).ok_or(Misplaced::Method)
}

/// Where the objects are, if those of the kind can be where the path says.
fn place<'a>(info: &'a RequestInfo, resource: &Resource) -> Result<Scope<'a>, Misplaced> {
    match (resource.namespaced, info.namespace.as_str()) {
        (true, "") => Ok(Scope::Everywhere),
        (true, namespace) => Ok(Scope::In(namespace)),
        (false, "") => Ok(Scope::Cluster),
        // For rights a Namespace lies in itself; nothing else of the cluster lies anywhere.
        (false, namespace) if is_itself(info, resource) && info.name == namespace => {
            Ok(Scope::Cluster)
        }
        (false, _) => Err(Misplaced::Path),
    }
}

fn is_itself(info: &RequestInfo, resource: &Resource) -> bool {
    info.of_namespace && resource.group.is_empty() && &*resource.plural == "namespaces"
}

#[cfg(test)]
#[path = "route/tests.rs"]
mod tests;
