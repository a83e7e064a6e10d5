//! The files that the archive reads: credentials, and its state.

use pegel_archive::fuzzing::read_files;

use super::Target;

pub(super) const FILES: Target = Target {
    name: "archive_files",
    run: |bytes| {
        let (variables, blocks) = read_files(bytes);
        // An entry takes several bytes, so that the input bounds their number.
        assert!(variables <= bytes.len() && 2 * blocks <= bytes.len());
    },
    dictionary: &[
        b"AWS_ACCESS_KEY_ID=",
        b"export ",
        b"\"",
        b"'",
        b"#",
        b"\"archived\":[",
    ],
    seeds: || {
        let texts: [&[u8]; 3] = [
            b"# keys\nAWS_ACCESS_KEY_ID=id\nexport AWS_SECRET_ACCESS_KEY='x=y'\n",
            br#"{"place":"file:///a","archived":[{"id":1,"checksum":2},{"id":3,"checksum":4}]}"#,
            b"PLAIN\n",
        ];
        texts.iter().map(|text| text.to_vec()).collect()
    },
};
