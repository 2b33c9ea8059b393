//! Paths and verbs: what a request asks for.

use http::Method;
use swiftlet_client::api::ResourceName;

use crate::error;
use crate::registry::Resource;
use crate::strategy;
use crate::verb::review::is_review;
use swiftlet_client::api::ApiError;

/// A verb, as authorization names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow many.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Remove one.
    Delete,
    /// Remove many.
    DeleteCollection,
}

impl Verb {
    /// `deletecollection`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// An object, a subresource of it, or all objects of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The resource.
    pub(crate) resource: &'static Resource,
    /// Empty for cluster-scoped resources, and for all namespaces.
    pub(crate) namespace: String,
    /// Empty for the collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: &'static str,
}

impl Target {
    /// `pods/status`, as authorization names it.
    pub(crate) fn qualified(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.name.plural.into()
        } else {
            format!("{}/{}", self.resource.name.plural, self.subresource)
        }
    }
}

/// What a path stands for.
#[derive(Debug)]
pub(crate) enum Route {
    /// A resource or object.
    Resource(Target),
    /// `/api`.
    LegacyVersions,
    /// `/apis`.
    Groups,
    /// `/apis/<group>`.
    Group(&'static str),
    /// `/api/v1` or `/apis/<group>/<version>`.
    Version(&'static str, &'static str),
    /// `/version`.
    ServerVersion,
    /// `/healthz`, `/livez`, `/readyz`.
    Health(String),
    /// `/.well-known/openid-configuration`.
    OpenIdConfiguration,
    /// `/openid/v1/jwks`.
    OpenIdKeys,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3,
    /// `/openapi/v3/<path>`.
    OpenApiV3Group,
    /// `/apis/apiextensions.k8s.io/v1/customresourcedefinitions`.
    CustomResourceDefinitions,
    /// `/`.
    Root,
}

/// Finds out what a path stands for.
pub(crate) fn route(path: &str) -> Result<Route, ApiError> {
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(percent_decoded)
        .collect::<Option<_>>()
        .ok_or_else(|| error::bad_request("the path is not valid UTF-8"))?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        [] => Ok(Route::Root),
        ["api"] => Ok(Route::LegacyVersions),
        ["api", version, rest @ ..] => versioned("", version, rest),
        ["apis"] => Ok(Route::Groups),
        ["apis", group] => match served(|name| name.group == *group) {
            Some(resource) => Ok(Route::Group(resource.name.group)),
            None => Err(error::unknown_path()),
        },
        [
            "apis",
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
        ] => Ok(Route::CustomResourceDefinitions),
        ["apis", group, version, rest @ ..] => versioned(group, version, rest),
        ["version"] => Ok(Route::ServerVersion),
        ["healthz" | "livez" | "readyz", ..] => Ok(Route::Health(path.into())),
        [".well-known", "openid-configuration"] => Ok(Route::OpenIdConfiguration),
        ["openid", "v1", "jwks"] => Ok(Route::OpenIdKeys),
        ["openapi", "v2"] => Ok(Route::OpenApiV2),
        ["openapi", "v3"] => Ok(Route::OpenApiV3),
        ["openapi", "v3", ..] => Ok(Route::OpenApiV3Group),
        _ => Err(error::unknown_path()),
    }
}

/// Subresources that are created only: nothing can be read there.
const CREATED: [&str; 3] = ["binding", "eviction", "token"];

/// Subresources that become streams: SPDY clients ask with POST, WebSocket clients with GET.
const STREAMED: [&str; 3] = ["attach", "exec", "portforward"];

/// The verb of a method on a target.
pub(crate) fn verb(method: &Method, target: &Target, watch: bool) -> Result<Verb, ApiError> {
    let one = !target.name.is_empty();
    let verb = match *method {
        Method::GET | Method::HEAD if one => Verb::Get,
        Method::GET | Method::HEAD if watch => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST if !one || CREATED.contains(&target.subresource) => Verb::Create,
        Method::POST if STREAMED.contains(&target.subresource) => Verb::Create,
        Method::PUT if one => Verb::Update,
        Method::PATCH if one => Verb::Patch,
        Method::DELETE if one && target.subresource.is_empty() => Verb::Delete,
        Method::DELETE if !one => Verb::DeleteCollection,
        _ => return Err(error::method_not_allowed()),
    };
    let allowed = match target.subresource {
        created if CREATED.contains(&created) => verb == Verb::Create,
        streamed if STREAMED.contains(&streamed) => matches!(verb, Verb::Get | Verb::Create),
        "log" => verb == Verb::Get,
        "finalize" => verb == Verb::Update,
        _ => true,
    };
    let everywhere = target.resource.namespaced && target.namespace.is_empty();
    let collection_only = matches!(verb, Verb::Create | Verb::DeleteCollection) && everywhere;
    let unstored = is_review(&target.resource.name) && verb != Verb::Create;
    if allowed && !collection_only && !unstored {
        Ok(verb)
    } else {
        Err(error::method_not_allowed())
    }
}

/// The resource with a name.
pub(crate) fn resource(name: &ResourceName) -> Option<&'static Resource> {
    served(|served| served == name)
}

fn served(matches: impl Fn(&ResourceName) -> bool) -> Option<&'static Resource> {
    strategy::registry()
        .iter()
        .chain(strategy::reviews())
        .find(|resource| matches(&resource.name))
}

fn versioned(group: &str, version: &str, rest: &[&str]) -> Result<Route, ApiError> {
    let any = served(|name| name.group == group && name.version == version)
        .ok_or_else(error::unknown_path)?;
    let find = |plural: &str| {
        served(|name| name.group == group && name.version == version && name.plural == plural)
    };
    let (namespace, rest) = match rest {
        [] => return Ok(Route::Version(any.name.group, any.name.version)),
        // `namespaces/x/status` is a part of the namespace, `namespaces/x/pods` lies within it.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(error::unknown_path()),
    };
    let resource = find(plural).ok_or_else(error::unknown_path)?;
    let in_namespace = !namespace.is_empty();
    if in_namespace != resource.namespaced && (in_namespace || !name.is_empty()) {
        return Err(error::unknown_path());
    }
    let subresource = known_subresource(resource, subresource)?;
    Ok(Route::Resource(Target {
        resource,
        namespace: namespace.into(),
        name: name.into(),
        subresource,
    }))
}

fn known_subresource(resource: &'static Resource, name: &str) -> Result<&'static str, ApiError> {
    if name.is_empty() {
        return Ok("");
    }
    resource
        .subresources
        .iter()
        .find(|known| **known == name)
        .copied()
        .ok_or_else(error::unknown_path)
}

/// Resolves `%41`; `None` when the outcome is no text.
pub(crate) fn percent_decoded(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return Some(segment.into());
    }
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| segment.get(at + 1..at + 3))
            .flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).ok()
}
