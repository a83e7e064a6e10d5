//! Tests of what one sender can do to the values of others.

use super::*;

/// Stops an agent without a last pass, and starts another one on its store.
fn restart(
    agent: StatsdFixture,
    change_gate: impl FnOnce(&mut AdmissionSettings),
) -> StatsdFixture {
    let StatsdFixture { _dir, store, .. } = agent;
    StatsdFixture::with_gate(_dir, store, |_| (), change_gate)
}

fn fixture(change_gate: impl FnOnce(&mut AdmissionSettings)) -> StatsdFixture {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
    StatsdFixture::with_gate(dir, store, |_| (), change_gate)
}

fn series_of(agent: &StatsdFixture, input: Input, who: &str) -> u32 {
    agent.admission.sender(input, who).series()
}

#[test]
fn totals_of_a_stranger_do_not_displace_those_of_others_at_a_restart() {
    let limits = |settings: &mut AdmissionSettings| settings.text_bytes_max = 20_000;
    let mut first = fixture(limits);
    let own = format!("uid {}", rustix::process::geteuid().as_raw());
    let tags = format!("|#job:{}", "j".repeat(190));
    first.push(&format!("app.requests:1234|c{tags}"));
    first.push_of(4_000_000_001, &format!("app.requests:70|c{tags}"));
    first.send_of(&own, 1, &format!("app.errors:5|c{tags}"));
    for at in 0..200 {
        first.send_of("127.0.0.1", 1, &format!("f{at:06}{}:1|c", "x".repeat(90)));
    }
    let refused = first.dropped(DropReason::SenderLimit);
    assert!(refused > 0, "the stranger fills its part");
    let before = first.tick();
    assert_eq!(before.len() as u64, 203 - refused);
    let stranger = series_of(&first, Input::Statsd, "127.0.0.1");

    let mut second = restart(first, limits);
    assert_eq!(second.tick(), before, "no total is dropped");
    assert_eq!(series_of(&second, Input::Push, &own), 1);
    assert_eq!(series_of(&second, Input::Push, "uid 4000000001"), 1);
    assert_eq!(series_of(&second, Input::Statsd, &own), 1);
    assert_eq!(series_of(&second, Input::Statsd, "127.0.0.1"), stranger);
    // A sender at its limit continues its series, and gets no further ones.
    second.send_of("127.0.0.1", 1, &format!("f000000{}:1|c", "x".repeat(90)));
    second.send_of("127.0.0.1", 1, &format!("more{}:1|c", "x".repeat(90)));
    second.push(&format!("app.requests:1|c{tags}"));
    assert_eq!(second.dropped(DropReason::SenderLimit), refused + 1);
    let after = second.tick();
    assert_eq!(after.len(), before.len());
    let total = |name: &str| {
        let is_named = |text: &str| text.starts_with(name) && !text.contains("user=");
        let mut named = after.iter().filter(|(text, _)| is_named(text));
        named.next().map(|(_, value)| *value)
    };
    assert_eq!(total("f000000"), Some(2.0));
    assert_eq!(total("app.requests{job="), Some(1235.0));
    assert_eq!(series_of(&second, Input::Statsd, "127.0.0.1"), stranger);

    // The senders are stored again, also those of totals that were only published.
    let mut third = restart(second, limits);
    assert_eq!(third.tick(), after);
    assert_eq!(series_of(&third, Input::Statsd, &own), 1);
    assert_eq!(series_of(&third, Input::Statsd, "127.0.0.1"), stranger);
}

#[test]
fn a_total_that_another_sender_continues_is_charged_to_that_sender() {
    let mut first = fixture(|_| ());
    first.send_of("10.0.0.7", 1, "x:5|c\ny:1|c");
    first.tick();
    let mut second = restart(first, |_| ());
    second.send_of("10.0.0.8", 1, "x:1|c");
    assert_eq!(second.tick(), values(&[("x", 6.0), ("y", 1.0)]));
    let mut third = restart(second, |_| ());
    assert_eq!(third.tick(), values(&[("x", 6.0), ("y", 1.0)]));
    assert_eq!(series_of(&third, Input::Statsd, "10.0.0.7"), 1);
    assert_eq!(series_of(&third, Input::Statsd, "10.0.0.8"), 1);
}

