//! Pod volumes as files and mounts.
