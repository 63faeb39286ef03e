//! User heaps from Rust: blocks of every size and alignment, limits, ends, threads, the thread's default.

use hakmem::heap::Heap;
use hakmem::Hakmem;
use std::alloc::Layout;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::thread;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

fn name(text: &'static [u8]) -> &'static CStr {
    CStr::from_bytes_with_nul(text).unwrap()
}

#[test]
fn blocks_of_every_kind() {
    let heap = Heap::options().name(name(b"kinds\0")).build().unwrap();
    for align in (0..=12).map(|n| 1usize << n) {
        for size in [0, 1, 24, 100, 5000, 70_000, 2 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = heap.allocate_zeroed(layout).unwrap();
            assert!(block.as_ptr() as usize % align == 0 && heap.holds(block.as_ptr()));
            unsafe {
                assert!((0..size).all(|n| *block.as_ptr().add(n) == 0));
                block.as_ptr().write_bytes(0x5a, size);
                let longer = Layout::from_size_align(size * 2 + 1, align).unwrap();
                let grown = heap.reallocate(block, layout, longer).unwrap();
                assert!(heap.holds(grown.as_ptr()) && (0..size).all(|n| *grown.as_ptr().add(n) == 0x5a));
                heap.deallocate(grown, longer);
            }
        }
    }
    let figures = heap.figures();
    assert_eq!((figures.live_blocks, figures.live_bytes), (0, 0));
    assert_eq!(unsafe { CStr::from_ptr(figures.name) }, name(b"kinds\0"));
}

#[test]
fn a_limit_is_none() {
    let heap = Heap::options().limit(1 << 20).build().unwrap();
    let layout = Layout::new::<[u8; 1000]>();
    let count = std::iter::from_fn(|| heap.allocate(layout)).count();
    assert!((900..=1048).contains(&count), "{count}");
    assert!(heap.figures().refused > 0 && heap.figures().used_bytes <= 1 << 20);
    heap.set_limit(0);
    assert!(heap.allocate(layout).is_some());
}

#[test]
fn spans_have_the_blocks() {
    let mut heap = Heap::new().unwrap();
    let layout = Layout::new::<[u64; 20]>();
    (0..1000).for_each(|_| assert!(heap.allocate(layout).is_some()));
    let (mut blocks, mut spans) = (0, 0);
    heap.visit_spans(|span| {
        assert!(span.size == 160 && span.bytes <= span.reached);
        blocks += span.blocks;
        true
    });
    assert_eq!(blocks, 1000);
    heap.visit_spans(|_| {
        spans += 1;
        false
    });
    assert_eq!(spans, 1);
}

#[test]
fn reset_merge_and_end() {
    let mut heap = Heap::new().unwrap();
    let layout = Layout::new::<[u64; 20]>();
    (0..1000).for_each(|_| assert!(heap.allocate(layout).is_some()));
    assert_eq!(heap.figures().live_blocks, 1000);
    heap.reset();
    assert_eq!(heap.figures().live_blocks, 0);
    let kept: NonNull<u64> = heap.allocate(layout).unwrap().cast();
    unsafe {
        kept.as_ptr().write(42);
        heap.merge_into_default().unwrap();
        assert_eq!(kept.as_ptr().read(), 42);
        std::alloc::dealloc(kept.as_ptr().cast(), layout);
    }
    assert!(hakmem::check_heap());
}

#[test]
fn threads_share_a_heap() {
    let heap = Heap::new().unwrap();
    let layout = Layout::new::<[u8; 300]>();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let block = heap.allocate(layout).unwrap();
                    unsafe { heap.deallocate(block, layout) };
                }
            });
        }
    });
    assert_eq!(heap.figures().live_blocks, 0);
}

#[test]
fn a_default_is_restored() {
    let outer: &'static Heap = Box::leak(Box::new(Heap::new().unwrap()));
    let inner = Heap::new().unwrap();
    let first = outer.become_default();
    let one = vec![1u8; 100];
    let second = unsafe { inner.become_default_for_a_while() };
    let two = vec![2u8; 100];
    drop(second);
    let three = vec![3u8; 100];
    drop(first);
    let four = vec![4u8; 100];
    assert!(outer.holds(one.as_ptr()) && inner.holds(two.as_ptr()) && outer.holds(three.as_ptr()));
    assert!(!outer.holds(four.as_ptr()) && !inner.holds(four.as_ptr()));
    drop(two);
}

#[test]
fn children_count_in_their_parent() {
    let mut parent = Heap::options().limit(2 << 20).build().unwrap();
    let layout = Layout::new::<[u8; 1000]>();
    {
        let mut one = parent.child(Heap::options().name(name(b"one\0"))).unwrap();
        let two = parent.child(Heap::options().limit(512 << 10)).unwrap();
        let leaf = one.child(Heap::options()).unwrap();
        let of_two = std::iter::from_fn(|| two.allocate(layout)).count();
        let of_leaf = std::iter::from_fn(|| leaf.allocate(layout)).count();
        assert!((400..=524).contains(&of_two) && (1200..=1573).contains(&of_leaf), "{of_two} {of_leaf}");
        assert_eq!(parent.figures().live_blocks, (of_two + of_leaf) as u64);
        assert!(parent.figures().used_bytes <= 2 << 20 && parent.figures().refused > 0);
        drop(leaf);
        assert_eq!((parent.figures().live_blocks, one.figures().live_blocks), (of_two as u64, 0));
        let block = one.allocate_zeroed(layout).unwrap();
        assert!(one.holds(block.as_ptr()) && !parent.holds(block.as_ptr()));
        one.reset();
        two.merge_into_default().unwrap();
        assert_eq!(parent.figures().live_blocks, 0);
        parent.collect();
        assert!(parent.figures().used_bytes <= 128 << 10);
        std::mem::forget(one); // ends with its parent
    }
    parent.reset();
    assert_eq!(parent.figures().used_bytes, 0);
    assert!(hakmem::check_heap());
}

#[test]
fn threads_have_children() {
    let server = Heap::new().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let request = server.child(Heap::options()).unwrap();
                    (1..50).for_each(|n| assert!(request.allocate(Layout::from_size_align(n * 100, 8).unwrap()).is_some()));
                }
            });
        }
    });
    assert_eq!(server.figures().used_bytes, 0);
}