#[test]
fn a_renamed_total_stays_charged_to_its_sender() {
    let mut first = fixture(|_| ());
    first.send_of("10.0.0.7", 1, "x:5|c");
    first.tick();
    let mut second = restart(first, |settings| {
        settings.senders.series_per_sender = std::num::NonZeroU32::new(1).expect("not zero");
    });
    let _lane = second.claim(Input::Lane, "x");
    second.tick();
    second.send_of("10.0.0.7", 1, "x:1|c");
    assert_eq!(second.tick(), values(&[("x{input=\"statsd\"}", 6.0)]));
    assert_eq!(series_of(&second, Input::Statsd, "10.0.0.7"), 1);
}

#[test]
fn groups_of_senders_that_left_are_used_for_others() {
    let mut agent = StatsdFixture::new(|keys| keys.idle = IdlePolicy::Delete);
    for host in 1..=20 {
        agent.send_of(&format!("10.0.0.{host}"), 1, "x:1|c");
        let name = "x".to_owned();
        assert_eq!(agent.flush().keys().collect::<Vec<_>>(), [&name]);
        agent.flush();
        agent.flush();
    }
    let groups: Vec<_> = agent.store.last_group_rows("statsd-");
    let numbers = groups
        .iter()
        .filter_map(|(members, _)| members.group.split(' ').next());
    let numbers: std::collections::BTreeSet<&str> = numbers.collect();
    assert!(numbers.len() <= 2, "{numbers:?}");
}

#[test]
fn a_refused_line_leaves_a_total_from_before_a_restart_charged() {
    let mut first = fixture(|_| ());
    first.send_of("10.0.0.7", 1, "t:5|ms");
    first.tick();
    let mut second = restart(first, |settings| {
        settings.senders.series_per_sender = std::num::NonZeroU32::new(2).expect("not zero");
    });
    // The timer has more than its two totals.
    second.send_of("10.0.0.7", 1, "t:5|ms");
    assert_eq!(second.dropped(DropReason::SenderLimit), 1);
    assert_eq!(series_of(&second, Input::Statsd, "10.0.0.7"), 2);
    assert_eq!(second.tick(), values(&[("t.count", 1.0), ("t.sum", 5.0)]));
}

#[test]
fn tags_that_are_in_no_series_are_charged_until_their_metric_is_removed() {
    let limits = |settings: &mut AdmissionSettings| settings.text_bytes_max = 200_000;
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
    let delete = |keys: &mut StatsdSettings| keys.idle = IdlePolicy::Delete;
    let mut agent = StatsdFixture::with_gate(dir, store, delete, limits);
    let key = "k".repeat(16_000);
    let send = |agent: &StatsdFixture| {
        for at in 0..20 {
            agent.send_of("127.0.0.1", 1, &format!("n{at}:1|g|#{key}:"));
        }
    };
    send(&agent);
    // Half of the bytes of names.
    assert_eq!(series_of(&agent, Input::Statsd, "127.0.0.1"), 6);
    assert_eq!(agent.dropped(DropReason::SenderLimit), 14);
    let _lane = agent.claim(Input::Lane, "n0");
    agent.tick();
    agent.send_of("127.0.0.1", 1, &format!("n0:1|g|#{key}:"));
    let values = agent.tick();
    assert!(values.contains_key("n0{input=\"statsd\"}"), "{values:?}");
    assert_eq!(agent.dropped(DropReason::SenderLimit), 14, "charged once");
    for _ in 0..4 {
        agent.flush();
    }
    assert_eq!(series_of(&agent, Input::Statsd, "127.0.0.1"), 0);
    send(&agent);
    assert_eq!(series_of(&agent, Input::Statsd, "127.0.0.1"), 6);
    assert_eq!(agent.dropped(DropReason::SenderLimit), 28);
}
