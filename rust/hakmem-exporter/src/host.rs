//! Looks at all processes of the host: the kernel's figures of each, HAKMEM's of those that it serves.
//!
//! A process that cannot be read costs its own figures only. One on which the kernel itself waits (its lock of mappings) is given
//! up after `PATIENCE`; the thread that waits for it is left alone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::elf::Files;
use crate::ledger::{self, Ledger, Pagemap};
use crate::live::{Page, Snapshot};
use crate::memory::{Fault, Running};
use crate::process::{self, Cgroup, Kernel, Mapping};

pub const PATIENCE: Duration = Duration::from_secs(8);
const MOST_WAITING: usize = 64;

/// HAKMEM's part of a process.
#[derive(Debug, Clone)]
pub struct Served {
    pub snapshot: Snapshot,
    pub ledger: Option<Ledger>,
}

/// One process.
#[derive(Debug, Clone)]
pub struct Seen {
    pub pid: u32,
    pub service: String,
    /// Its number among the processes of its service: a place that the next process takes over.
    pub place: usize,
    pub allocator: &'static str,
    pub version: String,
    pub kernel: Kernel,
    pub cgroup: Option<String>,
    pub served: Option<Served>,
}

/// One look at the host.
#[derive(Debug, Default)]
pub struct Look {
    pub seen: Vec<Seen>,
    pub cgroups: BTreeMap<String, Cgroup>,
    pub faults: BTreeMap<&'static str, u64>,
    pub left_out: u64,
    pub left_out_resident: u64,
    pub seconds: f64,
}

impl Look {
    /// The process with this id, or at this place of this service.
    pub fn find(&self, pid: Option<u32>, service: Option<&str>, place: usize) -> Option<&Seen> {
        self.seen.iter().find(|each| match (pid, service) {
            (Some(pid), _) => each.pid == pid,
            (None, Some(service)) => each.service == service && each.place == place,
            (None, None) => false,
        })
    }
}

/// What is asked of the host.
pub struct Settings {
    pub proc: PathBuf,
    pub cgroups: PathBuf,
    /// Processes with labels of their own; those with the most resident memory.
    pub most_processes: usize,
    /// The time of a look.
    pub patience: Duration,
}

pub struct Host {
    pub settings: Settings,
    files: Files,
    /// When the machine started, as its clock said at the first look: a clock that is set later moves no process's start.
    boot: OnceLock<f64>,
    places: Mutex<Places>,
    waiting: AtomicUsize,
}

/// Places by service; each is taken by one process, known by its id and start.
#[derive(Default)]
struct Places(HashMap<String, Vec<Option<(u32, u64)>>>);

impl Places {
    /// Frees the places of ended processes and gives the lowest free ones to new ones, the oldest first.
    fn give(&mut self, seen: &mut [Seen]) {
        let identity = |each: &Seen| (each.pid, each.kernel.start_seconds.to_bits());
        let now: HashMap<(u32, u64), usize> = seen.iter().enumerate().map(|(i, each)| (identity(each), i)).collect();
        for (service, places) in &mut self.0 {
            for place in places.iter_mut() {
                *place = place.filter(|held| now.get(held).is_some_and(|&i| seen[i].service == *service));
            }
            while places.last().is_some_and(Option::is_none) {
                places.pop();
            }
        }
        self.0.retain(|_, places| !places.is_empty());
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_by(|&a, &b| {
            seen[a].kernel.start_seconds.total_cmp(&seen[b].kernel.start_seconds).then(seen[a].pid.cmp(&seen[b].pid))
        });
        for i in order {
            let identity = identity(&seen[i]);
            let places = self.0.entry(seen[i].service.clone()).or_default();
            let held = places.iter().position(|place| *place == Some(identity));
            let place = held.or_else(|| places.iter().position(Option::is_none)).unwrap_or(places.len());
            if place == places.len() {
                places.push(None);
            }
            places[place] = Some(identity);
            seen[i].place = place;
        }
    }
}

