use super::*;

fn labels(pairs: &[(&str, &str)]) -> LabelSet {
    LabelSet::new(pairs.iter().copied())
}

/// Expands a template for a sample with the labels `l="a b"` and `instance="n1:9100"`.
fn expand(text: &str, value: f64) -> String {
    let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let query = |expression: &str| match expression {
        "two" => Ok(vec![
            VectorSample {
                labels: labels(&[("l", "z")]),
                value: 2.0,
            },
            VectorSample {
                labels: labels(&[("l", "y")]),
                value: 3.5,
            },
        ]),
        "none" => Ok(Vec::new()),
        other => Err(format!("unknown {other}")),
    };
    template.expand(&TemplateData {
        labels: &labels(&[("l", "a b"), ("instance", "n1.cluster:9100")]),
        value,
        external_labels: &labels(&[("site", "x")]),
        external_url: "http://n1:1337/p/",
        time: 1_500,
        query: &query,
    })
}

#[test]
fn values_labels_and_functions() {
    for (text, expected) in [
        (
            "{{ $labels.l }}|{{ .Labels.instance }}|{{ $labels.none }}|{{ $.Value }}",
            "a b|n1.cluster:9100||1234.5",
        ),
        (
            "{{ $externalLabels.site }} {{ $externalURL }} {{ .ExternalURL }}",
            "x http://n1:1337/p/ http://n1:1337/p/",
        ),
        (
            "{{ $value }} {{ $value | humanize }} {{ humanize1024 $value }}",
            "1234.5 1.234k 1.206ki",
        ),
        (
            "{{ humanizeDuration $value }} {{ humanizePercentage 0.1234 }} {{ \"0.5\" | humanizePercentage }}",
            "20m 34s 12.34% 50%",
        ),
        (
            "{{ humanizeTimestamp 1500000000.5 }} {{ now }}",
            "2017-07-14 02:40:00.5 +0000 UTC 1.5",
        ),
        (
            "{{ printf \"%.1f%% %s\" $value $labels.l }} {{ $value | printf \"%.2f\" }}",
            "1234.5% a b 1234.50",
        ),
        (
            "{{ title $labels.l }} {{ toUpper \"x\" }} {{ \"X\" | toLower }}",
            "A B X x",
        ),
        (
            "{{ match \"^n[0-9]\" $labels.instance }} {{ reReplaceAll \"(.*):(.*)\" \"$2/${1}\" $labels.instance }}",
            "true 9100/n1.cluster",
        ),
        (
            "{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }} {{ stripPort \"[::1]:80\" }} {{ stripPort \"::1\" }}",
            "n1.cluster n1:9100 ::1 ::1",
        ),
        (
            "{{ len $labels }} {{ index $labels \"l\" }} {{ print \"a\" 1 2 \"b\" }}|{{ println 1 \"c\" }}|",
            "2 a b a1 2b|1 c\n|",
        ),
        (
            "{{ pathPrefix }} {{ externalURL }} {{ parseDuration \"1m\" }} {{ urlquery \"a b&\" }}",
            "/p http://n1:1337/p/ 60 a+b%26",
        ),
        (
            "{{ graphLink \"up{a=\\\"b\\\"}\" }}",
            "/graph?g0.expr=up%7Ba%3D%22b%22%7D&g0.tab=0",
        ),
        ("{{ .Labels }}", "map[instance:n1.cluster:9100 l:a b]"),
    ] {
        assert_eq!(expand(text, 1234.5), expected, "{text}");
    }
}

