//! Where log lines go: standard error, as text or JSON, filtered by `RUST_LOG`.

use tracing_subscriber::EnvFilter;

use crate::options::LogFormat;

/// What is logged if `RUST_LOG` does not say. `swiftlet::timeline=debug` adds a record for each
/// step of each pod.
const FILTER_DEFAULT: &str = "info";

/// Installs the subscriber; a second call changes nothing.
pub(crate) fn start(format: LogFormat) {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(FILTER_DEFAULT));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    installed.ok();
}
