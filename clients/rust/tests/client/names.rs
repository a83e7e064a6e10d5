//! Invalid names give handles that do nothing, and errors from `try_build`.

use std::error::Error as _;

use pegel_testkit::run_alone;

#[test]
fn a_bad_name_is_an_error_or_a_handle_that_does_nothing() {
    run_alone(|| {
        // The directory does not exist: nothing is published on this machine. SAFETY: no other test
        // runs in this process, so that no other thread reads the environment.
        unsafe { std::env::set_var("PEGEL_LANES", "/no/such/place") };
        for bad in ["", "a{", "a\"b", "a\nb"] {
            pegel::counter(bad).build().add(1);
            pegel::gauge(bad).build().set(1.0);
            pegel::histogram(bad).build().record(1.0);
            pegel::point(bad).build().add(1.0);
            pegel::striped_counter(bad).build().add(1);
            pegel::float_counter(bad).build().add(1.0);
            pegel::timer(bad).build().time(|| ());
            let error = pegel::counter(bad).try_build().expect_err("a bad name");
            assert_eq!(error.to_string(), format!("cannot create series {bad:?}"));
            assert!(!error.is_disabled() && error.source().is_some());
        }
        let twice = pegel::gauge("depth")
            .label("q", "1")
            .label("q", "2")
            .try_build();
        let cause = twice
            .expect_err("twice")
            .source()
            .map(|cause| cause.to_string());
        assert_eq!(cause.as_deref(), Some("duplicate label"));
        let reserved = pegel::gauge("depth").label("pid", "1").try_build();
        assert!(reserved.is_err());
        pegel::timer("good_seconds").build().start().cancel();
        assert!(!pegel::is_published());
    });
}
