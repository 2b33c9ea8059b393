//! NodeLink's server: pods to nodes, statuses back.
