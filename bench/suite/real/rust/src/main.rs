//! records COUNT: maps, strings, boxed trees, and threads with channels; Rust's default allocator, which is malloc.
//! Prints a digest of what it computed.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

enum Tree {
    Leaf(u64),
    Node(Box<Tree>, Box<Tree>),
}

fn plant(random: &mut Random, depth: u32) -> Tree {
    if depth == 0 || random.below(12) == 0 {
        return Tree::Leaf(random.below(1000));
    }
    Tree::Node(Box::new(plant(random, depth - 1)), Box::new(plant(random, depth - 1)))
}

fn sum(tree: &Tree) -> u64 {
    match tree {
        Tree::Leaf(value) => *value,
        Tree::Node(left, right) => sum(left) + sum(right),
    }
}

fn mix(digest: u64, value: u64) -> u64 {
    (digest ^ value).wrapping_mul(0x9fb21c651e98df25).rotate_left(29)
}

/// Words counted in a map, sorted in another, joined and split again.
fn words(count: u64, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut seen: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..count {
        seen.entry(format!("word-{}", random.below(count / 8 + 1))).or_default().push(i);
    }
    let sorted: BTreeMap<&String, usize> = seen.iter().map(|(word, places)| (word, places.len())).collect();
    let text = sorted.iter().map(|(word, n)| format!("{word}={n}")).collect::<Vec<_>>().join(";");
    text.split(';').fold(0, |digest, part| mix(digest, part.len() as u64 + part.as_bytes()[part.len() - 1] as u64))
}

fn trees(count: u64, seed: u64) -> u64 {
    let mut random = Random(seed);
    (0..count / 400).fold(0, |digest, _| mix(digest, sum(&plant(&mut random, 9))))
}

/// Owned strings go from one thread to another.
fn messages(count: u64) -> u64 {
    let (sender, receiver) = mpsc::sync_channel::<Vec<String>>(64);
    let producer = thread::spawn(move || {
        let mut random = Random(7);
        for i in 0..count / 50 {
            let batch = (0..50).map(|j| "m".repeat((random.below(120) + j) as usize) + &i.to_string()).collect();
            sender.send(batch).expect("the receiver is there");
        }
    });
    let digest = receiver.iter().fold(0, |digest, batch| mix(digest, batch.iter().map(|m| m.len() as u64).sum()));
    producer.join().expect("the producer ends");
    digest
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or_else(|| {
        eprintln!("usage: records COUNT");
        std::process::exit(2);
    });
    let workers: Vec<_> = (0..2).map(|i| thread::spawn(move || mix(words(count, i), trees(count, i)))).collect();
    let digest = mix(messages(count), 0);
    let digest = workers.into_iter().fold(digest, |digest, each| mix(digest, each.join().expect("it ends")));
    println!("records check={digest:016x}");
}
