//! The requests of Grafana's query editor.

use std::collections::BTreeSet;

use super::grafana::LookupReply;
use super::server;

#[test]
fn save_and_test_is_green_in_both_forms() {
    let (server, _) = server(|_| {});
    for path in [
        "/api/suggest?type=metrics&q=cpu&max=1000",
        "/api/suggest?q=cpu&type=metrics",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn names_are_suggested() {
    let (server, _) = server(|_| {});
    let names =
        |path: &str| serde_json::from_slice::<Vec<String>>(&server.get(path).body).expect(path);
    assert_eq!(
        names("/api/suggest?type=metrics&q=cpu&max=1000"),
        ["cpu_percent"]
    );
    assert_eq!(
        names("/api/suggest?type=metrics&q=&max=1000"),
        ["DevicePowerUsage", "cpu_percent"]
    );
    assert_eq!(names("/api/suggest?type=tagk&q=&max=1000"), ["gpu", "host"]);
    assert_eq!(
        names("/api/suggest?type=tagv&q=n&max=1000"),
        ["n1", "n2", "nid0001"]
    );
    assert_eq!(
        names("/api/suggest?type=metrics&q=percent"),
        [""; 0],
        "by how they begin"
    );
}

#[test]
fn aggregators_and_filters_are_listed() {
    let (server, _) = server(|_| {});
    let names: BTreeSet<String> =
        serde_json::from_slice(&server.get("/api/aggregators").body).expect("texts");
    for name in [
        "avg", "sum", "min", "max", "dev", "zimsum", "mimmin", "mimmax",
    ] {
        assert!(names.contains(name), "{name}");
    }
    let filters = server.get("/api/config/filters").json();
    let kinds: Vec<&str> = filters
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        kinds,
        [
            "iliteral_or",
            "iwildcard",
            "literal_or",
            "not_iliteral_or",
            "not_key",
            "not_literal_or",
            "regexp",
            "wildcard",
        ]
    );
}

#[test]
fn variables_find_keys_and_values() {
    let (server, _) = server(|_| {});
    let found = |path: &str| {
        let answer = server.get(path);
        let found: LookupReply = serde_json::from_slice(&answer.body)
            .unwrap_or_else(|e| panic!("{path}: {e}: {}", answer.text()));
        found.results
    };
    let keys: BTreeSet<String> = found("/api/search/lookup?m=DevicePowerUsage&limit=1000")
        .into_iter()
        .flat_map(|result| result.tags.into_keys())
        .collect();
    assert_eq!(Vec::from_iter(keys), ["gpu", "host"]);
    for path in [
        "/api/search/lookup?m=cpu_percent%7Bhost%3D*%7D&limit=0",
        "/api/search/lookup?m=cpu_percent{host=*}&limit=1000",
    ] {
        let values: BTreeSet<String> = found(path)
            .into_iter()
            .map(|result| result.tags["host"].clone())
            .collect();
        assert_eq!(Vec::from_iter(values), ["n1", "n2"]);
    }
    let values =
        found("/api/search/lookup?m=DevicePowerUsage%7Bgpu%3D*,host%3Dnid0001%7D&limit=10");
    assert_eq!(values.len(), 2);
}

#[test]
fn a_client_can_ask_about_the_server() {
    let (server, _) = server(|_| {});
    assert_eq!(server.get("/api/version").json()["version"], "2.4.0");
    assert_eq!(
        server.get("/api/serializers").json()[0]["serializer"],
        "json"
    );
    assert!(server.get("/api/stats").json().is_array());
    let config = server.get("/api/config").json();
    assert!(
        config
            .as_object()
            .expect("an object")
            .values()
            .all(serde_json::Value::is_string)
    );
}
