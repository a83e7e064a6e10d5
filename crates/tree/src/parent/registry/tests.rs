use super::*;

fn hello(node: &str, instance: u8, epoch: u64) -> Hello {
    Hello {
        node: node.to_owned(),
        instance: vec![instance; 16].into(),
        epoch,
        ..Hello::default()
    }
}

fn registry() -> Registry {
    Registry::new("head", vec![0; 16].into(), 2, 1000, 3_600_000)
}

fn attach(registry: &mut Registry, hello: &Hello, now: Millis) -> Result<Admitted, Reason> {
    let (outgoing, _) = mpsc::channel(1);
    let path = ["above".to_owned()];
    let admitted = registry.attach(hello, &path, outgoing, now);
    admitted.map_err(|refusal| refusal.reason)
}

fn up(node: &str, epoch: u64) -> NodeUpdate {
    NodeUpdate {
        node: node.to_owned(),
        epoch,
        state: State::Up as i32,
        ..NodeUpdate::default()
    }
}

fn updates(nodes: Vec<NodeUpdate>) -> NodeUpdates {
    NodeUpdates {
        is_complete: true,
        nodes,
    }
}

#[test]
fn a_name_belongs_to_one_instance() {
    let mut registry = registry();
    let first = attach(&mut registry, &hello("a", 1, 10), 0).expect("admitted");
    let other = attach(&mut registry, &hello("a", 2, 11), 0);
    assert_eq!(other.err(), Some(Reason::Duplicate));
    let older = attach(&mut registry, &hello("a", 1, 9), 0);
    assert_eq!(older.err(), Some(Reason::Duplicate));
    let newer = attach(&mut registry, &hello("a", 1, 12), 0).expect("admitted");
    assert!(
        newer
            .replaced
            .is_some_and(|link| Arc::ptr_eq(&link, &first.link))
    );
    assert_eq!(newer.link.key, first.link.key);
    registry.detach(&first.link, 5);
    assert_eq!(registry.connected().count(), 1, "the newer one stays");
    registry.detach(&newer.link, 5);
    let other = attach(&mut registry, &hello("a", 2, 11), NAME_HELD);
    assert_eq!(other.err(), Some(Reason::Duplicate), "within a minute");
    attach(&mut registry, &hello("a", 2, 11), 5 + NAME_HELD).expect("admitted");
}

#[test]
fn loops_and_too_many_children_are_refused() {
    let mut registry = registry();
    let reason = |registry: &mut Registry, hello| attach(registry, &hello, 0).err();
    assert_eq!(
        reason(&mut registry, hello("head", 0, 1)),
        Some(Reason::Loop)
    );
    assert_eq!(
        reason(&mut registry, hello("head", 1, 1)),
        Some(Reason::Duplicate)
    );
    assert_eq!(
        reason(&mut registry, hello("above", 1, 1)),
        Some(Reason::Loop)
    );
    assert_eq!(reason(&mut registry, hello("a", 1, 1)), None);
    assert_eq!(reason(&mut registry, hello("b", 2, 1)), None);
    assert_eq!(reason(&mut registry, hello("c", 3, 1)), Some(Reason::Full));
    assert_eq!(
        reason(&mut registry, hello("b", 2, 2)),
        None,
        "replaces itself"
    );
    let looped = registry.update_nodes("a", updates(vec![up("head", 1)]), &[], 0);
    assert_eq!(looped, Err(LoopFound("head".to_owned())));
}

fn missing(since: Millis) -> Result<NodeChanges, LoopFound> {
    Ok(NodeChanges {
        missing_since: Some(since),
        ..NodeChanges::default()
    })
}

fn nothing() -> Result<NodeChanges, LoopFound> {
    Ok(NodeChanges::default())
}

/// Attaches a child; returns what is sent to it.
fn attach_reading(registry: &mut Registry, hello: &Hello) -> mpsc::Receiver<Bytes> {
    let (outgoing, sent) = mpsc::channel(10);
    registry.attach(hello, &[], outgoing, 0).expect("admitted");
    sent
}

fn moved(node: &str, epoch: u64) -> Bytes {
    let node = node.to_owned();
    encode_to_child(parent_message::Kind::Moved(NodeMoved { node, epoch }))
}

