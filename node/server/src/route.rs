//! What a path asks for. Pure.

use http::Method;

/// A pod, and a container of it where the path has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) pod: String,
    /// Its uid, if the path insists on one.
    pub(crate) uid: Option<String>,
    /// Its container; empty for ports.
    pub(crate) container: String,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/pods`.
    Pods,
    /// `/runningpods`.
    RunningPods,
    /// `/containerLogs/<namespace>/<pod>/<container>`.
    Logs(Target),
    /// `/exec/<namespace>/<pod>[/<uid>]/<container>`.
    Exec(Target),
    /// `/attach/<namespace>/<pod>[/<uid>]/<container>`.
    Attach(Target),
    /// `/portForward/<namespace>/<pod>[/<uid>]`.
    PortForward(Target),
    /// A path of the kubelet that is not served here.
    NotServed,
    /// A path that nobody knows.
    Unknown,
    /// The path is known, the method is not.
    WrongMethod,
}

/// First parts of the kubelet's paths that are not served.
const NOT_SERVED: [&str; 9] = [
    "run",
    "logs",
    "stats",
    "metrics",
    "spec",
    "configz",
    "flagz",
    "statusz",
    "checkpoint",
];

/// Reads a path.
pub(crate) fn route(method: &Method, path: &str) -> Route {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let read = matches!(*method, Method::GET | Method::HEAD);
    let stream = matches!(*method, Method::GET | Method::POST);
    let (route, is_allowed) = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => (Route::Health, read),
        ["pods"] => (Route::Pods, read),
        ["runningpods"] => (Route::RunningPods, read),
        ["containerLogs", namespace, pod, container] => {
            let target = target(namespace, pod, None, container);
            (Route::Logs(target), *method == Method::GET)
        }
        ["exec", namespace, pod, rest @ ..] => match container(namespace, pod, rest) {
            Some(target) => (Route::Exec(target), stream),
            None => (Route::Unknown, true),
        },
        ["attach", namespace, pod, rest @ ..] => match container(namespace, pod, rest) {
            Some(target) => (Route::Attach(target), stream),
            None => (Route::Unknown, true),
        },
        ["portForward", namespace, pod] => {
            let target = target(namespace, pod, None, "");
            (Route::PortForward(target), stream)
        }
        ["portForward", namespace, pod, uid] => {
            let target = target(namespace, pod, Some(uid), "");
            (Route::PortForward(target), stream)
        }
        [first, ..] if NOT_SERVED.contains(first) => (Route::NotServed, true),
        _ => (Route::Unknown, true),
    };
    if is_allowed {
        route
    } else {
        Route::WrongMethod
    }
}

fn container(namespace: &str, pod: &str, rest: &[&str]) -> Option<Target> {
    match rest {
        [container] => Some(target(namespace, pod, None, container)),
        [uid, container] => Some(target(namespace, pod, Some(uid), container)),
        _ => None,
    }
}

fn target(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> Target {
    Target {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(ToOwned::to_owned),
        container: container.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_the_kubelets() {
        let get = |path: &str| route(&Method::GET, path);
        assert_eq!(get("/healthz"), Route::Health);
        assert_eq!(get("/pods/"), Route::Pods);
        let log = target("ns", "web", None, "main");
        assert_eq!(get("/containerLogs/ns/web/main"), Route::Logs(log.clone()));
        assert_eq!(get("/exec/ns/web/main"), Route::Exec(log));
        let one = target("ns", "web", Some("u"), "main");
        assert_eq!(get("/attach/ns/web/u/main"), Route::Attach(one));
        let ports = target("ns", "web", Some("u"), "");
        assert_eq!(get("/portForward/ns/web/u"), Route::PortForward(ports));
        assert_eq!(get("/metrics/cadvisor"), Route::NotServed);
        assert_eq!(get("/exec/ns/web"), Route::Unknown);
        assert_eq!(get("/"), Route::Unknown);
        let post = |path: &str| route(&Method::POST, path);
        assert_eq!(post("/containerLogs/ns/web/main"), Route::WrongMethod);
        assert_eq!(post("/pods"), Route::WrongMethod);
        assert!(matches!(post("/exec/ns/web/main"), Route::Exec(_)));
    }
}
