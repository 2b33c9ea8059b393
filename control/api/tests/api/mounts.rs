//! Services beside the API.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use swiftlet_api::Mount;
use swiftlet_client::api::UserInfo;
use tower::service_fn;

use crate::client::{call, get, text};
use crate::support::outside_with;

/// A service that answers who its user is.
fn who() -> Mount {
    Mount::new(
        "/example.Who/",
        service_fn(|request: Request<Incoming>| async move {
            let user = request.extensions().get::<UserInfo>();
            let name = user.map(|user| user.name.clone()).unwrap_or_default();
            Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from(name))))
        }),
    )
}

#[tokio::test]
async fn a_mounted_service_knows_its_user_and_never_sees_a_stranger() {
    let server = outside_with(vec![who()]).await;
    let node = server.pki.node("worker").unwrap();
    let answered = call(&server, Some(&node), get("/example.Who/Open")).await;
    assert_eq!(text(answered).await, "system:node:worker");
    let stranger = call(&server, None, get("/example.Who/Open")).await;
    assert_eq!(stranger.status(), StatusCode::UNAUTHORIZED);
    let jane = server.pki.client("jane", "jane", &[]).unwrap();
    let refused = call(&server, Some(&jane), get("/example.Who/Open")).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    server.stop().await;
}
