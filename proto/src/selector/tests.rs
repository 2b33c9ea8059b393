use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

fn selects(selector: &str, pairs: &[(&str, &str)]) -> bool {
    LabelSelector::parse(selector)
        .unwrap()
        .matches(&labels(pairs))
}

#[test]
fn every_operator_selects_as_kubernetes_does() {
    let web = [("app", "web"), ("n", "5")];
    for (selector, expected) in [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = db", false),
        ("app!=db", true),
        ("tier!=db", true),
        ("app in (db, web)", true),
        ("app notin (db)", true),
        ("tier notin (db)", true),
        ("app", true),
        ("tier", false),
        ("!tier", true),
        ("!app", false),
        ("n>4,n<6", true),
        ("n>5", false),
        ("app=web,!tier,n in (5)", true),
        ("app=", false),
        ("in=in", false),
        ("app in (web,)", true),
    ] {
        assert_eq!(selects(selector, &web), expected, "{selector}");
    }
}

#[test]
fn grammar_errors_are_worded_as_kubernetes_words_them() {
    for (selector, expected) in [
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        (
            ",a",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        (
            "a ~ b",
            "unable to parse requirement: found '~', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "a in ()",
            "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' operators, \
             values set can't be empty",
        ),
    ] {
        let error = LabelSelector::parse(selector).unwrap_err();
        assert_eq!(error.to_string(), expected, "{selector}");
    }
    let error = LabelSelector::parse("-a=b").unwrap_err().to_string();
    let start =
        "unable to parse requirement: key: Invalid value: \"-a\": name part must consist of";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn label_rules_are_quoted_whole() {
    assert_eq!(
        validate_label_key("-a").join("; "),
        concat!(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must ",
            "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  ",
            "or '123-abc', regex used for validation is ",
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        )
    );
    assert_eq!(
        validate_label_value("a b").join("; "),
        concat!(
            "a valid label must be an empty string or consist of alphanumeric characters, ",
            "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. ",
            "'MyValue',  or 'my_value',  or '12345', regex used for validation is ",
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        )
    );
}

#[test]
fn a_selector_object_means_what_its_string_means() {
    let expression = |key: &str, operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: Some(values.iter().map(|value| (*value).into()).collect()),
    };
    let object = ApiSelector {
        match_labels: Some(labels(&[("app", "web")])),
        match_expressions: Some(vec![
            expression("tier", "In", &["a", "b"]),
            expression("old", "DoesNotExist", &[]),
        ]),
    };
    let selector = LabelSelector::from_object(Some(&object)).unwrap();
    assert_eq!(selector.to_string(), "app=web,!old,tier in (a,b)");
    assert_eq!(
        selector,
        LabelSelector::parse(&selector.to_string()).unwrap()
    );
    assert!(
        !LabelSelector::from_object(None)
            .unwrap()
            .matches(&BTreeMap::new())
    );
    assert!(
        LabelSelector::from_object(Some(&ApiSelector::default()))
            .unwrap()
            .is_everything()
    );
    let wrong = ApiSelector {
        match_expressions: Some(vec![expression("a", "Is", &[])]),
        ..object
    };
    let error = LabelSelector::from_object(Some(&wrong)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"Is\" is not a valid label selector operator"
    );
}

#[test]
fn field_selectors_know_equality_inequality_and_escapes() {
    let requirements =
        parse_field_selector(r"metadata.name=x,spec.nodeName!=y\,z,,status.phase==").unwrap();
    let expected = [
        ("metadata.name", FieldOperator::Equals, "x"),
        ("spec.nodeName", FieldOperator::NotEquals, "y,z"),
        ("status.phase", FieldOperator::Equals, ""),
    ];
    let actual: Vec<_> = requirements
        .iter()
        .map(|requirement| {
            (
                requirement.field.as_str(),
                requirement.operator,
                requirement.value.as_str(),
            )
        })
        .collect();
    assert_eq!(actual, expected);
    assert!(requirements[1].matches(""));
    assert_eq!(
        parse_field_selector("a=b,cd").unwrap_err().to_string(),
        "invalid selector: 'a=b,cd'; can't understand 'cd'"
    );
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*") {
        let _ = LabelSelector::parse(&text);
        let _ = parse_field_selector(&text);
    }

    #[test]
    fn nearly_right_texts_do_not_panic_either(
        text in "([a-c/.]|in|notin|=|!|,|\\(|\\)|>|<|\\\\| ){0,30}"
    ) {
        let _ = parse_field_selector(&text);
        if let Ok(selector) = LabelSelector::parse(&text) {
            // What can be read can be written and read again.
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
