//! Names of kernel parameters. Pure.

/// The name with dots between its parts. Where the first mark is a slash, slashes are the marks and
/// a dot belongs to a name, as in `net/ipv4/conf/eth0.100/rp_filter` (sysctl.d(5)).
pub fn normal(name: &str) -> String {
    let first = name.find(['.', '/']);
    if first.is_none_or(|at| name[at..].starts_with('.')) {
        return name.to_owned();
    }
    let turned = name.chars().map(|mark| match mark {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    turned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_decides_which_one_separates() {
        for (written, expected) in [
            ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
            ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
            (
                "net.ipv4.conf.eno2/100.rp_filter",
                "net.ipv4.conf.eno2/100.rp_filter",
            ),
            (
                "net/ipv4/conf/eno2.100/rp_filter",
                "net.ipv4.conf.eno2/100.rp_filter",
            ),
            ("plain", "plain"),
        ] {
            assert_eq!(normal(written), expected);
        }
    }
}
