//! Rule files, templates of alerts, and the notation of series in unit tests of rules.

use pegel_rules::fuzzing;

use super::Target;
use crate::memory::bounded;

const DICTIONARY: &[&[u8]] = &[
    b"groups:\n- name: a\n  rules:\n",
    b"  - {record: a, expr: x}\n",
    b"  - {alert: A, expr: x, for: 5m}\n",
    b"annotations: {a: '{{ $value }}'}",
    b"{{ ",
    b" }}",
    b"{{- ",
    b" -}}",
    b"{{/* */}}",
    b"{{ if ",
    b"{{ else }}",
    b"{{ else if ",
    b"{{ end }}",
    b"{{ range ",
    b"{{ with ",
    b"{{ break }}",
    b"$labels.instance",
    b"$value",
    b".Labels",
    b"query \"up\"",
    b" | first",
    b" | value",
    b"printf \"%8.3f %v\"",
    b"reReplaceAll \"(.*):.*\" \"$1\"",
    b"humanizeTimestamp ",
    b"humanizeDuration ",
    b"sortByLabel \"instance\" ",
    b"index ",
    b":= ",
    b"1+2x3 ",
    b"_x5 ",
    b"stale ",
];

pub(super) const RULE_FILE: Target = Target {
    name: "rule_file",
    run: |input| {
        if let Ok(text) = str::from_utf8(input) {
            bounded(64 << 20, || fuzzing::rule_file(text));
        }
    },
    dictionary: DICTIONARY,
    seeds: || {
        texts(&[
            "groups:\n- name: a\n  interval: 30s\n  limit: 3\n  rules:\n  - {record: 'a:b', expr: sum(x), labels: {l: v}}\n",
            "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: x > 1\n    for: 5m\n    annotations:\n      a: '{{ $value }}'\n",
            "groups: 3\n",
        ])
    },
};

pub(super) const RULE_TEMPLATE: Target = Target {
    name: "rule_template",
    run: |input| {
        if let Ok(text) = str::from_utf8(input) {
            let expanded = bounded(64 << 20, || fuzzing::template(text));
            // The text of an error names at most a part of the template.
            assert!(expanded.is_none_or(|text| text.len() <= (32 << 10) + input.len()));
        }
    },
    dictionary: DICTIONARY,
    seeds: || {
        texts(&[
            "{{ $labels.instance | stripPort | title }} is {{ printf \"%.2f\" $value }} {{- /* c */ -}}",
            "{{ range $i, $s := query \"up\" | sortByLabel \"instance\" }}{{ $i }}{{ $s.Value | humanize }}{{ else }}none{{ end }}",
            "{{ with query \"up\" }}{{ . | first | value | humanizeDuration }}{{ end }}{{ if and (gt $value 1.0) (not false) }}{{ $x := 1 }}{{ $x }}{{ else if true }}b{{ end }}",
            "{{ (index (query \"up\") 0).Labels.instance | reReplaceAll \"(.*):.*\" \"$1\" }}{{ match \"a\" `b` }}",
        ])
    },
};

pub(super) const RULE_TEST_VALUES: Target = Target {
    name: "rule_test_values",
    run: |input| {
        if let Ok(text) = str::from_utf8(input) {
            bounded(128 << 20, || fuzzing::series_values(text));
        }
    },
    dictionary: DICTIONARY,
    seeds: || texts(&["1+2x3 _ _x5 stale 0x4 -1.5e3-2x2 NaN -Inf", "1 2 3"]),
};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
