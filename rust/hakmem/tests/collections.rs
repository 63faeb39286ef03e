//! The global allocator under what programs do with it: collections, threads, alignments, zeroed and growing blocks.

use hakmem::{options, Hakmem};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::{mpsc, Mutex, MutexGuard, PoisonError};
use std::thread;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

/// Statistics are those of the process, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn blocks_come_from_the_library() {
    let _alone = alone();
    let text = String::from("a text of thirty characters ..");
    assert!(hakmem::usable_size(text.as_ptr()) >= text.capacity());
    let before = hakmem::stats().unwrap();
    let kept: Vec<Box<[u8; 100]>> = (0..10_000).map(|n| Box::new([n as u8; 100])).collect();
    let after = hakmem::stats().unwrap();
    assert!(after.bytes_live >= before.bytes_live + 1_000_000, "{} {}", before.bytes_live, after.bytes_live);
    assert!(kept.iter().enumerate().all(|(n, block)| block[99] == n as u8));
}

#[test]
fn every_alignment_and_size() {
    let _alone = alone();
    for align in (0..=16).map(|n| 1usize << n) {
        for size in [1, 7, 16, 100, 1024, 5000, 70_000, 3 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                let block = GLOBAL.alloc_zeroed(layout);
                assert!(!block.is_null() && block as usize % align == 0);
                assert!((0..size).step_by(97).all(|n| *block.add(n) == 0));
                block.write_bytes(0x5a, size);
                let grown = GLOBAL.realloc(block, layout, size * 2);
                assert!(!grown.is_null() && grown as usize % align == 0);
                assert!((0..size).step_by(97).all(|n| *grown.add(n) == 0x5a));
                GLOBAL.dealloc(grown, Layout::from_size_align(size * 2, align).unwrap());
            }
        }
    }
    assert!(hakmem::check_heap());
}

#[test]
fn threads_hand_blocks_on() {
    let _alone = alone();
    let (give, take) = mpsc::channel::<HashMap<String, Vec<u64>>>();
    let makers: Vec<_> = (0..4)
        .map(|maker| {
            let give = give.clone();
            thread::spawn(move || {
                for round in 0..200u64 {
                    give.send((0..20).map(|n| (format!("{maker}/{round}/{n}"), vec![round; n])).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(give);
    let mut sums = BTreeMap::new();
    for each in take {
        for (name, values) in each {
            sums.insert(name, values.len());
        }
    }
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    assert_eq!(sums.len(), 4 * 200 * 20);
    assert!(hakmem::check_heap());
}

#[test]
fn options_have_types() {
    let _alone = alone();
    assert_eq!(options::DIRTY_LIMIT.name(), "dirty_limit");
    options::DIRTY_LIMIT.set(options::Bytes(8 << 20)).unwrap();
    assert_eq!(options::DIRTY_LIMIT.get(), Ok(options::Bytes(8 << 20)));
    assert_eq!(options::DIRTY_LIMIT.origin(), "api");
    assert_eq!(options::BACKGROUND.set("perhaps"), Err(hakmem::Error(22)));
    assert_eq!(options::HARDEN.set("1"), Err(hakmem::Error(1)));
    options::STATS_LEDGER.set(true).unwrap();
    assert_eq!(options::STATS_LEDGER.get(), Ok(true));
}

#[test]
fn memory_goes_back() {
    let _alone = alone();
    let large: Vec<Vec<u8>> = (0..64).map(|_| vec![1u8; 1 << 20]).collect();
    drop(large);
    hakmem::collect();
    let ledger = hakmem::ledger().unwrap();
    assert!(ledger.ledger_sum > 0 && ledger.flags & hakmem::sys::HAK_STATS_HAS_LEDGER != 0);
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}