/// A thread that looks at processes; it is counted however it ends.
struct Looking(Arc<Host>);

impl Looking {
    fn new(host: Arc<Host>) -> Looking {
        host.waiting.fetch_add(1, Ordering::Relaxed);
        Looking(host)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A process before its memory is looked at.
struct Found {
    pid: u32,
    kernel: Kernel,
    command: String,
}

impl Host {
    pub fn new(settings: Settings) -> Host {
        Host { settings, files: Files::default(), boot: OnceLock::new(), places: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    pub fn folder(&self, pid: u32) -> PathBuf {
        self.settings.proc.join(pid.to_string())
    }

    /// All processes. One look at a time is enough; the caller sees to that.
    pub fn look(self: &Arc<Host>) -> Look {
        let began = Instant::now();
        let mut look = Look::default();
        let boot = self.boot.get_or_init(|| process::boot_seconds(&self.settings.proc));
        let mut found = self.processes(*boot);
        found.sort_by_key(|each| std::cmp::Reverse(each.kernel.resident));
        for each in found.split_off(found.len().min(self.settings.most_processes)) {
            look.left_out += 1;
            look.left_out_resident += each.kernel.resident;
        }
        let mut faults: Vec<Fault> = Vec::new();
        let wanted = found.len();
        let (sender, results) = mpsc::channel();
        let queue = Arc::new(Mutex::new(VecDeque::from(found)));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        for _ in 0..threads {
            if self.waiting.load(Ordering::Relaxed) >= MOST_WAITING {
                break;
            }
            let (looking, queue, sender) = (Looking::new(Arc::clone(self)), Arc::clone(&queue), sender.clone());
            std::thread::spawn(move || {
                while let Some(next) = queue.lock().ok().and_then(|mut queue| queue.pop_front()) {
                    if sender.send(looking.0.one(next)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut answered = 0;
        while let Ok((seen, fault)) = results.recv_timeout(self.settings.patience.saturating_sub(began.elapsed())) {
            answered += 1;
            look.seen.extend(seen);
            faults.extend(fault);
        }
        for fault in faults.iter().filter(|fault| **fault != Fault::NotHakmem) {
            *look.faults.entry(fault.word()).or_default() += 1;
        }
        if answered < wanted {
            look.faults.insert("no_answer", (wanted - answered) as u64);
        }
        for path in look.seen.iter().filter_map(|each| each.cgroup.clone()) {
            if !look.cgroups.contains_key(&path) {
                if let Some(cgroup) = process::cgroup(&self.settings.cgroups, &path) {
                    look.cgroups.insert(path, cgroup);
                }
            }
        }
        if let Ok(mut places) = self.places.lock() {
            places.give(&mut look.seen);
        }
        look.seen.sort_by(|a, b| (&a.service, a.place).cmp(&(&b.service, b.place)));
        look.seconds = began.elapsed().as_secs_f64();
        look
    }

    fn processes(&self, boot: f64) -> Vec<Found> {
        let Ok(folders) = std::fs::read_dir(&self.settings.proc) else { return Vec::new() };
        let pid = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
        let known = |pid: u32| process::kernel(&self.folder(pid), boot).map(|(kernel, command)| Found { pid, kernel, command });
        folders.filter_map(pid).filter_map(known).collect()
    }

    /// One process, and why HAKMEM's figures are missing. None: it has ended.
    fn one(&self, mut found: Found) -> (Option<Seen>, Option<Fault>) {
        let folder = self.folder(found.pid);
        process::add_status(&folder, &mut found.kernel);
        let cgroup = process::cgroup_path(&folder);
        let service = cgroup.as_deref().and_then(process::unit).map_or(found.command, |unit| process_name(unit));
        let mut seen = Seen {
            pid: found.pid,
            service,
            place: 0,
            allocator: "unknown",
            version: String::new(),
            kernel: found.kernel,
            cgroup,
            served: None,
        };
        let maps = match process::mappings(&folder) {
            Ok(maps) if maps.is_empty() => return (None, Some(Fault::Ended)),
            Ok(maps) => maps,
            Err(Fault::Ended) => return (None, Some(Fault::Ended)),
            Err(fault) => return (Some(seen), Some(fault)),
        };
        match self.served(&folder, &maps, &mut seen.kernel) {
            Ok(served) => {
                seen.allocator = "hakmem";
                seen.version = served.snapshot.version.clone();
                seen.served = Some(served);
                (Some(seen), None)
            }
            Err(Fault::NotHakmem) => {
                (seen.allocator, seen.version) = process::allocator(&maps);
                process::add_rollup(&folder, &mut seen.kernel);
                (Some(seen), Some(Fault::NotHakmem))
            }
            Err(fault) => {
                // It runs on HAKMEM, as far as can be told.
                seen.allocator = "hakmem";
                process::add_rollup(&folder, &mut seen.kernel);
                (Some(seen), Some(fault))
            }
        }
    }

    fn served(&self, folder: &Path, maps: &[Mapping], kernel: &mut Kernel) -> Result<Served, Fault> {
        let address = self.live_page(folder, maps)?;
        let memory = Running::open(folder)?;
        let page = Page::at(&memory, address)?;
        let snapshot = page.snapshot()?;
        let resident = process::resident_mappings(folder, kernel)?;
        let ledger = ledger::of(&page, &snapshot, &resident, &Pagemap::open(folder)?)?;
        Ok(Served { snapshot, ledger })
    }

    /// Where the process has its `hak_live`.
    pub fn live_page(&self, folder: &Path, maps: &[Mapping]) -> Result<u64, Fault> {
        // Loaders map privately; a shared mapping is one of a reader, such as a debugger.
        let of_file = |each: &&Mapping| each.path.starts_with('/') && each.inode != 0 && each.offset == 0 && each.private;
        let mut seen = Vec::new();
        let mut candidates: Vec<&Mapping> = Vec::new();
        for each in maps.iter().filter(of_file) {
            if !seen.contains(&&each.path) {
                seen.push(&each.path);
                candidates.push(each);
            }
        }
        candidates.sort_by_key(|each| !each.path.rsplit('/').next().unwrap_or("").contains("hakmem"));
        let address = |each: &Mapping| self.files.image_of(folder, each)?.symbol_in(each);
        candidates.into_iter().find_map(address).ok_or(Fault::NotHakmem)
    }
}

fn process_name(unit: &str) -> String {
    crate::memory::printable(unit.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, start: f64) -> Seen {
        Seen {
            pid,
            service: "web".into(),
            place: 0,
            allocator: "glibc",
            version: String::new(),
            kernel: Kernel { start_seconds: start, ..Kernel::default() },
            cgroup: None,
            served: None,
        }
    }

    #[test]
    fn a_place_is_kept_while_its_process_runs_and_then_given_away() {
        let mut places = Places::default();
        let mut first = [seen(10, 1.0), seen(11, 2.0), seen(12, 3.0)];
        places.give(&mut first);
        assert_eq!(first.iter().map(|each| each.place).collect::<Vec<_>>(), [0, 1, 2]);
        // 11 has ended; 12 keeps its place, and a new process with the same id as the ended one is another process.
        let mut second = [seen(12, 3.0), seen(11, 9.0), seen(10, 1.0)];
        places.give(&mut second);
        assert_eq!(second.iter().map(|each| (each.pid, each.place)).collect::<Vec<_>>(), [(12, 2), (11, 1), (10, 0)]);
        let mut third = [seen(10, 1.0)];
        places.give(&mut third);
        assert_eq!(places.0["web"].len(), 1);
        places.give(&mut []);
        assert!(places.0.is_empty());
    }
}
