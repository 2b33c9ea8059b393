//! One request of the runtime, checked.

use std::path::{Path, PathBuf};

use crate::args::CniArgs;
use crate::conf::INTERFACE_NAME_BYTES_MAX;
use crate::error::NetworkError;
use crate::ipam::allocator::Holder;
use crate::previous::PreviousResult;
use crate::wire::ShimRequest;

/// Everything that a runtime can ask. If it is not here, it cannot happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Attach a pod.
    Add(Attachment),
    /// Detach it; whatever is missing is fine.
    Del(Attachment),
    /// Is it still attached as ADD left it?
    Check(Attachment),
    /// Which versions are spoken? The shim answers by itself; others may ask here.
    Version,
    /// Can ADD be served?
    Status,
    /// Free what is held by none of the conf's valid attachments.
    Gc,
}

/// The pod's interface that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The sandbox and its interface.
    pub holder: Holder,
    /// Its network namespace; DEL may come without.
    pub netns: Option<PathBuf>,
    /// The pod, and what `CNI_ARGS` asks for it.
    pub(crate) args: CniArgs,
}

/// The pod as `CNI_ARGS` names it; empty where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`.
    pub uid: String,
}

impl Request {
    /// Checks what the shim passed on.
    pub fn parse(shim: &ShimRequest) -> Result<Self, NetworkError> {
        let attachment = || Attachment::parse(shim);
        let inside = || {
            let attachment = attachment()?;
            match attachment.netns {
                Some(_) => Ok(attachment),
                None => Err(wrong("CNI_NETNS", "is not set")),
            }
        };
        match shim.command.as_str() {
            "ADD" => Ok(Self::Add(inside()?)),
            "CHECK" => Ok(Self::Check(inside()?)),
            "DEL" => Ok(Self::Del(attachment()?)),
            "VERSION" => Ok(Self::Version),
            "STATUS" => Ok(Self::Status),
            "GC" => Ok(Self::Gc),
            other => Err(wrong(
                "CNI_COMMAND",
                &format!("is {other:?}, which is no command"),
            )),
        }
    }
}

impl Attachment {
    /// ADD: an interface that a plugin before made is not ours to make again.
    pub(crate) fn refuse_second(
        &self,
        previous: Option<&PreviousResult>,
    ) -> Result<(), NetworkError> {
        let ifname = &self.holder.ifname;
        let netns = self.netns.as_deref().unwrap_or(Path::new(""));
        let is_there = |result: &PreviousResult| result.has(ifname, &netns.to_string_lossy());
        if !previous.is_some_and(is_there) {
            return Ok(());
        }
        Err(NetworkError::Conf {
            field: "prevResult".to_owned(),
            reason: format!(
                "a plugin before made {ifname} already: swiftlet-cni has to be the first of its \
                 list"
            ),
        })
    }

    fn parse(shim: &ShimRequest) -> Result<Self, NetworkError> {
        // Both become parts of files and names, and the id is the key of everything.
        let id_is_plain = shim
            .container_id
            .starts_with(|c: char| c.is_ascii_alphanumeric())
            && !shim
                .container_id
                .contains(|c: char| c == '/' || c.is_whitespace());
        if !id_is_plain {
            return Err(wrong("CNI_CONTAINERID", "is not set or no container id"));
        }
        let fits = (1..=INTERFACE_NAME_BYTES_MAX).contains(&shim.ifname.len());
        if !fits
            || shim
                .ifname
                .contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
        {
            return Err(wrong(
                "CNI_IFNAME",
                "is not set or no name for an interface",
            ));
        }
        Ok(Self {
            holder: Holder {
                container_id: shim.container_id.clone(),
                ifname: shim.ifname.clone(),
            },
            netns: (!shim.netns.is_empty()).then(|| PathBuf::from(&shim.netns)),
            args: match shim.command.as_str() {
                // What was wrong with them must not keep a pod's parts here for ever.
                "DEL" => CniArgs::default(),
                _ => CniArgs::parse(&shim.args)?,
            },
        })
    }
}

fn wrong(variable: &'static str, reason: &str) -> NetworkError {
    NetworkError::Environment {
        variable,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(command: &str) -> ShimRequest {
        ShimRequest {
            command: command.into(),
            container_id: "abc123".into(),
            netns: "/run/netns/x".into(),
            ifname: "eth0".into(),
            args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u-1".into(),
            ..ShimRequest::default()
        }
    }

    #[test]
    fn the_pod_is_read_from_the_arguments() {
        let Request::Add(attachment) = Request::parse(&shim("ADD")).unwrap() else {
            panic!("ADD is Add");
        };
        assert_eq!(attachment.args.pod.namespace, "ns");
        assert_eq!(attachment.args.pod.name, "web");
        assert_eq!(attachment.args.pod.uid, "u-1");
    }

    #[test]
    fn del_needs_no_namespace_and_add_does() {
        let bare = |command| ShimRequest {
            netns: String::new(),
            ..shim(command)
        };
        assert!(Request::parse(&bare("DEL")).is_ok());
        assert_eq!(Request::parse(&bare("ADD")).unwrap_err().code(), 4);
        assert_eq!(Request::parse(&bare("CHECK")).unwrap_err().code(), 4);
    }

    #[test]
    fn ids_and_names_that_could_leave_their_folder_are_refused() {
        for id in ["", "../x", "a/b", "a b"] {
            let request = ShimRequest {
                container_id: id.into(),
                ..shim("ADD")
            };
            assert_eq!(Request::parse(&request).unwrap_err().code(), 4, "{id:?}");
        }
        for ifname in ["", "a/b", "sixteen-bytes-xx"] {
            let request = ShimRequest {
                ifname: ifname.into(),
                ..shim("ADD")
            };
            assert_eq!(
                Request::parse(&request).unwrap_err().code(),
                4,
                "{ifname:?}"
            );
        }
    }
}
