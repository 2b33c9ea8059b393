//! Services beside the API, on the same port.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::http_side::{BoxError, ResponseBody};

/// A service for all paths with a prefix.
#[derive(Clone)]
pub struct Mount {
    prefix: &'static str,
    service: BoxCloneSyncService<Request<Incoming>, Response<ResponseBody>, BoxError>,
}

impl Mount {
    /// Mounts a service, such as a generated gRPC server, at a prefix such as
    /// `/swiftlet.v1.NodeLink/`.
    pub fn new<S, B>(prefix: &'static str, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let boxed = service
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into);
        Self {
            prefix,
            service: BoxCloneSyncService::new(boxed),
        }
    }

    pub(super) fn takes(&self, path: &str) -> bool {
        path.starts_with(self.prefix)
    }

    pub(super) async fn call(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        self.service.clone().oneshot(request).await
    }
}
