//! The set of the present template, and the revisions of all.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_client::Object;
use tracing::debug;

use super::conditions::{self, PROGRESSING, Verdict};
use super::hash::{POD_TEMPLATE_HASH, same_template, template_hash};
use super::sets::Sets;
use super::strategy::is_recreate;
use super::{Controller, annotations, rolling, status, wanted_replicas};
use crate::error::ControllerError;
use crate::owner::{controller_of, controller_reference};

impl Controller {
    /// Brings the new set's annotations up to date, or (if `create`) makes the set. Returns the
    /// deployment as it is stored then.
    pub(super) async fn sync_new_set(
        &self,
        deployment: Arc<Deployment>,
        sets: &mut Sets,
        create: bool,
    ) -> Result<Arc<Deployment>, ControllerError> {
        let oldest = sets
            .old
            .iter()
            .map(|set| annotations::revision(&set.metadata))
            .max();
        let next = oldest.unwrap_or(0).saturating_add(1);
        if let Some(known) = sets.new.clone() {
            let updated = annotated(&deployment, &known, next);
            let revision = annotations::revision(&updated.metadata);
            if updated != *known {
                sets.new = Some(Arc::new(self.client.update(&updated).await?));
            }
            let message = format!("Found new replica set \"{}\"", known.name());
            let verdict = Verdict::new("True", "FoundNewReplicaSet", message);
            return self.note_revision(deployment, revision, verdict).await;
        }
        if !create {
            return Ok(deployment);
        }
        let created = self.create_new_set(&deployment, sets, next).await?;
        let replicas = crate::replica_set::wanted_replicas(&created);
        if replicas > 0 {
            self.report(&deployment, &created, 0, replicas);
        }
        let message = format!("Created new replica set \"{}\"", created.name());
        sets.new = Some(Arc::new(created));
        let verdict = Verdict::new("True", "NewReplicaSetCreated", message);
        self.note_revision(deployment, next, verdict).await
    }

    async fn create_new_set(
        &self,
        deployment: &Deployment,
        sets: &Sets,
        revision: i64,
    ) -> Result<ReplicaSet, ControllerError> {
        let collisions = deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count);
        let spec = deployment.spec.clone().unwrap_or_default();
        let hash = template_hash(&spec.template, collisions)?;
        let set = new_set(deployment, sets, &hash, revision);
        let error = match self.client.create(&set).await {
            Ok(created) => return Ok(created),
            Err(error) if error.is_already_exists() => error,
            Err(error) => return Err(error.into()),
        };
        let existing: ReplicaSet = self.client.get(set.namespace(), set.name()).await?;
        let ours = controller_of(&existing.metadata).is_some_and(|it| it.uid == deployment.uid());
        let template = existing
            .spec
            .as_ref()
            .and_then(|spec| spec.template.as_ref());
        if ours && template.is_some_and(|own| same_template(own, &spec.template)) {
            debug!(set = %existing.key(), %error, "the informer is behind");
            return Ok(existing);
        }
        let mut counted = deployment.clone();
        counted.status.get_or_insert_default().collision_count = Some(collisions.unwrap_or(0) + 1);
        self.client.update_status(&counted).await?;
        Err(ControllerError::HashCollision(set.name().to_owned()))
    }

    /// Writes the deployment's revision, and the condition that its roll-out has begun.
    async fn note_revision(
        &self,
        deployment: Arc<Deployment>,
        revision: i64,
        verdict: Verdict,
    ) -> Result<Arc<Deployment>, ControllerError> {
        let mut updated = (*deployment).clone();
        let notes = updated.metadata.annotations.get_or_insert_default();
        let text = revision.to_string();
        if notes.get(annotations::REVISION) != Some(&text) {
            notes.insert(annotations::REVISION.to_owned(), text);
            updated = self.client.update(&updated).await?;
        }
        let mut conditions = conditions::of(&updated);
        let known = conditions::find(&conditions, PROGRESSING);
        let begun = verdict.reason == "NewReplicaSetCreated" || known.is_none();
        if begun && status::deadline(&updated).is_some() {
            conditions::set(
                &mut conditions,
                PROGRESSING,
                verdict,
                self.clock.now(),
                false,
            );
            updated.status.get_or_insert_default().conditions = Some(conditions);
            updated = self.client.update_status(&updated).await?;
        }
        Ok(Arc::new(updated))
    }
}

fn new_set(deployment: &Deployment, sets: &Sets, hash: &str, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let mut template = spec.template;
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
    let labels = labels.clone();
    let mut selector = spec.selector;
    let matched = selector.match_labels.get_or_insert_default();
    matched.insert(POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
    let replicas = if is_recreate(deployment) {
        wanted_replicas(deployment)
    } else {
        rolling::new_set_replicas(deployment, sets, 0)
    };
    let mut metadata = ObjectMeta {
        name: Some(format!("{}-{hash}", deployment.name())),
        namespace: deployment.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations::copied(deployment)),
        owner_references: Some(vec![controller_reference(deployment)]),
        ..ObjectMeta::default()
    };
    annotations::set_replicas(&mut metadata, deployment);
    annotations::set_revision(&mut metadata, revision);
    ReplicaSet {
        metadata,
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// The known new set with what the deployment says today.
fn annotated(deployment: &Deployment, known: &ReplicaSet, next: i64) -> ReplicaSet {
    let mut set = known.clone();
    let own = set.metadata.annotations.get_or_insert_default();
    own.extend(annotations::copied(deployment));
    if annotations::revision(&set.metadata) < next {
        annotations::set_revision(&mut set.metadata, next);
    }
    if let (Some(spec), Some(wanted)) = (&mut set.spec, &deployment.spec) {
        spec.min_ready_seconds = wanted.min_ready_seconds.or(spec.min_ready_seconds);
    }
    set
}
