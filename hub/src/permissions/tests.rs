use super::exact::Exact as _;
use super::objects::{Objects, is_ours};
use super::*;
use k8s_openapi::api::rbac::v1::Subject;

fn registration(key: &[u8]) -> Registration {
    Registration {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_uid: "u-1".to_owned(),
        grant: Grant::InForce(RegistrationId::of_public_key(key)),
    }
}

fn groups(subjects: Option<&Vec<Subject>>) -> Vec<String> {
    subjects
        .into_iter()
        .flatten()
        .map(|subject| subject.name.clone())
        .collect()
}

#[test]
fn every_binding_has_the_one_group_and_every_object_its_owner() {
    let registration = registration(b"key");
    let objects = Objects::of(&registration);
    let group = registration.group().into_iter().collect::<Vec<_>>();
    assert_eq!(group.len(), 1);
    assert_eq!(
        groups(objects.cluster_role_binding.subjects.as_ref()),
        group
    );
    assert_eq!(groups(objects.role_binding.subjects.as_ref()), group);
    assert_eq!(groups(objects.works_binding.subjects.as_ref()), group);
    for metadata in [
        &objects.namespace.metadata,
        &objects.lease.metadata,
        &objects.cluster_role.metadata,
        &objects.cluster_role_binding.metadata,
        &objects.role.metadata,
        &objects.role_binding.metadata,
        &objects.works_binding.metadata,
    ] {
        let owners = metadata.owner_references.as_ref().expect("owned");
        assert_eq!(owners.len(), 1);
        assert_eq!(
            (owners[0].name.as_str(), owners[0].uid.as_str()),
            ("m1", "u-1")
        );
    }
}

#[test]
fn rights_name_their_object_and_only_patch_it() {
    let objects = Objects::of(&registration(b"key"));
    for rules in [&objects.cluster_role.rules, &objects.role.rules] {
        let rules = rules.as_ref().expect("rules");
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].verbs, ["patch"]);
        assert_eq!(
            rules[0].resource_names.as_deref(),
            Some(&["m1".to_owned()][..])
        );
    }
}

#[test]
fn a_new_registration_replaces_the_subjects_of_the_old_one() {
    let mut live = Objects::of(&registration(b"old")).works_binding;
    let wanted = Objects::of(&registration(b"new")).works_binding;
    // What somebody appended goes too.
    let mut stranger = live.subjects.clone().unwrap_or_default();
    stranger[0].name = "strangers".to_owned();
    live.subjects.get_or_insert_default().extend(stranger);
    assert!(wanted.impose(&mut live));
    assert_eq!(live.subjects, wanted.subjects);
}

#[test]
fn a_suspended_registration_binds_nobody() {
    let mut registration = registration(b"key");
    registration.grant = Grant::Suspended;
    let objects = Objects::of(&registration);
    assert_eq!(objects.works_binding.subjects, None);
    assert_eq!(objects.role_binding.subjects, None);
    assert_eq!(objects.cluster_role_binding.subjects, None);
}

#[test]
fn a_binding_to_another_role_is_made_anew() {
    let wanted = Objects::of(&registration(b"key")).cluster_role_binding;
    let mut live = wanted.clone();
    live.role_ref.name = "cluster-admin".to_owned();
    assert!(!wanted.impose(&mut live));
}

#[test]
fn bindings_of_others_are_told_from_ours() {
    let cluster = ClusterName::parse("m1").expect("valid");
    let ours = Objects::of(&registration(b"key")).works_binding;
    assert!(is_ours(&ours, &cluster));
    let mut other_cluster = ours.clone();
    other_cluster.subjects.as_mut().expect("subjects")[0].name = "towline:cluster:m10:x".to_owned();
    assert!(!is_ours(&other_cluster, &cluster));
    let mut other_role = ours.clone();
    other_role.role_ref.name = "admin".to_owned();
    assert!(!is_ours(&other_role, &cluster));
    let mut other_name = ours;
    other_name.metadata.name = Some("theirs".to_owned());
    assert!(!is_ours(&other_name, &cluster));
}
