//! What a node decides about its pods; no I/O.
