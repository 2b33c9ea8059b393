//! Serves the API alone, in a new folder, for trying clients: no scheduler, no node.
//!
//! ```text
//! cargo run -p swiftlet-api --example api_only -- 127.0.0.1:6443 /tmp/api-only
//! ```

use std::error::Error;
use std::path::PathBuf;

use swiftlet_api::pki::Pki;
use swiftlet_api::{ApiOptions, ApiServer, Server, ServerOptions};
use swiftlet_store::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:0".into())
        .parse()?;
    let data = arguments
        .next()
        .map_or_else(|| std::env::temp_dir().join("api-only"), PathBuf::from);
    let (store, _) = Store::open(StoreOptions::new(data.join("store"))).await?;
    let api = ApiServer::new(store.clone(), ApiOptions::default());
    api.bootstrap().await?;
    let pki = Pki::open(&data)?;
    let options = ServerOptions {
        address,
        identity: pki.serving(&[])?,
        client_ca_pem: pki.ca_pem().into(),
    };
    let server = Server::bind(api, options).await?;
    let url = format!("https://{}", server.address());
    let config = data.join("admin.conf");
    pki.kubeconfig(&url, "kubernetes-admin", &pki.admin()?)
        .write(&config)?;
    println!("export KUBECONFIG={}", config.display());
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    server.run(shutdown).await;
    store.shutdown().await;
    Ok(())
}
