//! Service account tokens: what they say, what they are bound to, and what their bearers may.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, ObjectName, resources};

use crate::client::{Call, call, get, send, text};
use crate::support::{Inside, Outside, decoded, encoded, inside, outside, pod, pod_name};

fn account(name: &str) -> ObjectName {
    ObjectName::new(resources::SERVICE_ACCOUNTS, "default", name)
}

async fn token(server: &Inside, spec: Value) -> Result<Value, ApiError> {
    let name = account("default").with_subresource("token");
    let body = encoded(&json!({ "spec": spec }));
    server
        .door
        .create(&name, body)
        .await
        .map(|one| decoded(&one))
}

fn text_of(request: &Value) -> String {
    request["status"]["token"].as_str().unwrap().to_string()
}

fn claims(request: &Value) -> Value {
    let token = text_of(request);
    let claims = token.split('.').nth(1).unwrap();
    decoded(&URL_SAFE_NO_PAD.decode(claims).unwrap())
}

async fn status(server: &Outside, token: &str, request: Call<'_>) -> (u16, Value) {
    let token = token.to_string();
    let response = call(server, None, Call { token, ..request }).await;
    let code = response.status().as_u16();
    (code, decoded(text(response).await.as_bytes()))
}

#[tokio::test]
async fn a_token_of_a_pod_names_account_pod_and_node() {
    let server = inside().await;
    let made = server.create(resources::PODS, pod("web")).await.unwrap();
    server.bind(&pod_name("web"), "n1").await.unwrap();
    let sa = server.get(&account("default")).await.unwrap();
    let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": "web",
        "uid": made["metadata"]["uid"] });
    let request = token(
        &server,
        json!({ "audiences": ["vault"], "expirationSeconds": 900, "boundObjectRef": bound }),
    )
    .await
    .unwrap();
    assert_eq!(request["kind"], "TokenRequest");
    assert_eq!(request["spec"]["expirationSeconds"], 900);
    let claims = claims(&request);
    assert_eq!(
        claims["iss"],
        "https://kubernetes.default.svc.cluster.local"
    );
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(claims["aud"], json!(["vault"]));
    let (exp, iat) = (claims["exp"].as_i64(), claims["iat"].as_i64());
    assert_eq!(exp.unwrap() - iat.unwrap(), 900);
    assert_eq!(claims["nbf"], claims["iat"]);
    assert_eq!(
        claims["kubernetes.io"],
        json!({
            "namespace": "default",
            "node": { "name": "n1" },
            "pod": { "name": "web", "uid": made["metadata"]["uid"] },
            "serviceaccount": { "name": "default", "uid": sa["metadata"]["uid"] },
        })
    );
}

#[tokio::test]
async fn the_token_of_a_pods_volume_outlives_clients_that_do_not_read_it_again() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": "web" });
    let spec = json!({ "expirationSeconds": 3607, "boundObjectRef": bound });
    let request = token(&server, spec).await.unwrap();
    let claims = claims(&request);
    let iat = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["exp"].as_i64().unwrap() - iat, 365 * 24 * 3600);
    assert_eq!(claims["kubernetes.io"]["warnafter"], iat + 3607);
}

