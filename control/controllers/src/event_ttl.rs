//! Events are kept for an hour, as kube-apiserver's `--event-ttl` has it: without an end the store
//! would grow for ever.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use swiftlet_client::api::{Api, DeleteParameters};
use swiftlet_client::{Client, Object};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// How long an Event is kept after it was seen for the last time.
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);

/// How often old Events are looked for. Not urgent, and one list for all.
const SWEEP_PERIOD: Duration = Duration::from_mins(5);

/// Removes old Events until `shutdown`.
pub(crate) async fn run(api: Arc<dyn Api>, clock: Clock, shutdown: CancellationToken) {
    let client = Client::new(api);
    while shutdown
        .run_until_cancelled(tokio::time::sleep(SWEEP_PERIOD))
        .await
        .is_some()
    {
        sweep(&client, clock.now()).await;
    }
}

async fn sweep(client: &Client, now: Timestamp) {
    let events = match client.list::<Event>(None).await {
        Ok((events, _)) => events,
        Err(error) => return tracing::warn!(%error, "events not listed, tried again later"),
    };
    for event in events.iter().filter(|event| is_old(event, now)) {
        let deleted = client
            .delete::<Event>(&event.key(), DeleteParameters::default())
            .await;
        if let Err(error) = deleted {
            tracing::debug!(%error, "old event not deleted, tried again later");
        }
    }
}

/// The newest of its times decides; an Event without any is as old as its object.
fn is_old(event: &Event, now: Timestamp) -> bool {
    let times = [
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0),
    ];
    let seen = times.into_iter().flatten().max();
    seen.is_some_and(|seen| now.duration_since(seen) > EVENT_TTL)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn an_event_that_still_happens_is_kept() {
        let now = Timestamp::from_second(1_000_000).expect("in range");
        let at = |hours: i64| Some(Time(now - SignedDuration::from_hours(hours)));
        let mut event = Event {
            last_timestamp: at(0),
            ..Event::default()
        };
        event.metadata.creation_timestamp = at(9);
        assert!(!is_old(&event, now));
        event.last_timestamp = at(2);
        assert!(is_old(&event, now));
        assert!(!is_old(&Event::default(), now), "no time, no age");
    }
}
