//! Operations of a resource, in a form that both versions of OpenAPI share.

use serde_json::{Map, Value, json};

use super::group_version;
use crate::registry::Resource;

/// One query or path parameter.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `query` or `path`.
    pub(super) place: &'static str,
    /// `string`, `integer`, `boolean`.
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        place: "query",
        kind,
        description,
    }
}

/// Parameters of operations that write.
pub(super) const WRITE: &[Parameter] = &[
    query(
        "dryRun",
        "string",
        "`All`: the request passes all stages, but nothing is stored.",
    ),
    query(
        "fieldManager",
        "string",
        "The name of whoever makes the change.",
    ),
    query(
        "fieldValidation",
        "string",
        "What happens to unknown fields: `Ignore`, `Warn` or `Strict`.",
    ),
];

/// Parameters of lists and watches.
pub(super) const LIST: &[Parameter] = &[
    query("labelSelector", "string", "Which labels the objects have."),
    query("fieldSelector", "string", "Which fields the objects have."),
    query("limit", "integer", "Most objects in one answer."),
    query("continue", "string", "The token of the previous answer."),
    query("resourceVersion", "string", "How new the answer must be."),
    query(
        "resourceVersionMatch",
        "string",
        "How `resourceVersion` is meant.",
    ),
    query("watch", "boolean", "Answers changes as they happen."),
    query(
        "allowWatchBookmarks",
        "boolean",
        "Also answers revisions without changes.",
    ),
    query("timeoutSeconds", "integer", "How long a watch lasts."),
];

/// Parameters of deletions.
pub(super) const DELETE: &[Parameter] = &[
    query(
        "dryRun",
        "string",
        "`All`: the request passes all stages, but nothing is stored.",
    ),
    query(
        "gracePeriodSeconds",
        "integer",
        "How long the object has to end.",
    ),
    query("propagationPolicy", "string", "What happens to dependents."),
];

const NAME: Parameter = Parameter {
    name: "name",
    place: "path",
    kind: "string",
    description: "The object's name.",
};
const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    place: "path",
    kind: "string",
    description: "The object's namespace.",
};

/// How a version of OpenAPI writes parameters.
pub(super) type WriteParameter = fn(&Parameter) -> Value;

/// The path items of a resource: collection, object, and subresources that have its kind.
pub(super) fn paths(resource: &Resource, write: WriteParameter) -> Vec<(String, Value)> {
    let plural = resource.name.plural;
    let root = group_version(resource);
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("/{root}{scope}/{plural}");
    let object = format!("{collection}/{{name}}");
    let item = |verbs: &[(&str, &str, &[Parameter])], named: bool| {
        let mut path: Vec<&Parameter> = Vec::new();
        if resource.namespaced {
            path.push(&NAMESPACE);
        }
        if named {
            path.push(&NAME);
        }
        path_item(resource, verbs, &path, write)
    };
    let whole: &[(&str, &str, &[Parameter])] = &[
        ("get", "list", LIST),
        ("post", "post", WRITE),
        ("delete", "deletecollection", DELETE),
    ];
    let one: &[(&str, &str, &[Parameter])] = &[
        ("get", "get", &[]),
        ("put", "put", WRITE),
        ("patch", "patch", WRITE),
        ("delete", "delete", DELETE),
    ];
    let mut paths = vec![
        (collection, item(whole, false)),
        (object.clone(), item(one, true)),
    ];
    if resource.has_subresource("status") {
        paths.push((format!("{object}/status"), item(&one[..3], true)));
    }
    paths
}

fn path_item(
    resource: &Resource,
    verbs: &[(&str, &str, &[Parameter])],
    path: &[&Parameter],
    write: WriteParameter,
) -> Value {
    let mut item = Map::new();
    let mut parameters: Vec<Value> = path.iter().map(|parameter| write(parameter)).collect();
    parameters.push(write(&query("pretty", "string", "Indents the answer.")));
    item.insert("parameters".into(), parameters.into());
    for (method, action, parameters) in verbs {
        let parameters: Vec<Value> = parameters.iter().map(write).collect();
        let operation = json!({
            "description": format!("{action} {}", resource.kind),
            "operationId": format!("{action}{}", resource.kind),
            "parameters": parameters,
            "responses": {
                "200": { "description": "OK" },
                "401": { "description": "Unauthorized" },
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind(resource),
        });
        item.insert((*method).into(), operation);
    }
    Value::Object(item)
}

/// `x-kubernetes-group-version-kind` of an operation.
fn kind(resource: &Resource) -> Value {
    json!({
        "group": resource.name.group,
        "version": resource.name.version,
        "kind": resource.kind,
    })
}

/// The schema of a kind, as far as it goes: its first level.
pub(super) fn schema(resource: &Resource) -> Value {
    json!({
        "description": format!("{} ({})", resource.kind, resource.api_version()),
        "type": "object",
        "properties": {
            "apiVersion": {
                "description": "The version of the schema of this object.",
                "type": "string",
            },
            "kind": { "description": "The kind of this object.", "type": "string" },
            "metadata": { "description": "Standard object's metadata.", "type": "object" },
        },
        "x-kubernetes-group-version-kind": [kind(resource)],
    })
}
