//! Starts the sources of static pods.

use swiftlet_model::sources::{SOURCES_QUEUE_MAX, Source, SourceReceiver};
use swiftlet_source::{DocumentOptions, FolderOptions, follow_document, follow_folder};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::configuration::StaticPods;

/// Which sources there are beside the control plane, and where they speak.
pub(crate) fn start(
    from: &StaticPods,
    node_name: &str,
    shutdown: &CancellationToken,
) -> (Vec<Source>, SourceReceiver) {
    let (sender, lists) = mpsc::channel(SOURCES_QUEUE_MAX);
    let mut sources = Vec::new();
    if let Some(path) = &from.path {
        sources.push(Source::File);
        let options = FolderOptions {
            path: path.clone(),
            node_name: node_name.to_owned(),
            check_period: from.file_period,
        };
        tokio::spawn(follow_folder(options, sender.clone(), shutdown.clone()));
    }
    if let Some(url) = &from.url {
        sources.push(Source::Http);
        let options = DocumentOptions {
            url: url.clone(),
            headers: from.headers.clone(),
            node_name: node_name.to_owned(),
            check_period: from.http_period,
        };
        tokio::spawn(follow_document(options, sender, shutdown.clone()));
    }
    (sources, lists)
}
