use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::work_queue::{RETRY_MOST, WorkQueue};

const MOMENT: Duration = Duration::from_millis(1);

async fn is_empty(queue: &WorkQueue<&'static str>) -> bool {
    timeout(MOMENT, queue.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_twice_is_worked_on_once() {
    let queue = WorkQueue::new();
    for key in ["a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!(
        (queue.next().await, queue.next().await),
        (Some("a"), Some("b"))
    );
    queue.done(&"a");
    queue.done(&"b");
    assert!(is_empty(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_work_is_given_to_nobody_else_and_comes_again_afterwards() {
    let queue = WorkQueue::new();
    queue.add("a");
    assert_eq!(queue.next().await, Some("a"));
    queue.add("a");
    queue.add("a");
    assert!(is_empty(&queue).await);
    queue.done(&"a");
    assert_eq!(queue.next().await, Some("a"));
    queue.done(&"a");
    assert!(is_empty(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_at_its_time_and_the_shortest_delay_counts() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("a", Duration::from_secs(3));
    queue.add_after("a", Duration::from_secs(20));
    assert_eq!(queue.next().await, Some("a"));
    assert_eq!(start.elapsed().as_secs(), 3);
    queue.done(&"a");
    assert!(timeout(Duration::from_mins(1), queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_does_not_delay_what_others_wait_for() {
    let queue = WorkQueue::new();
    let waiting = queue.clone();
    let other = tokio::spawn(async move { (waiting.next().await, Instant::now()) });
    let start = Instant::now();
    queue.add_after("later", Duration::from_secs(5));
    tokio::time::sleep(MOMENT).await;
    queue.add("now");
    // Whoever gets "now" keeps it; the other one must get "later" in time.
    let second = queue.next().await;
    let (first, at) = other.await.unwrap();
    let mut keys = [first.unwrap(), second.unwrap()];
    keys.sort_unstable();
    assert_eq!(keys, ["later", "now"]);
    assert!(at.max(Instant::now()).duration_since(start).as_secs() == 5);
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_delay_until_they_are_forgotten() {
    let queue = WorkQueue::new();
    let delays: Vec<_> = (0..4)
        .map(|_| queue.add_rate_limited("a").as_millis())
        .collect();
    assert_eq!(delays, [5, 10, 20, 40]);
    assert_eq!(queue.failures(&"a"), 4);
    for _ in 0..100 {
        assert!(queue.add_rate_limited("a") <= RETRY_MOST);
    }
    assert_eq!(queue.add_rate_limited("a"), RETRY_MOST);
    assert_eq!(
        queue.add_rate_limited("b").as_millis(),
        5,
        "each key has its own"
    );
    queue.forget(&"a");
    assert_eq!(queue.add_rate_limited("a").as_millis(), 5);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_worker() {
    let queue = WorkQueue::<&str>::new();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await })
        })
        .collect();
    tokio::time::sleep(MOMENT).await;
    queue.close();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_time_is_a_day() {
    let queue = WorkQueue::new();
    queue.add_after("far", Duration::MAX);
    let start = tokio::time::Instant::now();
    assert_eq!(queue.next().await, Some("far"));
    let waited = start.elapsed();
    assert!(waited <= Duration::from_hours(25), "{waited:?}");
}
