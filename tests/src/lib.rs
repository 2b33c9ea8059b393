//! The stack as a user starts it, and the promises that it keeps.
