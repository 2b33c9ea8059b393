use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    Quantity::parse(text).map_or_else(|error| error.to_string(), |quantity| quantity.to_string())
}

#[test]
fn quantities_are_written_in_kubernetes_canonical_form() {
    for (text, expected) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0.0", "0"),
        ("100m", "100m"),
        ("0.1", "100m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1500000", "1500k"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("512Mi", "512Mi"),
        ("1023Ki", "1023Ki"),
        ("0.001Mi", "1048576m"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1E", "1E"),
        ("1e-3", "1e-3"),
        ("+1e+3", "1e3"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1u", "1u"),
        ("-5", "-5"),
        ("99999999999999999999", "9223372036854775807"),
        ("8Ei", "9223372036854775807"),
        ("1e2147483647", "9223372036854775807e0"),
        ("0e2147483647", "0"),
    ] {
        let expected = expected.trim_end_matches("e0");
        assert_eq!(canonical(text), expected, "{text}");
    }
}

#[test]
fn what_is_not_a_quantity_is_refused_in_kubernetes_words() {
    let regex = "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for text in [
        "", " 1", "1 ", "abc", "-", ".", "1.1.1", "1x", "--1", "1e3.5",
    ] {
        assert_eq!(canonical(text), regex, "{text:?}");
    }
    for text in ["1i", "1ki", "1Mii", "1e", "1e-", "1m5", "1eE3", "1K"] {
        assert_eq!(
            canonical(text),
            "unable to parse quantity's suffix",
            "{text:?}"
        );
    }
}

#[test]
fn values_are_rounded_away_from_zero() {
    let quantity = |text| Quantity::parse(text).unwrap();
    assert_eq!(quantity("1001m").value(), 2);
    assert_eq!(quantity("-1001m").value(), -2);
    assert_eq!(quantity("1n").milli_value(), 1);
    assert_eq!(quantity("2").milli_value(), 2000);
    assert_eq!(quantity("8Ei").milli_value(), i64::MAX);
    assert_eq!(quantity("64Mi").value(), 64 << 20);
}

#[test]
fn a_sum_keeps_the_notation_of_its_first_operand_that_is_not_zero() {
    let mebi = Quantity::parse("1Mi").unwrap();
    assert_eq!((Quantity::ZERO + mebi).to_string(), "1Mi");
    assert_eq!(
        (mebi + mebi - Quantity::from_value(1024)).to_string(),
        "2047Ki"
    );
    assert_eq!(
        Quantity::parse("1").unwrap(),
        Quantity::parse("1000m").unwrap()
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn nearly_right_texts_do_not_panic_either(
        text in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}"
    ) {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn the_canonical_form_says_the_same_and_is_a_fixed_point(
        text in "-?[0-9]{1,12}(\\.[0-9]{1,12})?(n|u|m|k|M|G|T|Ki|Mi|Gi|e[0-9]|e-[0-9])?"
    ) {
        let quantity = Quantity::parse(&text).unwrap();
        let again = Quantity::parse(&quantity.to_string()).unwrap();
        prop_assert_eq!(quantity, again);
        prop_assert_eq!(quantity.to_string(), again.to_string());
    }

    #[test]
    fn decimal_fractions_are_exact(units in 0_i64..1_000_000, nanos in 0_i64..1_000_000_000) {
        let quantity = Quantity::parse(&format!("{units}.{nanos:09}")).unwrap();
        prop_assert_eq!(quantity.nanos, i128::from(units) * NANOS_PER_UNIT + i128::from(nanos));
    }

    #[test]
    fn addition_undoes_subtraction(a in any::<i32>(), b in any::<i32>()) {
        let (a, b) = (Quantity::from_milli(a.into()), Quantity::from_milli(b.into()));
        prop_assert_eq!(a - b + b, a);
        prop_assert_eq!(a.cmp(&b), a.milli_value().cmp(&b.milli_value()));
    }
}
