//! The ControlPlane door, spoken over NodeLink.
