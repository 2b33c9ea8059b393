//! Amounts as Kubernetes prints them.

/// Suffixes of powers of 1024, the largest first.
const SUFFIXES: [(&str, u32); 6] = [
    ("Ei", 60),
    ("Pi", 50),
    ("Ti", 40),
    ("Gi", 30),
    ("Mi", 20),
    ("Ki", 10),
];

/// Bytes with the largest suffix that leaves a whole number.
pub(super) fn binary(amount: u64) -> String {
    let whole = |shift: &u32| amount > 0 && amount.is_multiple_of(1 << shift);
    match SUFFIXES.iter().find(|(_, shift)| whole(shift)) {
        Some((suffix, shift)) => format!("{}{suffix}", amount >> shift),
        None => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_printed_whole() {
        assert_eq!(binary(0), "0");
        assert_eq!(binary(1000), "1000");
        assert_eq!(binary(100 << 20), "100Mi");
        assert_eq!(binary((3 << 30) + (4 << 10)), "3145732Ki");
    }
}