#[tokio::test]
async fn a_token_is_refused_for_what_it_cannot_be_bound_to() {
    let server = inside().await;
    let mut other = pod("other");
    other["spec"]["serviceAccountName"] = "robot".into();
    server
        .create(
            resources::SERVICE_ACCOUNTS,
            json!({ "metadata": { "name": "robot", "namespace": "default" } }),
        )
        .await
        .unwrap();
    server.create(resources::PODS, other).await.unwrap();
    server.create(resources::PODS, pod("web")).await.unwrap();
    let cases = [
        (
            json!({ "expirationSeconds": 599 }),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
             value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "none" } }),
            404,
            "pods \"none\" not found",
        ),
        (
            json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "other" } }),
            400,
            "cannot bind token for serviceaccount \"default\" to pod running with different \
             serviceaccount name.",
        ),
        (
            json!({ "boundObjectRef":
                { "kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "x" } }),
            409,
            "Operation cannot be fulfilled on Pod \"web\": the UID in the bound object reference \
             (x) does not match the UID in record. The object might have been deleted and then \
             recreated",
        ),
        (
            json!({ "boundObjectRef": { "kind": "ConfigMap", "apiVersion": "v1", "name": "web" } }),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ];
    for (spec, code, message) in cases {
        let error = token(&server, spec).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, message));
    }
    let name = account("nobody").with_subresource("token");
    let missing = server.door.create(&name, encoded(&json!({}))).await;
    assert_eq!(
        missing.unwrap_err().to_string(),
        "serviceaccounts \"nobody\" not found"
    );
}

#[tokio::test]
async fn the_bearer_of_a_token_is_known_and_may_ask_who_he_is_and_nothing_more() {
    let server = outside().await;
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    let bound = json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "web" } });
    let token = text_of(&token(&server.inside, bound).await.unwrap());
    let review = json!({ "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, review) = status(&server, &token, send(Method::POST, path, &review)).await;
    assert_eq!(code, 201, "{review}");
    let user = &review["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    assert_eq!(
        user["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let extra = &user["extra"];
    assert_eq!(
        extra["authentication.kubernetes.io/pod-name"],
        json!(["web"])
    );
    let (code, refusal) = status(&server, &token, get("/api/v1/namespaces/default/pods")).await;
    assert_eq!(code, 403);
    assert_eq!(
        refusal["message"],
        "pods is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \
         \"pods\" in API group \"\" in the namespace \"default\""
    );
    for path in ["/api", "/apis", "/openapi/v2", "/openid/v1/jwks"] {
        assert_eq!(status(&server, &token, get(path)).await.0, 200, "{path}");
    }
    let access = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (_, access) = status(&server, &token, send(Method::POST, path, &access)).await;
    assert_eq!(access["status"]["allowed"], false);
    server.stop().await;
}

#[tokio::test]
async fn a_token_ends_with_its_pod_and_its_account() {
    let server = outside().await;
    for name in ["web", "stays"] {
        server
            .inside
            .create(resources::PODS, pod(name))
            .await
            .unwrap();
    }
    let mut tokens = Vec::new();
    for name in ["web", "stays"] {
        let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": name });
        let request = token(&server.inside, json!({ "boundObjectRef": bound })).await;
        tokens.push(text_of(&request.unwrap()));
    }
    server
        .inside
        .delete(&pod_name("web"), Some(0))
        .await
        .unwrap();
    assert_eq!(status(&server, &tokens[0], get("/api")).await.0, 401);
    assert_eq!(status(&server, &tokens[1], get("/api")).await.0, 200);
    server
        .inside
        .delete(&account("default"), None)
        .await
        .unwrap();
    assert_eq!(status(&server, &tokens[1], get("/api")).await.0, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_token_for_others_opens_nothing_here_and_a_review_tells_them_whose_it_is() {
    let server = outside().await;
    let request = token(&server.inside, json!({ "audiences": ["vault"] })).await;
    let token = text_of(&request.unwrap());
    assert_eq!(status(&server, &token, get("/api")).await.0, 401);
    assert_eq!(status(&server, "not.a.token", get("/api")).await.0, 401);
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = json!({ "spec": { "token": token, "audiences": ["bank", "vault"] } });
    let (_, review) = crate::client::json_of(&server, send(Method::POST, path, &review)).await;
    assert_eq!(review["status"]["authenticated"], true);
    // Only what was asked for and is so.
    assert_eq!(review["status"]["audiences"], json!(["vault"]));
    assert_eq!(
        review["status"]["user"]["username"],
        "system:serviceaccount:default:default"
    );
    server.stop().await;
}
