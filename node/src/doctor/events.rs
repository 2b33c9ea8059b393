//! What can tell of starts and ends of containers.

use std::path::Path;

use swiftlet_cri::Cri;
use swiftlet_pleg::{Probe, Source};

use super::Check;
use crate::options::{EventsChoice, NodeOptions};

/// Each source that the options allow, and the one that is used.
pub(super) async fn examine(options: &NodeOptions) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut used = None;
    for source in Source::ALL {
        if options.events.source().is_some_and(|only| only != source) {
            continue;
        }
        let probes = probes(source, options).await;
        if used.is_none() && probes.iter().all(|probe| probe.result.is_ok()) {
            used = Some(source);
        }
        if source == Source::Kernel {
            checks.push(tracefs());
        }
        checks.extend(probes.into_iter().map(|probe| check(probe, used)));
    }
    checks.push(verdict(options.events, used.unwrap_or(Source::Relist)));
    checks
}

async fn probes(source: Source, options: &NodeOptions) -> Vec<Probe> {
    match source {
        Source::Kernel => swiftlet_pleg::probe(Path::new(swiftlet_sys::cgroup::MOUNT)),
        Source::Runtime => {
            let runtime = Cri::new(options.runtime_socket());
            vec![swiftlet_pleg::probe_stream(&runtime).await]
        }
        Source::Pidfd => {
            let runtime = Cri::new(options.runtime_socket());
            vec![swiftlet_pleg::probe_pidfd(&runtime).await]
        }
        Source::Relist => Vec::new(),
    }
}

/// A source that cannot be used is worth a warning only if no better one works.
fn check(probe: Probe, used: Option<Source>) -> Check {
    match probe.result {
        Ok(found) => Check::ok(probe.name, found),
        Err(error) if used.is_some() => {
            let found = format!("{}; not needed", error.with_causes());
            Check::ok(probe.name, found)
        }
        Err(error) => Check::warning(
            probe.name,
            format!("{}; the next source is used", error.with_causes()),
            probe.remedy,
        ),
    }
}

fn verdict(choice: EventsChoice, used: Source) -> Check {
    const NAME: &str = "lifecycle events";
    match (choice, used) {
        (EventsChoice::Auto | EventsChoice::Bpf, Source::Kernel) => {
            Check::ok(NAME, used.to_string())
        }
        (EventsChoice::Auto, _) => Check::warning(
            NAME,
            format!("told by {used}"),
            "needs a kernel with BTF and BPF, CAP_BPF and CAP_PERFMON",
        ),
        _ if choice.source() != Some(used) => Check::warning(
            NAME,
            format!("told by {used}; what --events says cannot be used"),
            "start with --events=auto",
        ),
        _ => Check::warning(
            NAME,
            format!("told by {used}, as --events says"),
            "start with --events=auto",
        ),
    }
}

fn tracefs() -> Check {
    let mounted = [
        "/sys/kernel/tracing/events",
        "/sys/kernel/debug/tracing/events",
    ]
    .iter()
    .any(|path| Path::new(path).exists());
    if mounted {
        return Check::ok("tracefs", "mounted");
    }
    Check::warning(
        "tracefs",
        "not mounted; only kernels without BTF tracepoints need it",
        "mount -t tracefs tracefs /sys/kernel/tracing",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use swiftlet_pleg::PlegError;

    #[test]
    fn a_source_that_is_not_needed_is_no_warning() {
        let lacking = || Probe {
            name: "event stream",
            result: Err(PlegError::StreamEnded),
            remedy: "a newer runtime",
        };
        assert_eq!(check(lacking(), Some(Source::Kernel)).verdict, Verdict::Ok);
        assert_eq!(check(lacking(), None).verdict, Verdict::Warning);
    }

    #[test]
    fn another_source_than_the_kernel_is_named() {
        let all = verdict(EventsChoice::Auto, Source::Kernel);
        assert_eq!(all.verdict, Verdict::Ok);
        let next = verdict(EventsChoice::Auto, Source::Pidfd);
        assert_eq!(
            (next.verdict, next.found.as_str()),
            (Verdict::Warning, "told by pidfds")
        );
        let lacking = verdict(EventsChoice::Bpf, Source::Relist);
        assert!(lacking.found.contains("cannot be used"), "{lacking}");
        let chosen = verdict(EventsChoice::Relist, Source::Relist);
        assert!(chosen.found.contains("as --events says"), "{chosen}");
    }
}
