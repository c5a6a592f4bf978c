//! Reads of nodes that take longer than what is read stays where it was.

use super::*;
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::store::Urgency;
use crate::tree::node::{Target, node_extent};

/// Takes free pages until it has all of `extent`, and writes them anew.
fn write_anew(store: &Store, extent: Extent) {
    let rubbish = PageBuf::from_slice(&[0xa5; PAGE_BYTES as usize]);
    let mut missing = extent.pages;
    while missing > 0 {
        let page = store.allocate(1, Urgency::Ordinary).expect("space");
        assert!(page.start < 1 << 16, "the pages of the node that has gone are never free");
        if (extent.start..extent.end()).contains(&page.start) {
            store.write(page, 0, &rubbish).expect("write");
            missing -= 1;
        }
    }
}

#[test]
fn a_read_of_a_node_that_ends_when_its_space_is_another_s_finds_the_node_that_was_read_meanwhile() {
    let mut harness = grown(20);
    let plan = FaultPlan::new();
    harness.reopen_on(&|storage| Arc::new(FaultStorage::new(storage, plan.clone())));
    let (tree, version, view) = (harness.tree.clone(), harness.tree.version(), harness.view(CommitNumber(harness.now)));
    let Target::Node(child) = version.root.slots()[0].target().clone() else { panic!("a tree of two levels") };
    let (extent, expected) = (node_extent(child.ptr()), harness.model[&key(0)].last().expect("written").1.clone());
    assert!(child.loaded().is_none());
    let bytes = extent.offset()..extent.offset() + extent.bytes();
    plan.add(FaultRule { offsets: Some(bytes), ..FaultRule::once(CallClass::Read, 1, Fault::Hold) });
    std::thread::scope(|scope| {
        let late = scope.spawn(|| tree.get(&version, &view.view(), &key(0)));
        let held = plan.wait_held();
        harness.write(&key(1), Kind::Put, b"beside");
        harness.seal_all();
        while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
        assert!(child.loaded().is_some(), "it was read by the flush into it");
        (0..3).for_each(|_| harness.publish());
        write_anew(&harness.tree.env().store, extent);
        drop(held);
        let value = late.join().expect("no panic").expect("the node is there");
        assert_eq!(value.map(|value| value.to_vec()), expected);
    });
    harness.check();
}
