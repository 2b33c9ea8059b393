//! Finds a node for each pod.
