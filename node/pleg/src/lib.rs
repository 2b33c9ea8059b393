//! Pod lifecycle events from the kernel, with a slow relist as the safety net.
