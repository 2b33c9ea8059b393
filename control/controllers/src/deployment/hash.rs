//! The hash that names a template's replica set.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::error::ControllerError;

/// The label that keeps the pods of two sets apart.
pub(super) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// FNV-1a, 32 bits: offset basis and prime.
const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;
/// Letters and digits that form no words and are not mistaken for each other (Kubernetes' `rand`
/// package).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The template's hash, in the alphabet of Kubernetes. The value differs from Kubernetes' own,
/// which hashes Go's printed structures: only that it is the same for the same template matters.
pub(super) fn template_hash(
    template: &PodTemplateSpec,
    collisions: Option<i32>,
) -> Result<String, ControllerError> {
    // Maps are sorted and absent fields are left out, so that equal templates have one encoding.
    let encoded = serde_json::to_vec(&without_hash(template)).map_err(ControllerError::Template)?;
    let mut hash = fnv1a(FNV_OFFSET, &encoded);
    if let Some(collisions) = collisions {
        hash = fnv1a(hash, collisions.to_string().as_bytes());
    }
    Ok(safe_encoded(&hash.to_string()))
}

/// Whether two templates are the same but for the hash label.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash(a) == without_hash(b)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        // An empty map and none are the same.
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.annotations = meta
            .annotations
            .take()
            .filter(|annotations| !annotations.is_empty());
    }
    template
}

fn fnv1a(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

fn safe_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_function_is_fnv_1a() {
        // From the reference vectors of the algorithm's authors.
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0x811c_9dc5);
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn the_alphabet_is_that_of_kubernetes() {
        // '0' is 48 and 48 % 27 = 21.
        assert_eq!(safe_encoded("0123456789"), "456789bcdf");
    }
}
