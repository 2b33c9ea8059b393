//! The hash that tells whether a container must be made anew because its spec changed.
//!
//! It covers few fields and bears a version: a new release of this program, or of the API, must
//! never restart the containers of a node.

use k8s_openapi::api::core::v1::Container;

/// Grows when the fields change that are hashed; containers with another version are left alone.
const HASH_VERSION: u64 = 1;
/// Bits that hold the version.
const VERSION_SHIFT: u32 = 56;
/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// FNV-1a, 64 bits.
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of name and image, with the version in the highest byte.
pub fn spec_hash(container: &Container) -> u64 {
    let image = container.image.as_deref().unwrap_or_default();
    let bytes = container.name.bytes().chain([0]).chain(image.bytes());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    });
    (HASH_VERSION << VERSION_SHIFT) | (hash & ((1 << VERSION_SHIFT) - 1))
}

/// Whether a container made with `made` differs from the spec. Unknown or of another version: no.
pub fn changed(made: Option<u64>, container: &Container) -> bool {
    made.is_some_and(|made| made >> VERSION_SHIFT == HASH_VERSION && made != spec_hash(container))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;

    #[test]
    fn only_name_and_image_change_the_hash_and_other_versions_never_do() {
        let old = Container {
            name: "a".into(),
            image: Some("x:1".into()),
            ..Container::default()
        };
        let edited = Container {
            args: Some(vec!["new".into()]),
            // A resize is carried out in place.
            resources: Some(ResourceRequirements::default()),
            ..old.clone()
        };
        let newer = Container {
            image: Some("x:2".into()),
            ..old.clone()
        };
        let made = spec_hash(&old);
        assert!(!changed(Some(made), &edited));
        assert!(changed(Some(made), &newer));
        assert!(!changed(None, &newer));
        assert!(!changed(Some((2 << VERSION_SHIFT) | 7), &newer));
    }
}
