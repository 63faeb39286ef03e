//! Crates of others on the global allocator, and in a user heap by the feature `allocator-api2`.

use bytes::{Bytes, BytesMut};
use hakmem::Hakmem;
use hashbrown::HashMap;
use std::thread;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[test]
fn bytes_are_shared_between_threads() {
    let mut text = BytesMut::new();
    (0..10_000u32).for_each(|n| text.extend_from_slice(&n.to_le_bytes()));
    let whole: Bytes = text.freeze();
    let parts: Vec<_> = (0..8).map(|n| whole.slice(n * 5000..(n + 1) * 5000)).collect();
    drop(whole);
    let sums: Vec<u64> = parts.into_iter().map(|part| thread::spawn(move || part.iter().map(|&b| u64::from(b)).sum())).map(|t| t.join().unwrap()).collect();
    assert_eq!(sums.iter().sum::<u64>(), (0..10_000u32).flat_map(u32::to_le_bytes).map(u64::from).sum());
    assert!(hakmem::check_heap());
}

#[test]
fn maps_grow_and_shrink() {
    let mut map: HashMap<String, Vec<u32>> = HashMap::new();
    for n in 0..20_000u32 {
        map.entry(format!("key {}", n % 5000)).or_default().push(n);
    }
    map.retain(|_, values| values[0] % 2 == 0);
    map.shrink_to_fit();
    assert_eq!((map.len(), map["key 42"].len()), (2500, 4));
    assert!(hakmem::check_heap());
}

#[cfg(feature = "allocator-api2")]
mod in_a_heap {
    use allocator_api2::{boxed::Box, vec::Vec};
    use hakmem::heap::Heap;
    use hashbrown::{DefaultHashBuilder, HashMap};

    #[test]
    fn collections() {
        let heap = Heap::options().limit(64 << 20).build().unwrap();
        let mut numbers = Vec::new_in(&heap);
        (0..100_000u64).for_each(|n| numbers.push(n));
        numbers.truncate(1000);
        numbers.shrink_to_fit();
        assert!(heap.holds(numbers.as_ptr()) && numbers.iter().sum::<u64>() == 499_500);
        let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), &heap);
        (0..10_000u64).for_each(|n| drop(map.insert(n, Box::new_in([n; 8], &heap))));
        assert!(map.values().all(|each| heap.holds(&**each)) && map[&77][7] == 77);
        assert!(heap.figures().live_blocks > 10_000);
        drop(map);
        drop(numbers);
        assert_eq!(heap.figures().live_blocks, 0);
    }

    #[test]
    fn a_limit_is_an_error() {
        let heap = Heap::options().limit(1 << 20).build().unwrap();
        let mut numbers: Vec<u64, _> = Vec::new_in(&heap);
        assert!(numbers.try_reserve(1 << 20).is_err());
        numbers.push(1);
        assert_eq!(numbers[0], 1);
    }
}
