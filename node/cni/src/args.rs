//! `CNI_ARGS`: pairs `KEY=value;…` that the runtime or an administrator adds for one pod.
//!
//! ```text
//! IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=…;IP=10.88.0.9
//! ```
//!
//! An unknown key is an error, unless `IgnoreUnknown` says otherwise (pkg/types/args.go of CNI).

use std::net::IpAddr;

use crate::error::NetworkError;
use crate::mac::Mac;
use crate::request::PodIdentity;

/// What the arguments say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CniArgs {
    pub(crate) pod: PodIdentity,
    /// `IP`: the address that the pod is to have.
    pub(crate) ip: Option<IpAddr>,
    /// `MAC`: the hardware address of its interface.
    pub(crate) mac: Option<Mac>,
}

impl CniArgs {
    /// Reads the variable; empty is fine.
    pub(crate) fn parse(text: &str) -> Result<Self, NetworkError> {
        let mut args = Self::default();
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        for pair in text.split(';').filter(|_| !text.is_empty()) {
            let Some((key, value)) = pair
                .split_once('=')
                .filter(|(_, value)| !value.contains('='))
            else {
                return Err(wrong(&format!("has the invalid pair {pair:?}")));
            };
            match key {
                "IgnoreUnknown" => ignore_unknown = truth(pair, value)?,
                "K8S_POD_NAMESPACE" => value.clone_into(&mut args.pod.namespace),
                "K8S_POD_NAME" => value.clone_into(&mut args.pod.name),
                "K8S_POD_UID" => value.clone_into(&mut args.pod.uid),
                // The sandbox, which CNI_CONTAINERID names too.
                "K8S_POD_INFRA_CONTAINER_ID" => (),
                // An empty value asks for nothing, with the reference plugins too.
                "IP" | "MAC" if value.is_empty() => (),
                "IP" => args.ip = Some(value.parse().map_err(|_| no_value(pair))?),
                "MAC" => args.mac = Some(value.parse().map_err(|()| no_value(pair))?),
                _ => unknown.push(pair),
            }
        }
        if unknown.is_empty() || ignore_unknown {
            return Ok(args);
        }
        Err(wrong(&format!("has unknown args {unknown:?}")))
    }
}

fn truth(pair: &str, value: &str) -> Result<bool, NetworkError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(no_value(pair)),
    }
}

fn no_value(pair: &str) -> NetworkError {
    wrong(&format!("has a wrong value in {pair:?}"))
}

fn wrong(reason: &str) -> NetworkError {
    NetworkError::Environment {
        variable: "CNI_ARGS",
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_the_pod_are_read() {
        let text = "IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.88.0.9;MAC=02:00:00:00:00:09;X=y";
        let args = CniArgs::parse(text).unwrap();
        assert_eq!(args.pod.name, "web");
        assert_eq!(args.ip, Some("10.88.0.9".parse().unwrap()));
        assert_eq!(args.mac, Some(Mac([2, 0, 0, 0, 0, 9])));
        assert_eq!(CniArgs::parse("").unwrap(), CniArgs::default());
    }

    #[test]
    fn unknown_keys_are_named_unless_they_are_to_be_ignored() {
        for text in ["X=y", "X=y;IgnoreUnknown=0", "IgnoreUnknown=false;X=y"] {
            let error = CniArgs::parse(text).unwrap_err();
            assert_eq!(error.code(), 4);
            assert!(
                error.to_string().contains("unknown args [\"X=y\"]"),
                "{error}"
            );
        }
        assert!(CniArgs::parse("X=y;IgnoreUnknown=TRUE").is_ok());
    }

    #[test]
    fn pairs_and_values_that_cannot_be_understood_are_refused() {
        let mac = "MAC=02:00:00:00:00";
        for text in [
            "nonsense",
            "IP=10.1",
            mac,
            "IgnoreUnknown=maybe",
            "A=b=c",
            "IP=1.2.3.4;",
        ] {
            assert_eq!(CniArgs::parse(text).unwrap_err().code(), 4, "{text}");
        }
    }
}
