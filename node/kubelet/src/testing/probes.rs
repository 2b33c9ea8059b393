//! Requests to pods, answered as the test says.

use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use swiftlet_model::probes::{HttpProbe, ProbeAnswer, Probes};

/// What answers.
#[derive(Debug)]
pub(crate) struct FakeProbes {
    /// What each probe finds.
    pub(crate) answer: Mutex<ProbeAnswer>,
    /// How long an answer takes; beyond the limit it is a failure.
    pub(crate) delay: Mutex<Duration>,
    /// What has been asked, in order.
    pub(crate) asked: Mutex<Vec<String>>,
    /// What a lifecycle hook is answered.
    pub(crate) hook: Mutex<Result<u16, String>>,
}

impl Default for FakeProbes {
    fn default() -> Self {
        Self {
            answer: Mutex::new(ProbeAnswer::Success("ok".into())),
            delay: Mutex::default(),
            asked: Mutex::default(),
            hook: Mutex::new(Ok(200)),
        }
    }
}

impl FakeProbes {
    pub(crate) fn set(&self, answer: ProbeAnswer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn ask(&self, what: String, limit: Duration) -> BoxFuture<'_, ProbeAnswer> {
        async move {
            self.asked.lock().unwrap().push(what);
            let delay = *self.delay.lock().unwrap();
            tokio::time::sleep(delay.min(limit)).await;
            if delay > limit {
                return ProbeAnswer::Failure("context deadline exceeded".into());
            }
            self.answer.lock().unwrap().clone()
        }
        .boxed()
    }
}

impl Probes for FakeProbes {
    fn http_get<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer> {
        let HttpProbe {
            host, port, path, ..
        } = request;
        self.ask(format!("http {host}:{port}{path}"), limit)
    }

    fn http_hook<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, Result<u16, String>> {
        let HttpProbe {
            host, port, path, ..
        } = request;
        let what = format!("hook {host}:{port}{path}");
        async move {
            self.ask(what, limit).await;
            self.hook.lock().unwrap().clone()
        }
        .boxed()
    }

    fn tcp<'a>(&'a self, host: &'a str, port: u16, limit: Duration) -> BoxFuture<'a, ProbeAnswer> {
        self.ask(format!("tcp {host}:{port}"), limit)
    }

    fn grpc<'a>(
        &'a self,
        host: &'a str,
        port: u16,
        service: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer> {
        self.ask(format!("grpc {host}:{port} {service}"), limit)
    }
}
