//! The scheduler against an API in memory, and one decision against an oracle.

mod cluster;
mod oracle;
