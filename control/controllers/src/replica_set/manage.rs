//! Carries a plan out.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_client::client::delete_exactly;
use swiftlet_client::recorder::EventType;
use swiftlet_client::{ClientError, Object};

use super::Controller;
use super::plan::{Plan, plan};
use crate::error::ControllerError;
use crate::owner::controller_reference;

/// First batch of creations; each one that succeeds doubles the next (Kubernetes'
/// `SlowStartInitialBatchSize`).
const FIRST_BATCH: usize = 1;

/// What failed, as the set's condition names it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    error: ClientError,
}

impl Failure {
    pub(super) fn message(&self) -> String {
        self.error.to_string()
    }

    pub(super) fn into_error(self) -> ControllerError {
        ControllerError::Client(self.error)
    }
}

/// Creates or deletes what is missing or too much.
pub(super) async fn manage(
    controller: &Controller,
    set: &ReplicaSet,
    active: &[Arc<Pod>],
) -> Result<(), Failure> {
    match plan(set, active) {
        Plan::Nothing => Ok(()),
        Plan::Create(count) => create(controller, set, count).await,
        Plan::Delete(pods) => delete(controller, set, pods).await,
    }
}

/// Slow start: a set whose pods are refused (quota, admission) finds out with one request, not with
/// 500.
async fn create(controller: &Controller, set: &ReplicaSet, count: usize) -> Result<(), Failure> {
    let key = set.key();
    controller.expectations.expect_creations(&key, count);
    let pod = pod_of(set);
    let mut left = count;
    let mut batch = FIRST_BATCH;
    while left > 0 {
        let size = batch.min(left);
        let results = join_all((0..size).map(|_| controller.client.create(&pod))).await;
        left -= size;
        let mut failed = None;
        for result in results {
            match result {
                Ok(created) => {
                    let message = format!("Created pod: {}", created.name());
                    let kind = EventType::Normal;
                    controller
                        .recorder
                        .record(set, kind, "SuccessfulCreate", &message);
                }
                Err(error) => {
                    controller.expectations.created(&key);
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            // What was not tried will not be shown either.
            (0..left).for_each(|_| controller.expectations.created(&key));
            return creation_failed(controller, set, error);
        }
        batch *= 2;
    }
    Ok(())
}

fn creation_failed(
    controller: &Controller,
    set: &ReplicaSet,
    error: ClientError,
) -> Result<(), Failure> {
    if is_namespace_terminating(&error) {
        // The set itself is about to go.
        return Ok(());
    }
    let message = format!("Error creating: {error}");
    controller
        .recorder
        .record(set, EventType::Warning, "FailedCreate", &message);
    Err(Failure {
        reason: "FailedCreate",
        error,
    })
}

async fn delete(
    controller: &Controller,
    set: &ReplicaSet,
    pods: Vec<Arc<Pod>>,
) -> Result<(), Failure> {
    let key = set.key();
    let uids = pods.iter().map(|pod| pod.uid().to_owned()).collect();
    controller.expectations.expect_deletions(&key, uids);
    let client = &controller.client;
    let delete = |pod: &Arc<Pod>| {
        let (key, parameters) = (pod.key(), delete_exactly(&**pod));
        async move { client.delete::<Pod>(&key, parameters).await }
    };
    let results = join_all(pods.iter().map(delete)).await;
    let mut failure = None;
    for (pod, result) in pods.iter().zip(results) {
        match result {
            Ok(()) => {
                let message = format!("Deleted pod: {}", pod.name());
                let kind = EventType::Normal;
                controller
                    .recorder
                    .record(set, kind, "SuccessfulDelete", &message);
            }
            Err(error) => {
                controller.expectations.deleted(&key, pod.uid());
                if !error.is_not_found() && !error.is_conflict() {
                    let message = format!("Error deleting: {error}");
                    controller
                        .recorder
                        .record(set, EventType::Warning, "FailedDelete", &message);
                    failure = Some(Failure {
                        reason: "FailedDelete",
                        error,
                    });
                }
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// A pod of the set's template.
fn pod_of(set: &ReplicaSet) -> Pod {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    let given = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", set.name())),
            namespace: set.metadata.namespace.clone(),
            labels: given.labels,
            annotations: given.annotations,
            finalizers: given.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn is_namespace_terminating(error: &ClientError) -> bool {
    let details = error.api().and_then(|error| error.0.details.as_ref());
    let causes = details.and_then(|details| details.causes.as_ref());
    causes
        .into_iter()
        .flatten()
        .any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating"))
}
