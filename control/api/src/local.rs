//! The API for clients in the same process: authorization and verbs without HTTP.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use swiftlet_client::api::{
    Api, ApiError, DeleteParameters, ObjectName, PatchKind, RawEvent, RawList, RawWatch,
    ResourceName, Selection, UserInfo, WatchKind,
};
use swiftlet_proto::selector::{LabelSelector, parse_field_selector};

use crate::api::ApiServer;
use crate::authz;
use crate::decode;
use crate::error;
use crate::negotiate::Encoding;
use crate::node_proxy;
use crate::options::{FieldValidation, Options, WriteOptions};
use crate::route::{self, Target, Verb};
use crate::verb::watch::{Step, Watcher};
use crate::verb::{binding, create, delete, eviction, get, list, patch, review, token, update};

/// A door under one identity.
pub(crate) struct Local {
    api: ApiServer,
    user: UserInfo,
}

/// Parts of this program know their types; unknown fields are dropped without a word.
const WRITE: WriteOptions = WriteOptions {
    dry_run: false,
    field_validation: FieldValidation::Ignore,
};

impl Local {
    pub(crate) fn new(api: ApiServer, user: UserInfo) -> Self {
        Self { api, user }
    }

    /// The target of a name, if this user may use the verb on it.
    fn target(&self, name: &ObjectName, verb: Verb) -> Result<Target, ApiError> {
        let resource = found(&name.resource)?;
        let subresource = name.subresource;
        if !subresource.is_empty() && !resource.has_subresource(subresource) {
            return Err(error::unknown_path());
        }
        // What nodes serve are streams, and there is no connection here.
        if node_proxy::is_connected(subresource) {
            return Err(error::method_not_allowed());
        }
        let target = Target {
            resource,
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            subresource,
        };
        authz::authorize(&self.user, verb, &target)?;
        Ok(target)
    }

    fn selected(&self, selection: &Selection, verb: Verb) -> Result<(Target, Options), ApiError> {
        let target = Target {
            resource: found(&selection.resource)?,
            namespace: selection.namespace.clone().unwrap_or_default(),
            name: String::new(),
            subresource: "",
        };
        authz::authorize(&self.user, verb, &target)?;
        let bad =
            |why: swiftlet_proto::selector::SelectorError| error::bad_request(why.to_string());
        let options = Options {
            labels: LabelSelector::parse(&selection.label_selector).map_err(bad)?,
            fields: parse_field_selector(&selection.field_selector).map_err(bad)?,
            ..Options::default()
        };
        Ok((target, options))
    }
}

fn found(name: &ResourceName) -> Result<&'static crate::registry::Resource, ApiError> {
    route::resource(name).ok_or_else(error::unknown_path)
}

impl Api for Local {
    fn get<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move { get::get(&self.api, &self.target(name, Verb::Get)?, None) })
    }

    fn list<'a>(&'a self, selection: &'a Selection) -> BoxFuture<'a, Result<RawList, ApiError>> {
        Box::pin(async move {
            let (target, options) = self.selected(selection, Verb::List)?;
            let list = list::list(&self.api, &target, &options)?;
            Ok(RawList {
                items: list.items,
                resource_version: list.revision,
            })
        })
    }

    fn watch(&self, selection: &Selection, resource_version: u64) -> Result<RawWatch, ApiError> {
        let (target, mut options) = self.selected(selection, Verb::Watch)?;
        options.resource_version = Some(resource_version);
        options.bookmarks = true;
        // Here 0 means "after revision 0", as the door says, not "any state".
        options.initial_events = Some(false);
        if resource_version == 0 {
            options.initial_events = Some(true);
        }
        let watcher = Watcher::start(&self.api, &target, &options)?.without_deadline();
        let batches = stream::unfold(watcher, |mut watcher| async {
            watcher.next().await.map(|step| (step, watcher))
        });
        Ok(batches.flat_map(|step| stream::iter(events(step))).boxed())
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move {
            let target = self.target(name, Verb::Create)?;
            let body = decode::body(&body, Encoding::Json, "")?;
            let written = match target.subresource {
                "" if review::is_review(&target.resource.name) => {
                    review::create(&self.api, &self.user, &target, body, WRITE)?
                }
                "" => create::create(&self.api, &target, body, WRITE).await?,
                "eviction" => eviction::evict(&self.api, &target, body, WRITE).await?,
                "token" => token::create(&self.api, &target, body)?,
                "binding" => binding::bind(&self.api, &target, body, WRITE).await?,
                _ => return Err(error::method_not_allowed()),
            };
            Ok(written.object)
        })
    }

    fn update<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move {
            let target = self.target(name, Verb::Update)?;
            let body = decode::body(&body, Encoding::Json, "")?;
            Ok(update::update(&self.api, &target, body, WRITE)
                .await?
                .object)
        })
    }

    fn patch<'a>(
        &'a self,
        name: &'a ObjectName,
        kind: PatchKind,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move {
            let target = self.target(name, Verb::Patch)?;
            Ok(patch::patch(&self.api, &target, kind, &body, WRITE)
                .await?
                .object)
        })
    }

    fn delete<'a>(
        &'a self,
        name: &'a ObjectName,
        parameters: DeleteParameters,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move {
            let target = self.target(name, Verb::Delete)?;
            Ok(delete::delete(&self.api, &target, &parameters, false)
                .await?
                .object)
        })
    }
}

fn events(step: Step) -> Vec<Result<RawEvent, ApiError>> {
    match step {
        Step::Events(events) => events.into_iter().map(Ok).collect(),
        Step::InitialEnd(revision) => vec![Ok(RawEvent {
            kind: WatchKind::Bookmark,
            object: Bytes::new(),
            resource_version: revision,
        })],
        Step::Failed(error) => vec![Err(error)],
    }
}
