//! Requests for resources: reads the options, asks for permission, calls the verb, shows the
//! outcome.

use bytes::Bytes;
use futures::stream;
use http::header::{HeaderName, HeaderValue, WARNING};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde_json::Value;
use swiftlet_client::api::{ApiError, DeleteParameters, UserInfo, resources};

use super::{BoxError, ResponseBody};
use super::{body, media_type, with_type};
use crate::api::ApiServer;
use crate::authz;
use crate::decode;
use crate::error;
use crate::negotiate::{self, Form};
use crate::options::{self, Options};
use crate::present::{self, View};
use crate::route::{self, Target, Verb};
use crate::verb::watch::{Step, Watcher};
use crate::verb::{
    Written, binding, create, delete, delete_collection, eviction, get, list, patch, review, token,
    update,
};

/// One request for a resource, ready for its verb.
struct Call {
    target: Target,
    options: Options,
    headers: HeaderMap,
    body: Bytes,
}

/// Answers a request for a resource.
pub(super) async fn answer(
    api: &ApiServer,
    user: &UserInfo,
    target: Target,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    let options = options::parse(request.uri().query().unwrap_or_default())?;
    let verb = route::verb(request.method(), &target, options.watch)?;
    authz::authorize(user, verb, &target)?;
    let view = View::new(
        target.resource,
        negotiate::accept(request.headers())?,
        &options,
    )?;
    let (parts, incoming) = request.into_parts();
    let body = match verb {
        Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
        _ => body::read(incoming).await?,
    };
    let call = Call {
        target,
        options,
        headers: parts.headers,
        body,
    };
    match verb {
        Verb::Get => {
            let object = get::get(api, &call.target, call.options.resource_version)?;
            Ok(shown(&view, StatusCode::OK, view.object(&object)))
        }
        Verb::List => {
            let list = list::list(api, &call.target, &call.options)?;
            Ok(shown(&view, StatusCode::OK, view.list(&list)))
        }
        Verb::Watch => watch(api, &call, view),
        Verb::Create | Verb::Update | Verb::Patch => write(api, user, verb, &call, &view).await,
        Verb::Delete => remove(api, call, &view).await,
        Verb::DeleteCollection => {
            let mut call = call;
            read_delete_options(&mut call)?;
            let list =
                delete_collection::delete_collection(api, &call.target, &call.options).await?;
            Ok(shown(&view, StatusCode::OK, view.list(&list)))
        }
    }
}

fn shown(view: &View, code: StatusCode, body: Bytes) -> Response<ResponseBody> {
    with_type(code, media_type(view.accepted.encoding), body)
}

async fn write(
    api: &ApiServer,
    user: &UserInfo,
    verb: Verb,
    call: &Call,
    view: &View,
) -> Result<Response<ResponseBody>, ApiError> {
    let (target, write) = (&call.target, call.options.write);
    let object = || {
        let encoding = negotiate::body_encoding(&call.headers)?;
        let kind = match target.subresource {
            "binding" => "Binding",
            "scale" => "Scale",
            "token" => "TokenRequest",
            "eviction" => "Eviction",
            _ => target.resource.kind,
        };
        decode::body(&call.body, encoding, kind)
    };
    let (written, code) = match (verb, target.subresource) {
        (Verb::Create, "binding") => {
            binding::bind(api, target, object()?, write).await?;
            let body = Bytes::from_static(BOUND);
            return Ok(shown(view, StatusCode::CREATED, view.object(&body)));
        }
        (Verb::Create, "eviction") => (
            eviction::evict(api, target, object()?, write).await?,
            StatusCode::CREATED,
        ),
        (Verb::Create, "token") => (token::create(api, target, object()?)?, StatusCode::CREATED),
        (Verb::Create, _) if review::is_review(&target.resource.name) => (
            review::create(api, user, target, object()?, write)?,
            StatusCode::CREATED,
        ),
        (Verb::Create, _) => (
            create::create(api, target, object()?, write).await?,
            StatusCode::CREATED,
        ),
        (Verb::Update, _) => (
            update::update(api, target, object()?, write).await?,
            StatusCode::OK,
        ),
        _ => {
            let kind = negotiate::patch_kind(&call.headers)?;
            (
                patch::patch(api, target, kind, &call.body, write).await?,
                StatusCode::OK,
            )
        }
    };
    let mut response = shown(view, code, view.object(&written.object));
    add_warnings(&written, response.headers_mut());
    Ok(response)
}

