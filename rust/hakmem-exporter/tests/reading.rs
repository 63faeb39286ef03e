//! The reader on this very process, which runs on HAKMEM: as it is, and with its memory damaged on the way.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hakmem_exporter::host::{Host, Settings};
use hakmem_exporter::ledger::{self, Residency};
use hakmem_exporter::live::{Page, Snapshot};
use hakmem_exporter::memory::{Fault, Memory, Running};
use hakmem_exporter::process::{mappings, Mapping};
use hakmem_exporter::{metrics, profile};

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

fn host(most_processes: usize) -> Arc<Host> {
    let patience = Duration::from_secs(120); // the machine may be busy
    Arc::new(Host::new(Settings {
        proc: PathBuf::from("/proc"),
        cgroups: PathBuf::from("/sys/fs/cgroup"),
        most_processes,
        patience,
    }))
}

/// The tests share the process that they look at: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn itself() -> (Running, u64, Vec<Mapping>) {
    let folder = Path::new("/proc/self");
    let maps = mappings(folder).unwrap();
    (Running::open(folder).unwrap(), host(1).live_page(folder, &maps).unwrap(), maps)
}

#[test]
fn this_process_is_seen_as_it_is() {
    let _alone = alone();
    let kept: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1000]).collect();
    let look = Arc::new(host(100_000).look());
    let seen = look.find(Some(std::process::id()), None, 0).expect("this process");
    let served = seen.served.as_ref().expect("HAKMEM in it");
    assert_eq!((seen.allocator, seen.version.as_str()), ("hakmem", hakmem::version()));
    let own = hakmem::stats().unwrap();
    let outside = served.snapshot.figures["bytes_live"];
    // The look's own buffers are live while it looks.
    assert!(
        outside > 20_000_000 && outside.abs_diff(own.bytes_live) < 8 << 20,
        "{outside} from outside, {} from inside",
        own.bytes_live
    );
    let ledger = served.ledger.as_ref().unwrap();
    assert!(ledger.live > 20_000_000 && ledger.sum().abs_diff(seen.kernel.resident) < seen.kernel.resident / 20, "{ledger:?}");
    for open in [false, true] {
        let text = metrics::text(&look, open).unwrap();
        assert!(text.contains("hakmem_ledger_live_bytes{service=") && text.ends_with("# EOF\n") == open);
    }
    assert!(kept.len() == 20_000);
}

extern "C" {
    fn hak_profile_start(interval: usize) -> i32;
    fn hak_profile_stop();
}

#[test]
fn sampled_blocks_count_as_live() {
    let _alone = alone();
    assert_eq!(unsafe { hak_profile_start(1) }, 0);
    let kept: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1000]).collect();
    let look = Arc::new(host(100_000).look());
    let snapshot = &look.find(Some(std::process::id()), None, 0).unwrap().served.as_ref().unwrap().snapshot;
    let (outside, own) = (snapshot.figures["bytes_live"], hakmem::stats().unwrap().bytes_live);
    unsafe { hak_profile_stop() };
    assert!(outside > 20_000_000 && outside.abs_diff(own) < 8 << 20, "{outside} from outside, {own} from inside");
    assert!(snapshot.profiled && kept.len() == 20_000);
}

#[test]
fn a_profile_has_the_labels_of_its_samples() {
    let _alone = alone();
    assert_eq!(unsafe { hak_profile_start(1) }, 0);
    let dumped = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        // A process answers when it allocates.
        scope.spawn(|| {
            let _scope = hakmem::label::scope("tenant", "a \"b\"");
            while !dumped.load(Ordering::Relaxed) {
                std::hint::black_box(vec![1; 1000]);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let found = profile::dump(&host(1), std::process::id());
        dumped.store(true, Ordering::Relaxed);
        found
    });
    unsafe { hak_profile_stop() };
    let found = found.unwrap();
    let labelled = found.sites.iter().filter(|site| site.labels.get("tenant").is_some_and(|text| text == "a \"b\""));
    assert!(labelled.clone().count() > 0 && labelled.count() < found.sites.len());
}

/// The process's memory, with some bytes changed and some places unreadable.
struct Damaged<'a> {
    memory: &'a Running,
    random: RefCell<u64>,
    one_in: u64,
}

