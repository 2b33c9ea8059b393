use futures::FutureExt as _;
use tokio::sync::oneshot;

use super::*;

fn settings() -> ObjectRef {
    ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "default".into(),
        name: "settings".into(),
    }
}

fn say(json: Option<&str>) -> ReferencedObject {
    ReferencedObject {
        kind: "ConfigMap".into(),
        namespace: "default".into(),
        name: "settings".into(),
        object_json: json.map(|json| json.as_bytes().to_vec().into()),
        refused_because: String::new(),
    }
}

#[test]
fn a_change_of_the_data_is_told_only_after_the_first_answer() {
    let mut interests = Interests::default();
    let (done, answer) = oneshot::channel();
    let asked = interests.ask(Ask::Object(settings(), done));
    assert_eq!(asked, Some(Subject::Object(settings())));
    assert_eq!(interests.object(say(Some(r#"{"data":{"a":"1"}}"#))), None);
    let first = answer.now_or_never().expect("answered").expect("sent");
    assert!(first.expect("no error").is_some());
    let with_version = r#"{"metadata":{"resourceVersion":"7"},"data":{"a":"1"}}"#;
    assert_eq!(interests.object(say(Some(with_version))), None);
    let changed = interests.object(say(Some(r#"{"data":{"a":"2"}}"#)));
    assert_eq!(changed, Some(settings()));
    assert_eq!(interests.object(say(None)), Some(settings()));
}

#[test]
fn the_interest_in_a_subject_is_said_once() {
    let mut interests = Interests::default();
    let mut asked = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..3 {
        let (done, answer) = oneshot::channel();
        asked.push(
            interests
                .ask(Ask::Services("default".into(), done))
                .is_some(),
        );
        answers.push(answer);
    }
    assert_eq!(asked, [true, false, false]);
    interests.services(ServiceList {
        namespace: "default".into(),
        services_json: vec![r#"{"metadata":{"name":"web"}}"#.into(), "no JSON".into()],
    });
    for answer in answers {
        let services = answer.now_or_never().expect("answered").expect("sent");
        assert_eq!(services.expect("no error").len(), 1);
    }
}

#[test]
fn what_the_last_pod_left_is_known_to_the_next_one_for_a_while() {
    let (mut interests, now) = (Interests::default(), Instant::now());
    let subject = Subject::Object(settings());
    let ask = || {
        let (done, answer) = oneshot::channel();
        (Ask::Object(settings(), done), answer)
    };
    let (first, _answer) = ask();
    assert!(interests.ask(first).is_some());
    interests.object(say(Some(r#"{"data":{"a":"1"}}"#)));
    assert!(!interests.forget(&subject, now), "it lingers");
    // A change is still heard, and the next pod is answered at once.
    interests.object(say(Some(r#"{"data":{"a":"2"}}"#)));
    let (next, answer) = ask();
    assert_eq!(interests.ask(next), None, "nothing needs to be said");
    let known = answer.now_or_never().expect("answered").expect("sent");
    let known = known.expect("no error").expect("it is there");
    assert_eq!(known.as_ref(), br#"{"data":{"a":"2"}}"#);
    assert!(interests.ended(now + LINGER).is_empty(), "a pod needs it");
    assert!(!interests.forget(&subject, now));
    assert_eq!(interests.next_end(), Some(now + LINGER));
    assert_eq!(interests.ended(now + LINGER), [subject]);
    assert_eq!(
        (interests.subjects().count(), interests.next_end()),
        (0, None)
    );
}

#[test]
fn what_went_while_nobody_needed_it_is_asked_for_anew() {
    let mut interests = Interests::default();
    let subject = Subject::Object(settings());
    let (done, _answer) = oneshot::channel();
    interests.ask(Ask::Object(settings(), done));
    interests.object(say(Some(r#"{"data":{"a":"1"}}"#)));
    interests.forget(&subject, Instant::now());
    // The node may not see it just now: that says nothing about the next pod.
    assert_eq!(interests.object(say(None)), None);
    let (done, _answer) = oneshot::channel();
    let asked = interests.ask(Ask::Object(settings(), done));
    assert_eq!(asked, Some(subject.clone()));
    assert!(interests.ended(Instant::now()).is_empty(), "a pod needs it");
    interests.object(say(None));
    assert!(
        interests.forget(&subject, Instant::now()),
        "it is not there"
    );
}

#[test]
fn what_was_not_there_is_asked_for_again_and_others_hear_that_it_came() {
    let mut interests = Interests::default();
    let (done, first) = oneshot::channel();
    interests.ask(Ask::Object(settings(), done));
    interests.object(say(None));
    let first = first.now_or_never().expect("answered").expect("sent");
    assert!(first.expect("no error").is_none());
    let (done, second) = oneshot::channel();
    let asked = interests.ask(Ask::Object(settings(), done));
    assert_eq!(asked, Some(Subject::Object(settings())));
    let (done, third) = oneshot::channel();
    assert_eq!(interests.ask(Ask::Object(settings(), done)), None);
    // The first pod goes on without it: it must hear of the change.
    let came = interests.object(say(Some(r#"{"data":{"a":"1"}}"#)));
    assert_eq!(came, Some(settings()));
    for answer in [second, third] {
        let answer = answer.now_or_never().expect("answered").expect("sent");
        assert!(answer.expect("no error").is_some());
    }
}

#[test]
fn a_refused_interest_is_an_answer_and_is_said_again_with_the_next_question() {
    let mut interests = Interests::default();
    let (done, object) = oneshot::channel();
    interests.ask(Ask::Object(settings(), done));
    let (done, services) = oneshot::channel();
    interests.ask(Ask::Services("default".into(), done));
    let refuse = |object: ReferencedObject| ReferencedObject {
        refused_because: "too many".into(),
        ..object
    };
    assert_eq!(interests.object(refuse(say(None))), None);
    let (kind, name) = ("Service".into(), String::new());
    interests.object(refuse(ReferencedObject {
        kind,
        name,
        ..say(None)
    }));
    let answer = object.now_or_never().expect("answered").expect("sent");
    assert!(matches!(answer, Err(ControlPlaneError::Refused(why)) if why == "too many"));
    let answer = services.now_or_never().expect("answered").expect("sent");
    assert!(matches!(answer, Err(ControlPlaneError::Refused(_))));
    let (done, _answer) = oneshot::channel();
    assert!(interests.ask(Ask::Object(settings(), done)).is_some());
}

#[test]
fn what_is_known_is_answered_without_a_connection_and_the_rest_fails_at_once() {
    let mut interests = Interests::default();
    let (done, _first) = oneshot::channel();
    interests.ask(Ask::Object(settings(), done));
    let (done, waiting) = oneshot::channel();
    interests.ask(Ask::Services("default".into(), done));
    interests.object(say(None));
    interests.disconnected();
    let lost = waiting.now_or_never().expect("answered").expect("sent");
    assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
    let (done, answer) = oneshot::channel();
    interests.answer_known(Ask::Object(settings(), done));
    let known = answer.now_or_never().expect("answered").expect("sent");
    assert!(known.expect("no error").is_none());
    let (done, answer) = oneshot::channel();
    interests.answer_known(Ask::Services("other".into(), done));
    assert!(
        answer
            .now_or_never()
            .expect("answered")
            .expect("sent")
            .is_err()
    );
    // The next connection asks for both again.
    assert_eq!(interests.subjects().count(), 2);
}

#[test]
fn other_kinds_than_config_maps_and_secrets_change_with_their_whole_object() {
    let before = br#"{"status":{"phase":"Pending"}}"#.as_slice();
    let after = br#"{"status":{"phase":"Bound"}}"#.as_slice();
    let kind = RefKind::PersistentVolumeClaim;
    assert!(!is_same(kind, Some(before), Some(after)));
    assert!(is_same(RefKind::ConfigMap, Some(before), Some(after)));
}
