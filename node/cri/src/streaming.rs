//! Exec, Attach, PortForward: the runtime answers the URL of its own streaming server.

use k8s_cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};
use swiftlet_model::BoxFuture;
use swiftlet_model::ids::{ContainerId, SandboxId};
use swiftlet_model::runtime::RuntimeError;
use swiftlet_model::streaming::{Streaming, Streams};

use crate::Cri;
use crate::client::Call;

impl Streaming for Cri {
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        streams: Streams,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        let request = ExecRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        Box::pin(async move {
            let mut service = self.client.runtime();
            let answer = self
                .client
                .send(Call::read("Exec"), request, |request| service.exec(request));
            answer.await.map(|answer| answer.url)
        })
    }

    fn attach<'a>(
        &'a self,
        id: &'a ContainerId,
        streams: Streams,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        let request = AttachRequest {
            container_id: id.to_string(),
            stdin: streams.stdin,
            tty: streams.tty,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        Box::pin(async move {
            let mut service = self.client.runtime();
            let answer = self.client.send(Call::read("Attach"), request, |request| {
                service.attach(request)
            });
            answer.await.map(|answer| answer.url)
        })
    }

    fn port_forward<'a>(
        &'a self,
        id: &'a SandboxId,
        ports: &'a [u16],
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        let request = PortForwardRequest {
            pod_sandbox_id: id.to_string(),
            port: ports.iter().map(|port| i32::from(*port)).collect(),
        };
        Box::pin(async move {
            let mut service = self.client.runtime();
            let call = Call::read("PortForward");
            let answer = self
                .client
                .send(call, request, |request| service.port_forward(request));
            answer.await.map(|answer| answer.url)
        })
    }
}
