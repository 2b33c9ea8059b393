//! What a pod's node serves itself: its logs, commands in its containers, its ports.
//!
//! ```text
//! target   which container, on which node, at which address (pure)
//! client   a connection to the node, whose name its certificate must bear
//! log      GET pods/log: checked here, read there, passed on as it comes
//! stream   pods/exec, attach, portforward: two upgrades, then bytes
//! tunnel   portforward over WebSocket: the frames are taken off, what is in them is passed on
//! ```

mod client;
mod log;
mod stream;
mod target;
mod tunnel;

#[cfg(test)]
mod tests;

use http::{Request, Response};
use hyper::body::Incoming;
use swiftlet_client::api::{ApiError, UserInfo};

use crate::api::ApiServer;
use crate::authz;
use crate::error;
use crate::http_side::ResponseBody;
use crate::route::{self, Target};

pub use client::{NodeClient, NodeClientError};

/// The subresources that are served here.
const CONNECTED: [&str; 4] = ["attach", "exec", "log", "portforward"];

/// Whether a subresource is a node's to serve.
pub(crate) fn is_connected(subresource: &str) -> bool {
    CONNECTED.contains(&subresource)
}

/// Answers a request for one of them.
pub(crate) async fn answer(
    api: &ApiServer,
    user: &UserInfo,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    let verb = route::verb(request.method(), target, false)?;
    authz::authorize(user, verb, target)?;
    let client = api.options().node_client.as_ref().ok_or_else(|| {
        error::unavailable("this server has no client certificate for nodes and asks none")
    })?;
    let pod = target::Pod::find(api, target)?;
    match target.subresource {
        "log" => log::answer(api, client, target, &pod, &request).await,
        _ => stream::answer(api, client, target, &pod, request).await,
    }
}