impl Damaged<'_> {
    fn draw(&self, below: u64) -> u64 {
        let mut state = self.random.borrow_mut();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    }
}

impl Memory for Damaged<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.memory.read(address, into)?;
        let mut at = self.draw(self.one_in) as usize;
        while at < into.len() {
            into[at] = match self.draw(4) {
                0 => 0,
                1 => 0xff,
                2 => into[at] ^ (1 << self.draw(8)),
                _ => self.draw(256) as u8,
            };
            at += 1 + self.draw(self.one_in) as usize;
        }
        if self.draw(5000) == 0 {
            return Err(Fault::Ended);
        }
        Ok(())
    }
}

impl Residency for Damaged<'_> {
    fn pages(&self, _: u64, count: usize) -> Result<Vec<bool>, Fault> {
        Ok((0..count).map(|_| self.draw(2) == 0).collect())
    }
}

fn read_all(memory: &Damaged, address: u64, maps: &[Mapping]) -> Result<Snapshot, Fault> {
    let page = Page::at(memory, address)?;
    let found = page.snapshot()?;
    ledger::of(&page, &found, maps, memory)?;
    Ok(found)
}

#[test]
fn no_damage_stops_the_reader() {
    let _alone = alone();
    let (memory, address, maps) = itself();
    let (mut whole, mut refused, mut longest) = (0, 0, Duration::ZERO);
    for seed in 1..=500u64 {
        let one_in = [20, 200, 2000, 20_000, 200_000][seed as usize % 5];
        let damaged = Damaged { memory: &memory, random: RefCell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), one_in };
        let began = Instant::now();
        match read_all(&damaged, address, &maps) {
            Ok(_) => whole += 1,
            Err(_) => refused += 1,
        }
        longest = longest.max(began.elapsed());
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
    // Everything read is bounded; a loop that is not would not end at all.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
}

/// A page of another version, or none.
struct Head([u32; 2]);

impl Memory for Head {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let at = address as usize - 4096;
        into.copy_from_slice(bytes.get(at..at + into.len()).ok_or(Fault::Ended)?);
        Ok(())
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let _alone = alone();
    let of = |head| Page::at(&Head(head), 4096).err().unwrap();
    assert_eq!(of([hakmem_exporter::live::MAGIC, 7]), Fault::OtherVersion(7));
    assert_eq!(of([0, 1]), Fault::NotStarted);
    assert!(matches!(of([77, 1]), Fault::Damaged(_)));
    assert_eq!(of([hakmem_exporter::live::MAGIC, 1]), Fault::Ended);
}

#[test]
fn processes_that_end_in_the_middle_are_survived() {
    let _alone = alone();
    let host = host(100_000);
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let births = std::thread::spawn(move || {
        let mut count = 0;
        while !flag.load(Ordering::Relaxed) {
            count += i32::from(Command::new("true").status().unwrap().success());
        }
        count
    });
    for _ in 0..10 {
        assert!(host.look().find(Some(std::process::id()), None, 0).is_some_and(|seen| seen.served.is_some()));
    }
    ended.store(true, Ordering::Relaxed);
    assert!(births.join().unwrap() > 0);
}

#[test]
fn a_process_without_a_profile_says_how_to_get_one() {
    let _alone = alone();
    let refusal = profile::dump(&host(1), std::process::id()).unwrap_err();
    assert!(matches!(refusal, profile::Refusal::NotRunning), "{refusal}");
    assert!(refusal.to_string().contains("HAKMEM_PROFILE=1"));
}

#[test]
fn what_is_beyond_the_bound_is_left_out_and_counted() {
    let _alone = alone();
    let look = host(1).look();
    assert!(look.seen.len() <= 1 && look.left_out > 0 && look.left_out_resident > 0);
}
