//! Records that the kernel programs and the node share.
