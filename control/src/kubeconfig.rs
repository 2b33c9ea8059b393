//! `swiftlet-control kubeconfig`: a client certificate of the development authority, as a
//! kubeconfig.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use swiftlet_api::pki::Pki;

use crate::options::{ControlOptions, KubeconfigArguments};

pub(crate) fn print(options: &ControlOptions, arguments: &KubeconfigArguments) -> Result<()> {
    let pki = Pki::open(&options.data_dir)
        .with_context(|| format!("no authority in {}", options.data_dir.display()))?;
    let (user, identity) = match (&arguments.node, &arguments.user) {
        (Some(node), _) => (format!("system:node:{node}"), pki.node(node)?),
        (None, Some(user)) => {
            let groups: Vec<&str> = arguments.group.iter().map(String::as_str).collect();
            (
                user.clone(),
                pki.client(&format!("user-{user}"), user, &groups)?,
            )
        }
        (None, None) => anyhow::bail!("needs --node or --user"),
    };
    let url = server_url(options.listen);
    print!("{}", pki.kubeconfig(&url, &user, &identity).text());
    Ok(())
}

/// Where clients on this machine reach the server: an address that means "all" is no destination.
pub(crate) fn server_url(listen: SocketAddr) -> String {
    let address = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
    };
    format!("https://{}", SocketAddr::new(address, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::server_url;

    #[test]
    fn a_server_on_all_addresses_is_reached_on_loopback() {
        let url = |listen: &str| server_url(listen.parse().expect("an address"));
        assert_eq!(url("0.0.0.0:6443"), "https://127.0.0.1:6443");
        assert_eq!(url("[::]:6443"), "https://[::1]:6443");
        assert_eq!(url("10.0.0.7:443"), "https://10.0.0.7:443");
    }
}
