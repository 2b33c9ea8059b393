//! How many files this process may hold open.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as this process may: systems start programs with 1024, for the sake of
/// `select`, which nobody here uses. Answers what it is now.
pub fn raise_limit() -> io::Result<u64> {
    let resource = Resource::RLIMIT_NOFILE;
    let (soft, hard) = getrlimit(resource)?;
    if soft < hard {
        setrlimit(resource, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_system_allows_at_most() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(256), hard).unwrap();
        assert_eq!(raise_limit().unwrap(), hard);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
