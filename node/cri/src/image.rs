//! Images: is it there, and get it.

use k8s_cri::v1::{ImageSpec, ImageStatusRequest, PullImageRequest};
use swiftlet_model::runtime::{RuntimeError, SandboxConfig};

use crate::client::{Call, Client, PULL_LIMIT};
use crate::convert;

pub(crate) async fn present(client: &Client, image: &str) -> Result<Option<String>, RuntimeError> {
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
        Ok(answer) => Ok(answer.image.map(|image| image.id)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) async fn pull(
    client: &Client,
    image: &str,
    pod: &SandboxConfig,
) -> Result<String, RuntimeError> {
    let request = PullImageRequest {
        image: Some(spec(image)),
        auth: None,
        sandbox_config: Some(convert::sandbox::config(pod)),
    };
    let call = Call::within("PullImage", PULL_LIMIT);
    let mut service = client.images();
    let answer = client
        .send(call, request, |request| service.pull_image(request))
        .await?;
    Ok(answer.image_ref)
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..ImageSpec::default()
    }
}
