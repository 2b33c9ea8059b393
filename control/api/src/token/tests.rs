use serde_json::json;

use super::*;

fn claims() -> Claims {
    Claims {
        aud: vec![ISSUER.into()],
        exp: 2_000_000_000,
        iss: ISSUER.into(),
        sub: "system:serviceaccount:default:web".into(),
        kubernetes: KubernetesClaims {
            namespace: "default".into(),
            pod: Some(Bound {
                name: "web-1".into(),
                uid: "u1".into(),
            }),
            ..KubernetesClaims::default()
        },
        ..Claims::default()
    }
}

#[test]
fn a_token_says_what_was_signed_and_only_to_its_own_key() {
    let (ours, other) = (SigningKey::generate(), SigningKey::generate());
    let (ours, other) = (ours.unwrap(), other.unwrap());
    let token = ours.sign(&claims()).unwrap();
    assert_eq!(ours.verified(&token), Some(claims()));
    assert_eq!(other.verified(&token), None);
}

#[test]
fn a_token_with_one_letter_changed_is_none() {
    let key = SigningKey::generate().unwrap();
    let token = key.sign(&claims()).unwrap();
    for at in 0..token.len() - 1 {
        let mut letters: Vec<char> = token.chars().collect();
        letters[at] = if letters[at] == 'A' { 'B' } else { 'A' };
        let changed: String = letters.into_iter().collect();
        assert_eq!(key.verified(&changed), None, "letter {at}");
    }
    for nonsense in ["", ".", "..", "a.b.c", "\u{e9}.\u{e9}.\u{e9}"] {
        assert_eq!(key.verified(nonsense), None);
    }
}

#[test]
fn a_header_that_names_no_signature_is_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let key = SigningKey::generate().unwrap();
    let token = key.sign(&claims()).unwrap();
    let (_, rest) = token.split_once('.').unwrap();
    let none = URL_SAFE_NO_PAD.encode(json!({ "alg": "none" }).to_string());
    assert_eq!(key.verified(&format!("{none}.{rest}")), None);
}

#[test]
fn the_public_key_is_a_point_on_p_256() {
    let key = SigningKey::generate().unwrap();
    let set = key_set(&key);
    let jwk = &set["keys"][0];
    assert_eq!((&jwk["kty"], &jwk["crv"]), (&json!("EC"), &json!("P-256")));
    for coordinate in ["x", "y"] {
        assert_eq!(jwk[coordinate].as_str().map(str::len), Some(43));
    }
}
