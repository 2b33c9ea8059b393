use serde_json::{Value, json};
use swiftlet_client::api::{Api, DeleteParameters};
use swiftlet_client::fake::FakeApi;

use super::*;

async fn create<T: Object>(client: &Client, mut value: Value) -> Arc<T> {
    value["apiVersion"] = json!(T::API_VERSION);
    value["kind"] = json!(T::KIND);
    let object: T = serde_json::from_value(value).unwrap();
    Arc::new(client.create(&object).await.unwrap())
}

async fn volume(client: &Client) -> Arc<PersistentVolume> {
    let volume = json!({ "metadata": { "name": "v" }, "spec": {} });
    create(client, volume).await
}

async fn choice() -> (Client, Choice) {
    let api: Arc<dyn Api> = FakeApi::new();
    let client = Client::new(api);
    let metadata = json!({ "name": "data", "namespace": "default" });
    let claim = create(&client, json!({ "metadata": metadata, "spec": {} })).await;
    let volume = volume(&client).await;
    (client, Choice { claim, volume })
}

async fn holder(client: &Client) -> Option<String> {
    let volume: PersistentVolume = client.get("", "v").await.unwrap();
    volume.spec?.claim_ref?.name
}

#[tokio::test]
async fn a_volume_whose_state_was_written_since_is_still_free() {
    let (client, choice) = choice().await;
    let mut known = PersistentVolume::clone(&choice.volume);
    let labels = known.metadata.labels.get_or_insert_default();
    labels.insert("seen".into(), "yes".into());
    client.update(&known).await.unwrap();
    reserve(&client, &choice).await.unwrap();
    assert_eq!(holder(&client).await.as_deref(), Some("data"));
    // Once more is no harm.
    reserve(&client, &choice).await.unwrap();
}

#[tokio::test]
async fn what_an_administrator_reserved_by_name_is_left_to_whom_it_is_for() {
    let (client, choice) = choice().await;
    let mut known = PersistentVolume::clone(&choice.volume);
    let reference = json!({ "namespace": "default", "name": "other" });
    known.spec.get_or_insert_default().claim_ref = serde_json::from_value(reference).unwrap();
    client.update(&known).await.unwrap();
    let refused = reserve(&client, &choice).await;
    assert!(matches!(refused, Err(ReserveError::Taken(_))));
    assert_eq!(holder(&client).await.as_deref(), Some("other"));
}

#[tokio::test]
async fn another_volume_of_the_same_name_is_not_taken() {
    let (client, choice) = choice().await;
    let now = DeleteParameters {
        grace_period_seconds: Some(0),
        ..DeleteParameters::default()
    };
    let key = choice.volume.key();
    let deleted = client.delete::<PersistentVolume>(&key, now).await;
    deleted.unwrap();
    let again = volume(&client).await;
    assert_ne!(again.uid(), choice.volume.uid());
    let refused = reserve(&client, &choice).await;
    assert!(matches!(refused, Err(ReserveError::Taken(_))));
    assert_eq!(holder(&client).await, None);
}