#[test]
fn control_structures() {
    for (text, expected) in [
        ("{{ if gt $value 5.0 }}big{{ else }}small{{ end }}", "big"),
        (
            "{{ if lt $value 5.0 }}a{{ else if eq $labels.l \"x\" \"a b\" }}b{{ else }}c{{ end }}",
            "b",
        ),
        (
            "{{ if and (ge $value 7.0) (not (match \"q\" $labels.l)) }}yes{{ end }}",
            "yes",
        ),
        (
            "{{ with query \"two\" }}{{ . | first | value }} {{ . | first | label \"l\" }}{{ end }}",
            "2 z",
        ),
        (
            "{{ with query \"none\" }}x{{ else }}nothing{{ end }}",
            "nothing",
        ),
        (
            "{{ range query \"two\" }}{{ .Labels.l }}={{ .Value }};{{ end }}",
            "z=2;y=3.5;",
        ),
        (
            "{{ range $i, $s := sortByLabel \"l\" (query \"two\") }}{{ $i }}{{ $s.Labels.l }}{{ end }}",
            "0y1z",
        ),
        (
            "{{ range query \"none\" }}x{{ else }}empty{{ end }}",
            "empty",
        ),
        (
            "{{ range $k, $v := .Labels }}{{ $k }},{{ end }}",
            "instance,l,",
        ),
        (
            "{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $y := 3 }}{{ $y }}{{ end }}{{ $x }}",
            "32",
        ),
        (
            "{{ range query \"two\" }}{{ if eq .Value 2.0 }}{{ continue }}{{ end }}{{ .Value }}{{ end }}",
            "3.5",
        ),
        (
            "{{ range query \"two\" }}{{ .Value }}{{ break }}{{ end }}",
            "2",
        ),
        (
            "{{ (query \"two\" | first).Value }} {{ (index (query \"two\") 1).Labels.l }}",
            "2 y",
        ),
        (
            "a {{- /* comment */ -}} b {{ or \"\" \"c\" }} {{ and 1 0 }}",
            "ab c 0",
        ),
        ("{{ or true (query \"broken\") }}", "true"),
    ] {
        assert_eq!(expand(text, 7.0), expected, "{text}");
    }
}

#[test]
fn errors_of_an_expansion_are_part_of_the_text() {
    for (text, expected) in [
        (
            "{{ if gt $value 100 }}x{{ end }}",
            "error calling gt: incompatible types for comparison",
        ),
        (
            "{{ query \"none\" | first }}",
            "error calling first: first() called on vector with no elements",
        ),
        (
            "{{ query \"broken\" }}",
            "error calling query: unknown broken",
        ),
        (
            "{{ .Nothing }}",
            "can't evaluate field Nothing in type struct",
        ),
        (
            "{{ title 1 }}",
            "error calling title: wrong type: expected a string, got int",
        ),
        (
            "{{ printf }}",
            "wrong number of args for printf: want at least 1 got 0",
        ),
        ("{{ match \"(\" \"\" }}", "error parsing regexp"),
    ] {
        let found = expand(text, 1.0);
        assert!(
            found.starts_with("<error expanding template: ") && found.contains(expected),
            "{text}: {found}"
        );
    }
}

#[test]
fn what_is_not_supported_is_refused_before_it_is_used() {
    for (text, expected) in [
        ("{{ nosuch 1 }}", "function \"nosuch\" not defined"),
        ("{{ toTime 1 }}", "function \"toTime\" is not supported"),
        ("{{ template \"x\" }}", "{{template}} is not supported"),
        ("{{ define \"x\" }}{{ end }}", "{{define}} is not supported"),
        ("{{ $nosuch }}", "undefined variable \"$nosuch\""),
        (
            "{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}",
            "undefined variable \"$x\"",
        ),
        ("{{ if true }}x", "missing {{end}}"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ else }}", "unexpected {{else}}"),
        ("{{ break }}", "{{break}} outside {{range}}"),
        ("{{ }}", "missing value"),
        ("{{ $value 1 }}", "only a function takes arguments"),
        ("{{ 1 | 2 }}", "must be a function"),
        ("{{ (1 }}", "unclosed left paren"),
        ("{{ 1 ) }}", "unexpected \")\""),
        ("{{ $value", "unclosed action"),
    ] {
        let error = Template::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let deep = format!("{}1{}", "{{ if true }}".repeat(40), "{{ end }}".repeat(40));
    assert!(Template::parse(&deep).is_err_and(|error| error.contains("nest more than")));
}

#[test]
fn a_hostile_template_is_bounded() {
    let nested = "{{ range query \"two\" }}".repeat(20) + &"{{ end }}".repeat(20);
    assert!(expand(&nested, 1.0).contains("too much memory"));
    let steps = "{{ range $labels }}".repeat(20) + &"{{ end }}".repeat(20);
    assert!(expand(&steps, 1.0).contains("too many steps"));
    let long = "{{ range query \"two\" }}".repeat(12) + "0123456789" + &"{{ end }}".repeat(12);
    assert!(expand(&long, 1.0).contains("exceeds 16384 bytes"));
    assert!(expand("{{ printf \"%999999999d\" 1 }}", 1.0).len() <= 1_000);
}
