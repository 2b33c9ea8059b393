//! A container's configuration that is put together while the pod's sandbox is made: what the
//! control plane and the disk must tell for it is then there when the sandbox is.

use std::sync::Arc;

use swiftlet_model::runtime::ContainerConfig;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::env::needs_pod_ip;
use crate::kuberuntime::execute::{Answer, Call, CreateCall, configure};
use crate::shared::Shared;

/// The configuration, and what it was made from.
#[derive(Debug)]
pub(crate) struct Early {
    config: ContainerConfig,
    call: CreateCall,
}

impl Early {
    /// The configuration, if it is the one that this call would get. Where the container is made,
    /// and on which CPUs, is not part of it; of the pod's addresses only who names them has some.
    pub(crate) fn of(self, call: &CreateCall) -> Option<ContainerConfig> {
        let (own, made) = (&self.call, &self.call.made);
        let (meta, wanted) = (&own.pod.metadata, &call.pod.metadata);
        let same_env = own.env == call.env.clone().with_pod_ips(&own.env.pod_ips)
            && (own.env.pod_ips == call.env.pod_ips || !needs_pod_ip(&made.container));
        let same = same_env
            && made.container == call.made.container
            && made.attempt == call.made.attempt
            && own.round == call.round
            && own.image_user == call.image_user
            && own.volumes == call.volumes
            && own.memory_capacity_bytes == call.memory_capacity_bytes
            && own.target == call.target
            && meta.labels == wanted.labels
            && meta.annotations == wanted.annotations
            && own.pod.spec == call.pod.spec;
        same.then_some(self.config)
    }
}

/// Puts the configuration together, and makes nothing with it.
pub(crate) fn configured(
    shared: &Arc<Shared>,
    call: CreateCall,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let name = call.made.container.name.as_str().into();
        match ending.run_until_cancelled(configure(&shared, &call)).await {
            None => Answer::Cancelled,
            Some(Ok(config)) => Answer::Configured(name, Ok(Box::new(Early { config, call }))),
            Some(Err(error)) => Answer::Configured(name, Err(error)),
        }
    })
}