/// The answer to a binding.
const BOUND: &[u8] =
    br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;

/// Tells about what was dropped, in the header that kubectl prints.
fn add_warnings(written: &Written, headers: &mut HeaderMap) {
    for warning in &written.warnings {
        let text: String = warning
            .chars()
            .filter(|character| !character.is_control())
            .collect::<String>()
            .replace('\\', "\\\\")
            .replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            headers.append(WARNING, value);
        }
    }
}

async fn remove(
    api: &ApiServer,
    mut call: Call,
    view: &View,
) -> Result<Response<ResponseBody>, ApiError> {
    read_delete_options(&mut call)?;
    let (target, options) = (&call.target, &call.options);
    let outcome = delete::delete(api, target, &options.delete, options.write.dry_run).await?;
    // These two answer with the object even when it is gone.
    let shows_object =
        [resources::PODS, resources::SERVICE_ACCOUNTS].contains(&target.resource.name);
    if outcome.gone && !shows_object {
        let status = error::deleted(target.resource, &target.name, &outcome.uid);
        let body = serde_json::to_vec(&status).unwrap_or_default();
        return Ok(shown(view, StatusCode::OK, view.object(&body.into())));
    }
    Ok(shown(view, StatusCode::OK, view.object(&outcome.object)))
}

/// Options of a deletion come in the body; those of the query string count where it says nothing.
fn read_delete_options(call: &mut Call) -> Result<(), ApiError> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let encoding = negotiate::body_encoding(&call.headers)?;
    let body = decode::body(&call.body, encoding, "DeleteOptions")?;
    let kind = body["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(error::bad_request(format!(
            "{kind} cannot be handled as a DeleteOptions"
        )));
    }
    let text = |value: &Value| value.as_str().map(Into::into);
    let query = std::mem::take(&mut call.options.delete);
    let mut policy = text(&body["propagationPolicy"]);
    if body["orphanDependents"].as_bool() == Some(true) {
        policy = Some("Orphan".to_string());
    }
    let policy = policy.map(options::policy).transpose()?;
    call.options.delete = DeleteParameters {
        grace_period_seconds: body["gracePeriodSeconds"]
            .as_i64()
            .or(query.grace_period_seconds),
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation_policy: policy.or(query.propagation_policy),
    };
    if body["dryRun"]
        .as_array()
        .is_some_and(|list| list.iter().any(|one| one == "All"))
    {
        call.options.write.dry_run = true;
    }
    Ok(())
}

fn watch(api: &ApiServer, call: &Call, view: View) -> Result<Response<ResponseBody>, ApiError> {
    let watcher = match Watcher::start(api, &call.target, &call.options) {
        Ok(watcher) => watcher,
        // Too old is told inside of the watch, as clients expect it.
        Err(old) if old.is_expired() => {
            let body = present::error_event(&old);
            return Ok(with_type(StatusCode::OK, stream_type(&view), body));
        }
        Err(error) => return Err(error),
    };
    let content_type = stream_type(&view);
    let frames = stream::unfold(
        (watcher, view, true),
        |(mut watcher, view, mut first)| async move {
            let body = match watcher.next().await? {
                Step::Events(events) => view.events(&events, &mut first),
                Step::InitialEnd(revision) => view.initial_end(revision),
                Step::Failed(error) => present::error_event(&error),
            };
            Some((Ok::<_, BoxError>(Frame::data(body)), (watcher, view, first)))
        },
    );
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(content_type),
    );
    headers.insert(
        HeaderName::from_static("cache-control"),
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

fn stream_type(view: &View) -> &'static str {
    match view.accepted.form {
        Form::Table("v1beta1") => "application/json;as=Table;v=v1beta1;g=meta.k8s.io;stream=watch",
        Form::Table(_) => "application/json;as=Table;v=v1;g=meta.k8s.io;stream=watch",
        _ => "application/json;stream=watch",
    }
}
