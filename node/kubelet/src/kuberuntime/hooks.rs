//! Lifecycle hooks: what a handler asks for (pure), and the asking, through the doors. The rules
//! are those of `pkg/kubelet/lifecycle/handlers.go`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use swiftlet_model::ids::{ContainerId, PodKey};
use swiftlet_model::probes::HttpProbe;
use swiftlet_model::runtime::RuntimeError;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::execute::{Answer, Call};
use crate::options::Doors;
use crate::prober::check::{CheckError, http_probe};
use crate::shared::Shared;

/// Longest time of a postStart hook: Kubernetes has no limit, and everything here has one.
pub(crate) const POST_START_LIMIT: Duration = Duration::from_hours(24);

/// The container's postStart handler.
pub(crate) fn post_start(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.post_start.as_ref()
}

/// The container's preStop handler.
pub(crate) fn pre_stop(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

/// What a handler asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// A command in the container.
    Exec(Vec<String>),
    /// A request by HTTP; any answer will do.
    Http(HttpProbe),
    /// A pause.
    Sleep(Duration),
}

/// Why a hook has failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HookError {
    /// It says nothing that can be done.
    #[error("invalid handler")]
    NoHandler,
    /// Its port is unknown.
    #[error(transparent)]
    Port(#[from] CheckError),
    /// The pod has no address to send the request to.
    #[error("failed to find networking container")]
    NoAddress,
    /// The command could not be run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The command has ended badly.
    #[error("command '{command}' exited with {code}: {output}")]
    Exit {
        /// With its arguments.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it said.
        output: String,
    },
    /// Nobody answers.
    #[error("{0}")]
    Http(String),
    /// It took longer than it may.
    #[error("it did not end within {0:?}")]
    TooLong(Duration),
}

impl Hook {
    /// What `handler` asks for, of a container at `pod_ip`.
    pub(crate) fn of(
        handler: &LifecycleHandler,
        container: &Container,
        pod_ip: Option<&str>,
    ) -> Result<Self, HookError> {
        if let Some(exec) = &handler.exec {
            return Ok(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &handler.http_get {
            let request = http_probe(get, container, pod_ip.unwrap_or_default())?;
            if request.host.is_empty() {
                return Err(HookError::NoAddress);
            }
            return Ok(Self::Http(request));
        }
        let sleep = handler.sleep.as_ref().ok_or(HookError::NoHandler)?;
        let seconds = u64::try_from(sleep.seconds).unwrap_or_default();
        Ok(Self::Sleep(Duration::from_secs(seconds)))
    }

    /// The words with which kubelet tells of a failure in `state.waiting.message`.
    pub(crate) fn failure(
        handler: &LifecycleHandler,
        name: &str,
        pod: &PodKey,
        why: &HookError,
    ) -> String {
        let of = format!(
            "for Container \"{name}\" in Pod \"{}_{}({})\" failed - error: {why}",
            pod.name, pod.namespace, pod.uid
        );
        if let Some(exec) = &handler.exec {
            let command = exec.command.clone().unwrap_or_default().join(" ");
            let said = match why {
                HookError::Exit { output, .. } => output.as_str(),
                _ => "",
            };
            return format!("Exec lifecycle hook ([{command}]) {of}, message: {said:?}");
        }
        if let Some(get) = &handler.http_get {
            let path = get.path.clone().unwrap_or_default();
            return format!("HTTP lifecycle hook ({path}) {of}");
        }
        match &handler.sleep {
            Some(sleep) => format!("Sleep lifecycle hook ({}) {of}", sleep.seconds),
            None => format!("Cannot run handler: {why}"),
        }
    }

    async fn run(self, doors: &Doors, id: &ContainerId, limit: Duration) -> Result<(), HookError> {
        match self {
            Self::Exec(command) => {
                let output = doors.runtime.exec_sync(id, &command, limit).await?;
                if output.exit_code == 0 {
                    return Ok(());
                }
                let said = [output.stdout, output.stderr].concat();
                Err(HookError::Exit {
                    command: command.join(" "),
                    code: output.exit_code,
                    output: String::from_utf8_lossy(&said).into_owned(),
                })
            }
            Self::Http(request) => {
                let answer = doors.probes.http_hook(&request, limit).await;
                answer.map(|_status| ()).map_err(HookError::Http)
            }
            Self::Sleep(time) if time > limit => {
                tokio::time::sleep(limit).await;
                Err(HookError::TooLong(limit))
            }
            Self::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }
}

/// Runs a hook, `limit` at most; one that is cut short by `ending` was not made.
pub(crate) fn run(
    shared: &Arc<Shared>,
    hook: Result<Hook, HookError>,
    id: ContainerId,
    limit: Duration,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let hook = match hook {
            Ok(hook) => hook,
            Err(error) => return Answer::Hook(Err(error)),
        };
        let result = hook.run(&shared.doors, &id, limit);
        match ending.run_until_cancelled(result).await {
            Some(result) => Answer::Hook(result),
            None => Answer::Cancelled,
        }
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, SleepAction};
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;

    fn exec(command: &[&str]) -> LifecycleHandler {
        LifecycleHandler {
            exec: Some(ExecAction {
                command: Some(command.iter().map(|&word| word.to_owned()).collect()),
            }),
            ..LifecycleHandler::default()
        }
    }

    #[test]
    fn a_handler_is_a_command_a_request_or_a_pause() {
        let container = Container::default();
        let of = |handler: &LifecycleHandler, ip| Hook::of(handler, &container, ip);
        let command = of(&exec(&["true"]), None).unwrap();
        assert_eq!(command, Hook::Exec(vec!["true".to_owned()]));
        let sleep = LifecycleHandler {
            sleep: Some(SleepAction { seconds: 3 }),
            ..LifecycleHandler::default()
        };
        let pause = of(&sleep, None).unwrap();
        assert_eq!(pause, Hook::Sleep(Duration::from_secs(3)));
        let http = LifecycleHandler {
            http_get: Some(HTTPGetAction {
                port: IntOrString::Int(80),
                ..HTTPGetAction::default()
            }),
            ..LifecycleHandler::default()
        };
        let Hook::Http(request) = of(&http, Some("10.1.0.7")).unwrap() else {
            panic!("not a request");
        };
        assert_eq!((request.host.as_str(), request.port), ("10.1.0.7", 80));
        assert!(matches!(of(&http, None), Err(HookError::NoAddress)));
        let nothing = LifecycleHandler::default();
        assert!(matches!(of(&nothing, None), Err(HookError::NoHandler)));
    }

    #[test]
    fn a_failure_is_told_in_the_words_of_kubelet() {
        let pod = PodKey {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "u1".into(),
        };
        let why = HookError::Exit {
            command: "sh -c x".to_owned(),
            code: 127,
            output: "sh: x: not found".to_owned(),
        };
        let text = Hook::failure(&exec(&["sh", "-c", "x"]), "main", &pod, &why);
        let expected = "Exec lifecycle hook ([sh -c x]) for Container \"main\" in Pod \
                        \"web_default(u1)\" failed - error: command 'sh -c x' exited with 127: \
                        sh: x: not found, message: \"sh: x: not found\"";
        assert_eq!(text, expected);
    }
}