#[test]
fn a_node_that_moved_is_dropped_at_its_old_place() {
    let mut registry = registry();
    let a = attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    attach(&mut registry, &hello("b", 2, 1), 0).expect("admitted");
    let first = registry.update_nodes("a", updates(vec![up("x", 5)]), &[], 100_000);
    assert_eq!(first, nothing());
    assert_eq!(registry.route("x").map(|route| route.0), Some("a"));
    let child = registry.child_mut(&a.link).expect("connected");
    (child.last_tick, child.missing_since) = (Some(150_000), None);
    registry.detach(&a.link, 151_000);
    assert_eq!(registry.away_until(), 150_000);
    assert_eq!(registry.away_since(150_000), ["a"]);
    let lost_below = 150_000 - LOSS_MARGIN;
    assert_eq!(registry.away_since(lost_below), ["a", "x"]);
    assert!(registry.is_away_before("x", 150_000) && !registry.is_away_before("b", 150_000));
    let below_b = registry.update_nodes("b", updates(vec![up("x", 6)]), &[], 160_000);
    assert_eq!(below_b, missing(lost_below));
    assert_eq!(registry.route("x").map(|route| route.0), Some("b"));
    let stale = registry.update_nodes("a", updates(vec![up("x", 5)]), &[], 170_000);
    assert_eq!(stale, nothing());
    assert_eq!(registry.route("x").map(|route| route.0), Some("b"));
    assert_eq!(registry.levels(), 3);
    registry.expire(151_000 + LOST_LISTED);
    assert_eq!(registry.children.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_node_that_its_parent_forgot_is_missing_until_it_is_back() {
    let mut registry = registry();
    attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    attach(&mut registry, &hello("b", 2, 1), 0).expect("admitted");
    let report = updates(vec![up("x", 5)]);
    assert_eq!(registry.update_nodes("a", report, &[], 100_000), nothing());
    // The parent was restarted.
    let empty = registry.update_nodes("a", updates(Vec::new()), &[], 200_000);
    assert_eq!(empty, nothing());
    let since = 200_000 - LOSS_MARGIN;
    assert_eq!(registry.away_since(since), ["x"]);
    let elsewhere = registry.update_nodes("b", updates(vec![up("x", 6)]), &[], 210_000);
    assert_eq!(elsewhere, missing(since));
    assert_eq!(registry.away_until(), Millis::MIN);
}

#[test]
fn the_former_parent_is_informed_of_a_node_that_moved() {
    let mut registry = registry();
    let mut a = attach_reading(&mut registry, &hello("a", 1, 1));
    let mut b = attach_reading(&mut registry, &hello("b", 2, 1));
    let report = |registry: &mut Registry, child, epoch| {
        let report = updates(vec![up("x", epoch)]);
        registry
            .update_nodes(child, report, &[], 100_000)
            .expect("no loop");
    };
    report(&mut registry, "a", 5);
    assert!(a.try_recv().is_err());
    report(&mut registry, "b", 6);
    assert_eq!(a.try_recv().expect("informed"), moved("x", 6));
    report(&mut registry, "a", 5);
    assert_eq!(a.try_recv().expect("informed again"), moved("x", 6));
    assert!(b.try_recv().is_err());
    // The message is passed on, and the node is dropped.
    registry.drop_moved("x", 6);
    assert!(registry.nodes.contains_key("x"), "the same connection");
    registry.drop_moved("x", 7);
    assert_eq!(b.try_recv().expect("informed"), moved("x", 7));
    assert!(registry.nodes.is_empty());
    registry.drop_moved("a", 1);
    registry.drop_moved("b", 2);
    assert_eq!(registry.children.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_connected_child_is_dropped_only_for_a_newer_connection_of_itself() {
    let mut registry = registry();
    attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    let x = attach(&mut registry, &hello("x", 7, 5), 0).expect("admitted");
    let child = registry.child_mut(&x.link).expect("connected");
    (child.last_tick, child.missing_since) = (Some(90_000), None);
    let report = |epoch, instance: u8| {
        let instance = vec![instance; 16].into();
        updates(vec![NodeUpdate {
            instance,
            ..up("x", epoch)
        }])
    };
    let older = registry.update_nodes("a", report(4, 7), &[], 100_000);
    assert_eq!(older, nothing());
    let other = registry.update_nodes("a", report(6, 8), &[], 100_000);
    assert_eq!(other.expect("no loop").duplicates, ["x"]);
    assert_eq!(registry.connected().count(), 2);
    let newer = registry.update_nodes("a", report(6, 7), &[], 100_000);
    assert_eq!(newer, missing(90_000));
    assert_eq!(registry.connected().count(), 1);
    assert_eq!(registry.route("x").map(|route| route.0), Some("a"));
}

#[test]
fn nodes_are_lost_after_a_restart_until_they_are_back() {
    let mut registry = registry();
    let a = attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    let child = registry.child_mut(&a.link).expect("connected");
    (child.last_tick, child.missing_since) = (Some(100_000), None);
    child.last_arrival = 100_000;
    let mut report = updates(vec![up("x", 5), up("y", 5)]);
    report.nodes[1].set_state(State::Lost);
    assert_eq!(registry.update_nodes("a", report, &[], 100_000), nothing());
    let known = registry.known_nodes(100_500);
    let since = known
        .iter()
        .map(|(name, node)| (name.as_str(), node.missing_since));
    let y_lost = 100_000 - LOSS_MARGIN;
    assert_eq!(
        since.collect::<Vec<_>>(),
        [("a", None), ("x", None), ("y", Some(y_lost))]
    );
    assert_eq!(
        registry.known_nodes(200_000)["a"].missing_since,
        Some(100_000),
        "late"
    );

    let mut registry = self::registry();
    registry.restore(known, 95_000);
    assert_eq!(registry.away_until(), 95_000);
    assert_eq!(registry.away_since(95_000), ["a", "x"]);
    let a = attach(&mut registry, &hello("a", 1, 2), 110_000).expect("admitted");
    let child = registry.child_mut(&a.link).expect("connected");
    assert_eq!(child.missing_since, Some(95_000));
    let back = registry.update_nodes("a", updates(vec![up("x", 5)]), &[], 111_000);
    assert_eq!(back, missing(95_000));
    assert_eq!(registry.away_since(0), ["y"]);
}

#[test]
fn a_lost_child_keeps_its_name_for_a_minute_whoever_reports_it() {
    let mut registry = registry();
    attach(&mut registry, &hello("liar", 1, 1), 0).expect("admitted");
    let x = attach(&mut registry, &hello("x", 7, 5), 0).expect("admitted");
    registry.detach(&x.link, 1000);
    let report = || {
        updates(vec![NodeUpdate {
            instance: vec![8; 16].into(),
            ..up("x", u64::MAX)
        }])
    };
    let early = registry.update_nodes("liar", report(), &[], 2000);
    assert_eq!(early.expect("no loop").duplicates, ["x"]);
    attach(&mut registry, &hello("x", 7, 6), 3000).expect("the child itself is back");
    let while_connected = registry.update_nodes("liar", report(), &[], 200_000);
    assert_eq!(while_connected.expect("no loop").duplicates, ["x"]);
}

#[test]
fn a_node_below_another_child_keeps_its_name_for_a_minute() {
    let mut registry = registry();
    let m = attach(&mut registry, &hello("m", 1, 1), 0).expect("admitted");
    attach(&mut registry, &hello("liar", 2, 1), 0).expect("admitted");
    let report = |instance: u8, epoch| {
        updates(vec![NodeUpdate {
            instance: vec![instance; 16].into(),
            ..up("x", epoch)
        }])
    };
    let reported = registry.update_nodes("m", report(7, 5), &[], 0);
    assert!(reported.is_ok());
    registry.detach(&m.link, 1000);
    let other = registry.update_nodes("liar", report(8, 6), &[], 30_000);
    assert_eq!(other.expect("no loop").duplicates, ["x"]);
    let itself = registry.update_nodes("liar", report(7, 6), &[], 30_000);
    assert!(itself.expect("no loop").duplicates.is_empty());
    assert_eq!(registry.route("x").map(|route| route.0), Some("liar"));
}

#[test]
fn the_nodes_of_one_child_and_the_lost_children_are_limited() {
    let mut registry = registry();
    attach(&mut registry, &hello("liar", 1, 1), 0).expect("admitted");
    let names = |from: usize| {
        let nodes = (from..from + NODES_OF_CHILD_MAX).map(|number| up(&format!("n{number}"), 1));
        NodeUpdates {
            is_complete: false,
            nodes: nodes.collect(),
        }
    };
    let first = registry.update_nodes("liar", names(0), &[], 0);
    assert_eq!(first, nothing());
    let second = registry.update_nodes("liar", names(NODES_OF_CHILD_MAX), &[], 0);
    assert_eq!(second.expect("no loop").unlisted, NODES_OF_CHILD_MAX);
    assert_eq!(registry.nodes.len(), NODES_OF_CHILD_MAX);

    let useful = attach(&mut registry, &hello("useful", 2, 1), 0).expect("admitted");
    registry
        .child_mut(&useful.link)
        .expect("connected")
        .last_tick = Some(1);
    registry.detach(&useful.link, 1);
    for number in 0..3 * LOST_MAX as i64 {
        let name = format!("lost{number}");
        let lost = attach(&mut registry, &hello(&name, 3, 1), number).expect("admitted");
        registry.detach(&lost.link, number);
    }
    assert!(registry.children.len() <= LOST_MAX + 2 + 1);
    assert!(registry.children.contains_key("useful"), "it had values");
}

#[test]
fn levels_are_counted_once_for_each_node() {
    let mut registry = registry();
    assert_eq!(registry.levels(), 1);
    attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    assert_eq!(registry.levels(), 2);
    // A chain as long as a child may report.
    let chain = (0..NODES_OF_CHILD_MAX).map(|number| {
        let parent = match number {
            0 => "a".to_owned(),
            _ => format!("n{}", number - 1),
        };
        NodeUpdate {
            parent,
            ..up(&format!("n{number}"), 1)
        }
    });
    let report = updates(chain.take(10).collect());
    assert!(registry.update_nodes("a", report, &[], 0).is_ok());
    assert_eq!(registry.levels(), 12);
    let cycle = [("x", "y"), ("y", "x")].map(|(node, parent)| NodeUpdate {
        parent: parent.to_owned(),
        ..up(node, 1)
    });
    assert!(
        registry
            .update_nodes("a", updates(cycle.to_vec()), &[], 0)
            .is_ok()
    );
    assert!(registry.levels() <= LEVELS_MAX);
}
