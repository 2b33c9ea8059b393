//! The Runtime door, spoken to containerd by CRI v1.
