//! What clients see on the wire.

use http::header::{CONTENT_TYPE, WARNING};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use swiftlet_client::api::resources;

use crate::client::{Call, admin, call, get, json_of, send};
use crate::support::{config_map, decoded, outside, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn who_is_unknown_gets_a_clean_401() {
    let server = outside().await;
    for path in [PODS, "/api", "/nonsense", "/apis/apps/v1"] {
        let response = call(&server, None, get(path)).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        let status = decoded(&response.into_body().collect().await.unwrap().to_bytes());
        assert_eq!(status["kind"], "Status");
        assert_eq!(
            (&status["message"], &status["code"]),
            (&json!("Unauthorized"), &json!(401))
        );
    }
    let health = call(&server, None, get("/healthz")).await;
    assert_eq!(health.into_body().collect().await.unwrap().to_bytes(), "ok");
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_says_who_a_user_is_and_not_what_he_may() {
    let server = outside().await;
    let jane = server.pki.client("jane", "jane", &["dev"]).unwrap();
    let response = call(&server, Some(&jane), get(PODS)).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let status = decoded(&response.into_body().collect().await.unwrap().to_bytes());
    assert_eq!(status["reason"], "Forbidden");
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_field_is_refused_warned_about_or_dropped_as_asked() {
    let server = outside().await;
    let mut object = pod("web");
    object["spec"]["colour"] = "red".into();
    let strict = format!("{PODS}?fieldValidation=Strict");
    let (code, status) = json_of(&server, send(Method::POST, strict.as_str(), &object)).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \
         \"spec.colour\""
    );
    let (code, headers, _) = admin(&server, send(Method::POST, PODS, &object)).await;
    assert_eq!(code, 201);
    assert_eq!(
        headers[WARNING],
        "299 - \"unknown field \\\"spec.colour\\\"\""
    );
    object["metadata"]["name"] = "quiet".into();
    let ignore = format!("{PODS}?fieldValidation=Ignore");
    let (code, headers, _) = admin(&server, send(Method::POST, ignore.as_str(), &object)).await;
    assert_eq!((code.as_u16(), headers.get(WARNING)), (201, None));
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_type_and_a_wrong_value_are_named() {
    let server = outside().await;
    let mut object = pod("web");
    object["spec"]["hostNetwork"] = "yes".into();
    let (code, status) = json_of(&server, send(Method::POST, PODS, &object)).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("json: cannot unmarshal string into Go struct field"),
        "{message}"
    );
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = "".into();
    let (code, status) = json_of(&server, send(Method::POST, PODS, &object)).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Pod \"web\" is invalid: spec.containers[0].image: Required value"
    );
    assert_eq!(
        status["details"]["causes"][0]["field"],
        "spec.containers[0].image"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = outside().await;
    let path = format!("{PODS}?dryRun=All");
    let (code, object) = json_of(&server, send(Method::POST, path.as_str(), &pod("web"))).await;
    assert_eq!((code, &object["kind"]), (201, &json!("Pod")));
    let (code, _) = json_of(&server, get(format!("{PODS}/web"))).await;
    assert_eq!(code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_list_in_pages_shows_one_revision() {
    let server = outside().await;
    for name in ["a", "b", "c"] {
        let object = config_map(name, json!({}));
        server
            .inside
            .create(resources::CONFIG_MAPS, object)
            .await
            .unwrap();
    }
    let (_, first) = json_of(&server, get(format!("{CONFIG_MAPS}?limit=2"))).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server
        .inside
        .create(resources::CONFIG_MAPS, config_map("d", json!({})))
        .await
        .unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let path = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let (_, second) = json_of(&server, get(path.as_str())).await;
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let names: Vec<&Value> = [&first, &second]
        .iter()
        .flat_map(|list| list["items"].as_array().unwrap())
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(second["metadata"]["continue"].is_null());
    let (code, _) = json_of(&server, get(format!("{CONFIG_MAPS}?continue=nonsense"))).await;
    assert_eq!(code, 400);
    server.stop().await;
}

#[tokio::test]
async fn the_same_objects_come_as_table_as_metadata_and_as_yaml() {
    let server = outside().await;
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, shown) = json_of(
        &server,
        Call {
            accept: table,
            ..get(PODS)
        },
    )
    .await;
    assert_eq!(shown["kind"], "Table");
    assert_eq!(shown["rows"][0]["cells"][0], "web");
    assert_eq!(shown["columnDefinitions"][0]["name"], "Name");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let (_, shown) = json_of(
        &server,
        Call {
            accept: partial,
            ..get(PODS)
        },
    )
    .await;
    assert_eq!(shown["kind"], "PartialObjectMetadataList");
    assert_eq!(shown["items"][0]["metadata"]["name"], "web");
    assert!(shown["items"][0]["spec"].is_null());
    let yaml = Call {
        accept: "application/yaml",
        ..get(PODS)
    };
    let (_, headers, body) = admin(&server, yaml).await;
    assert_eq!(headers[CONTENT_TYPE], "application/yaml");
    assert!(
        std::str::from_utf8(&body)
            .unwrap()
            .contains("kind: PodList")
    );
    let protobuf = Call {
        accept: "application/vnd.kubernetes.protobuf",
        ..get(PODS)
    };
    let (code, status) = json_of(&server, protobuf).await;
    assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")));
    server.stop().await;
}

#[tokio::test]
async fn a_watch_streams_lines_and_ends_in_time() {
    let server = outside().await;
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    let path = format!("{PODS}?watch=1&timeoutSeconds=1");
    let (code, _, body) = admin(&server, get(path.as_str())).await;
    assert_eq!(code, 200);
    let event = decoded(body.trim_ascii_end());
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&json!("ADDED"), &json!("Pod"))
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (_, _, body) = admin(
        &server,
        Call {
            accept: table,
            ..get(path)
        },
    )
    .await;
    let event = decoded(body.trim_ascii_end());
    assert_eq!(event["object"]["rows"][0]["cells"][0], "web");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_list_ends_its_first_part_with_a_bookmark() {
    let server = outside().await;
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    let path = format!(
        "{PODS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true\
         &resourceVersionMatch=NotOlderThan"
    );
    let (_, _, body) = admin(&server, get(path.as_str())).await;
    let lines: Vec<Value> = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(decoded)
        .collect();
    assert_eq!(
        (&lines[0]["type"], &lines[1]["type"]),
        (&json!("ADDED"), &json!("BOOKMARK"))
    );
    let metadata = &lines[1]["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_with_its_own_code() {
    let server = outside().await;
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    let one = format!("{PODS}/web");
    let apply = Call {
        content_type: "application/apply-patch+yaml",
        ..send(Method::PATCH, one.as_str(), &json!({}))
    };
    let large = Call {
        body: vec![b' '; 4 * 1024 * 1024].into(),
        ..send(Method::POST, PODS, &json!({}))
    };
    let calls = [
        (404, get("/api/v1/widgets")),
        (404, get("/apis/example.com/v1")),
        (404, get(format!("{PODS}/nobody"))),
        (405, send(Method::POST, one.as_str(), &pod("web"))),
        (405, send(Method::POST, "/api/v1/pods", &pod("web"))),
        (409, send(Method::POST, PODS, &pod("web"))),
        (413, large),
        (415, apply),
        (
            415,
            Call {
                content_type: "text/plain",
                ..send(Method::POST, PODS, &pod("x"))
            },
        ),
        (400, get(format!("{PODS}?labelSelector=a%20b"))),
        (400, get(format!("{PODS}?limit=many"))),
        (
            400,
            send(
                Method::POST,
                PODS,
                &json!({ "kind": "Node", "apiVersion": "v1" }),
            ),
        ),
        (504, get(format!("{PODS}?resourceVersion=999999"))),
    ];
    for (wanted, request) in calls {
        let shown = format!("{} {}", request.method, request.path);
        let (code, status) = json_of(&server, request).await;
        assert_eq!(code, wanted, "{shown}: {status}");
        assert_eq!(
            (&status["kind"], &status["code"]),
            (&json!("Status"), &json!(wanted)),
            "{shown}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_deletion_answers_with_the_outcome() {
    let server = outside().await;
    server
        .inside
        .create(resources::CONFIG_MAPS, config_map("cm", json!({})))
        .await
        .unwrap();
    let path = format!("{CONFIG_MAPS}/cm");
    let wrong = json!({ "preconditions": { "uid": "another" } });
    assert_eq!(
        json_of(&server, send(Method::DELETE, path.as_str(), &wrong))
            .await
            .0,
        409
    );
    let (code, status) = json_of(&server, send(Method::DELETE, path.as_str(), &json!({}))).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(
        (&status["details"]["name"], &status["details"]["kind"]),
        (&json!("cm"), &json!("configmaps"))
    );
    for name in ["a", "b"] {
        let object = config_map(name, json!({}));
        server
            .inside
            .create(resources::CONFIG_MAPS, object)
            .await
            .unwrap();
    }
    let all = Call {
        method: Method::DELETE,
        ..get(CONFIG_MAPS)
    };
    assert_eq!(json_of(&server, all).await.0, 200);
    let (_, list) = json_of(&server, get(CONFIG_MAPS)).await;
    assert_eq!(list["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn discovery_names_what_is_served_in_both_forms() {
    let server = outside().await;
    let (_, groups) = json_of(&server, get("/apis")).await;
    assert_eq!(groups["groups"][0]["name"], "apps");
    let (_, list) = json_of(&server, get("/apis/apps/v1")).await;
    let scale = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "deployments/scale")
        .unwrap();
    assert_eq!(
        (&scale["group"], &scale["kind"]),
        (&json!("autoscaling"), &json!("Scale"))
    );
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, all) = json_of(
        &server,
        Call {
            accept,
            ..get("/api")
        },
    )
    .await;
    assert_eq!(all["apiVersion"], "apidiscovery.k8s.io/v2");
    let pods = all["items"][0]["versions"][0]["resources"]
        .as_array()
        .unwrap();
    assert!(
        pods.iter()
            .any(|entry| entry["resource"] == "pods" && entry["scope"] == "Namespaced")
    );
    let (_, version) = json_of(&server, get("/version")).await;
    assert_eq!(version["gitVersion"], "v1.34.0+swiftlet");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_open_watches() {
    let server = outside().await;
    let identity = server.pki.admin().unwrap();
    let open = call(&server, Some(&identity), get(format!("{PODS}?watch=1"))).await;
    server.stop().await;
    let rest = open.into_body().collect().await.unwrap().to_bytes();
    assert!(rest.is_empty());
}
