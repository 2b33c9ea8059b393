//! Images: which are there, get one, remove one.

use k8s_cri::v1::{
    self as cri, AuthConfig, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ListImagesRequest,
    PullImageRequest, RemoveImageRequest,
};
use swiftlet_model::runtime::{
    Image, ImageAuth, ImageFilesystem, ImageUser, RuntimeError, SandboxConfig,
};

use crate::client::{Call, Client, PULL_LIMIT, missing_is_done};
use crate::{convert, status};

pub(crate) async fn one(client: &Client, image: &str) -> Result<Option<Image>, RuntimeError> {
    let request = ImageStatusRequest {
        image: Some(spec(image)),
        verbose: false,
    };
    let mut service = client.images();
    let answer = client
        .send(Call::read("ImageStatus"), request, |request| {
            service.image_status(request)
        })
        .await;
    match answer {
        Ok(answer) => Ok(answer.image.map(of_cri)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) async fn all(client: &Client) -> Result<Vec<Image>, RuntimeError> {
    let request = ListImagesRequest { filter: None };
    let mut service = client.images();
    let answer = client
        .send(Call::read("ListImages"), request, |request| {
            service.list_images(request)
        })
        .await?;
    let mut images: Vec<Image> = answer.images.into_iter().map(of_cri).collect();
    // containerd pins the sandbox image itself from 1.7.3 on; before, only its configuration says
    // which one that is.
    if !images.iter().any(|image| image.pinned)
        && let Some(configuration) = status::configuration(client).await?
    {
        pin_sandbox_image(&mut images, &configuration);
    }
    Ok(images)
}

/// Pins the image that containerd's configuration names as that of sandboxes.
fn pin_sandbox_image(images: &mut [Image], configuration: &str) {
    let after = configuration.split_once("\"sandboxImage\":\"");
    let Some((name, _)) = after.and_then(|(_, rest)| rest.split_once('"')) else {
        return;
    };
    // A short name is listed with its registry, and one without a tag with `latest`.
    let names = [name.to_owned(), format!("{name}:latest")];
    let is_it = |listed: &String| {
        let is = |name: &String| listed == name || listed.ends_with(&format!("/{name}"));
        names.iter().any(is)
    };
    for image in images {
        image.pinned |= image.tags.iter().chain(&image.digests).any(is_it);
    }
}

pub(crate) async fn pull(
    client: &Client,
    image: &str,
    auth: Option<&ImageAuth>,
    pod: &SandboxConfig,
) -> Result<String, RuntimeError> {
    let request = PullImageRequest {
        image: Some(spec(image)),
        auth: auth.map(|auth| AuthConfig {
            username: auth.username.clone(),
            password: auth.password.clone(),
            auth: auth.auth.clone(),
            server_address: auth.server.clone(),
            identity_token: auth.identity_token.clone(),
            registry_token: auth.registry_token.clone(),
        }),
        sandbox_config: Some(convert::sandbox::config(pod)),
    };
    let call = Call::within("PullImage", PULL_LIMIT);
    let mut service = client.images();
    let answer = client
        .send(call, request, |request| service.pull_image(request))
        .await?;
    Ok(answer.image_ref)
}

pub(crate) async fn remove(client: &Client, id: &str) -> Result<(), RuntimeError> {
    let request = RemoveImageRequest {
        image: Some(spec(id)),
    };
    let mut service = client.images();
    let answer = client
        .send(Call::change("RemoveImage"), request, |request| {
            service.remove_image(request)
        })
        .await;
    missing_is_done(answer.map(drop))
}

pub(crate) async fn filesystem(client: &Client) -> Result<Option<ImageFilesystem>, RuntimeError> {
    let mut service = client.images();
    let answer = client
        .send(
            Call::read("ImageFsInfo"),
            ImageFsInfoRequest {},
            |request| service.image_fs_info(request),
        )
        .await?;
    let used = |value: Option<cri::UInt64Value>| value.map_or(0, |it| it.value);
    Ok(answer.image_filesystems.into_iter().next().map(|usage| {
        let mount_point = usage.fs_id.map(|id| id.mountpoint).unwrap_or_default();
        ImageFilesystem {
            mount_point: mount_point.into(),
            used_bytes: used(usage.used_bytes),
            used_inodes: used(usage.inodes_used),
        }
    }))
}

fn of_cri(image: cri::Image) -> Image {
    let user = match (image.uid, image.username) {
        (Some(uid), _) => ImageUser::Uid(uid.value),
        (None, name) if name.is_empty() => ImageUser::Unset,
        (None, name) => ImageUser::Name(name),
    };
    Image {
        id: image.id,
        tags: image.repo_tags,
        digests: image.repo_digests,
        size_bytes: image.size,
        user,
        pinned: image.pinned,
    }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..ImageSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_image_of_the_configuration_is_kept() {
        let image = |tag: &str| Image {
            tags: vec![tag.to_owned()],
            ..Image::default()
        };
        let all = [
            "docker.io/team/pause:3.9",
            "docker.io/team/pause:3.8",
            "r.io/app:1",
        ];
        for name in ["docker.io/team/pause:3.9", "team/pause:3.9"] {
            let mut images = all.map(image);
            let configuration = format!(r#"{{"a":1,"sandboxImage":"{name}","b":2}}"#);
            pin_sandbox_image(&mut images, &configuration);
            assert_eq!(images.map(|image| image.pinned), [true, false, false]);
        }
        let mut images = all.map(image);
        pin_sandbox_image(&mut images, "{}");
        assert!(images.iter().all(|image| !image.pinned));
    }
}
