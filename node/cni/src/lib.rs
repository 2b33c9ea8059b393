//! Pod networks: bridge and host-local IPAM in process over netlink, and the shim that containerd runs.
