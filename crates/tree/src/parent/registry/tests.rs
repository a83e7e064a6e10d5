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
    Registry::new("head", vec![0; 16].into(), 2, 1000)
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

#[test]
fn a_node_that_moved_is_dropped_at_its_old_place() {
    let mut registry = registry();
    let a = attach(&mut registry, &hello("a", 1, 1), 0).expect("admitted");
    attach(&mut registry, &hello("b", 2, 1), 0).expect("admitted");
    let moved = registry.update_nodes("a", updates(vec![up("x", 5)]), &[], 100_000);
    assert_eq!(moved, Ok(None));
    assert_eq!(registry.route("x").map(|route| route.0), Some("a"));
    registry.child_mut(&a.link).expect("connected").last_tick = Some(150_000);
    registry.detach(&a.link, 151_000);
    assert_eq!(registry.unreachable_since(150_000), ["a", "x"]);
    assert!(registry.unreachable_since(150_001).is_empty());
    let below_b = registry.update_nodes("b", updates(vec![up("x", 6)]), &[], 160_000);
    assert_eq!(below_b, Ok(Some(150_000)), "missing since then");
    assert_eq!(registry.route("x").map(|route| route.0), Some("b"));
    let stale = registry.update_nodes("a", updates(vec![up("x", 5)]), &[], 170_000);
    assert_eq!(stale, Ok(None));
    assert_eq!(registry.route("x").map(|route| route.0), Some("b"));
    assert_eq!(registry.levels(), 3);
    let gone = registry.update_nodes("b", updates(Vec::new()), &[], 180_000);
    assert_eq!((gone, registry.nodes.len()), (Ok(None), 0));
    registry.expire(151_000 + LOST_LISTED);
    assert_eq!(registry.children.keys().collect::<Vec<_>>(), ["b"]);
}
