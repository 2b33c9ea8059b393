//! The set-up that a figure belongs to.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

/// One line about machine, kernel, server, runtime.
pub(crate) async fn describe(client: &kube::Client) -> Result<String> {
    let server = client.apiserver_version().await?;
    let nodes = Api::<Node>::all(client.clone())
        .list(&kube::api::ListParams::default())
        .await?;
    let node = nodes
        .items
        .first()
        .and_then(|node| node.status.as_ref()?.node_info.as_ref());
    let node = node.map_or_else(String::new, |info| {
        format!(
            ", {}, {}",
            info.kubelet_version, info.container_runtime_version
        )
    });
    Ok(format!(
        "# {}, {} cores, {} node(s), server {}{node}",
        kernel(),
        std::thread::available_parallelism().map_or(0, usize::from),
        nodes.items.len(),
        server.git_version,
    ))
}

/// The kernel's release.
pub(crate) fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}
