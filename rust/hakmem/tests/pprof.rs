//! The feature pprof: what is live is in the profile, with its size and the function that asked for it.

use std::io::Read;

use hakmem::options::{Bytes, PROFILE_INTERVAL};
use hakmem::{pprof as jemalloc_pprof, Hakmem};

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[inline(never)]
fn asks_for_memory() -> Vec<Vec<u8>> {
    (0..1000).map(|_| std::hint::black_box(vec![1; 20_000])).collect()
}

/// A number of variable length of protobuf, and what follows.
fn number(mut bytes: &[u8]) -> (u64, &[u8]) {
    let (mut value, mut shift) = (0, 0);
    loop {
        value |= u64::from(bytes[0] & 127) << shift;
        let last = bytes[0] < 128;
        bytes = &bytes[1..];
        if last {
            return (value, bytes);
        }
        shift += 7;
    }
}

/// The fields of a message: numbers, and texts or messages; pprof has no others.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (key, rest) = number(bytes);
        let (value, rest) = number(rest);
        let length = if key & 7 == 2 { value as usize } else { 0 };
        found.push((key >> 3, value, &rest[..length]));
        bytes = &rest[length..];
    }
    found
}

#[tokio::test]
async fn a_profile_tells_what_is_live() {
    let mut profile = jemalloc_pprof::PROF_CTL.as_ref().unwrap().lock().await;
    assert!(!profile.activated() && profile.dump_pprof().unwrap_err().to_string().contains("HAKMEM_PROFILE=1"));
    PROFILE_INTERVAL.set(Bytes(4096)).unwrap();
    profile.activate().unwrap();
    let kept = asks_for_memory();
    drop(asks_for_memory());
    let gzipped = profile.dump_pprof().unwrap();
    profile.deactivate().unwrap();
    assert!(!profile.activated() && kept.len() == 1000);

    let mut content = Vec::new();
    flate2::read::GzDecoder::new(&gzipped[..]).read_to_end(&mut content).unwrap();
    let message = fields(&content);
    let texts: Vec<&[u8]> = message.iter().filter(|field| field.0 == 6).map(|field| field.2).collect();
    assert!(texts.contains(&&b"inuse_space"[..]));
    assert!(texts.iter().any(|text| String::from_utf8_lossy(text).contains("asks_for_memory")));
    let of_sample = |field: &(u64, u64, &[u8])| fields(field.2).iter().find(|each| each.0 == 2).map(|each| number(each.2).0);
    let live: u64 = message.iter().filter(|field| field.0 == 2).filter_map(of_sample).sum();
    assert!((19_000_000..23_000_000).contains(&live), "{live}");
}
