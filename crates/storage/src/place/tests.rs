use super::*;

fn place(text: &str) -> RecordPlace {
    text.parse().expect(text)
}

#[test]
fn places_are_shown_as_they_are_written() {
    for text in [
        "azblob://acct/container",
        "azblob://acct/container/a/b c",
        "s3://my.bucket/x",
        "s3://fast--use1-az4--x-s3",
        "gs://b_1/x/y",
        "file:///var/records",
    ] {
        let parsed = place(text);
        assert_eq!(parsed.to_string(), text);
        let json = serde_json::to_string(&parsed).expect("JSON");
        assert_eq!(json, format!("{text:?}"));
        let read: RecordPlace = serde_json::from_str(&json).expect("a place");
        assert_eq!(read, parsed);
    }
    assert_eq!(place("s3://bucket/a/").to_string(), "s3://bucket/a");
    assert_eq!(place("s3://bucket/").to_string(), "s3://bucket");
}

#[test]
fn malformed_places_are_explained_and_not_shown() {
    for (text, expected) in [
        ("", "azblob://ACCOUNT/CONTAINER[/PREFIX]"),
        ("/tmp/PLANTED", "file:///DIR"),
        (
            "https://acct.blob.core.windows.net/PLANTED",
            "begins with azblob://",
        ),
        (
            "azblob://acct/c?sv=1&sig=PLANTED",
            "AZURE_STORAGE_SAS_TOKEN",
        ),
        ("azblob://acct", "no container"),
        ("azblob://acct/", "no container"),
        ("azblob://PLANTED/container", "invalid account name"),
        ("azblob://acct/PLANTED", "invalid container name"),
        ("s3://key:PLANTED@bucket", "no user name or password"),
        ("s3://PLANTED", "invalid bucket name"),
        ("gs://", "invalid bucket name"),
        ("s3://bucket/a//PLANTED", "is empty"),
        ("s3://bucket/../PLANTED", "\"..\""),
        ("s3://bucket/a#PLANTED", "# are not accepted"),
        ("file://PLANTED", "must be absolute"),
    ] {
        let error = text.parse::<RecordPlace>().expect_err(text);
        let message = error.to_string();
        assert!(message.contains(expected), "{text}: {message}");
        assert!(
            !format!("{message} {error:?}").contains("PLANTED"),
            "{text}"
        );
    }
}

#[test]
fn appended_places_are_flushed_more_often_than_objects() {
    for (text, seconds) in [
        ("azblob://acct/container", 10),
        ("file:///x", 10),
        ("s3://fast--use1-az4--x-s3", 10),
        ("s3://bucket", 60),
        ("gs://bucket", 60),
    ] {
        assert_eq!(
            place(text).default_flush_interval().as_secs(),
            seconds,
            "{text}"
        );
    }
}

#[test]
fn a_place_may_name_one_part() {
    for (text, folder, number) in [
        ("s3://bucket/a/record-00007.pgl", "s3://bucket/a", Some(7)),
        ("gs://bucket/record-00000.pgl", "gs://bucket", Some(0)),
        ("file:///a/record-00001.pgl", "file:///a", Some(1)),
        ("file:///a/record-1.pgl", "file:///a/record-1.pgl", None),
        (
            "azblob://acct/container/a",
            "azblob://acct/container/a",
            None,
        ),
    ] {
        assert_eq!(place(text).split_part(), (place(folder), number), "{text}");
    }
    assert_eq!(place("s3://bucket").join("a/b"), place("s3://bucket/a/b"));
    assert_eq!(place("s3://bucket/x").join("a"), place("s3://bucket/x/a"));
    assert_eq!(place("file:///x").join("a/b"), place("file:///x/a/b"));
}
