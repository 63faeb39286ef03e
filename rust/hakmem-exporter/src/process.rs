//! A process as /proc and its control group show it, whatever its allocator.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::memory::{printable, Fault};

/// One mapping; `resident` only where smaps was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub executable: bool,
    pub private: bool,
    pub offset: u64,
    pub device: String,
    pub inode: u64,
    pub path: String,
    pub resident: u64,
}

/// What the kernel counts of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kernel {
    pub resident: u64,
    pub proportional: u64,
    pub private: u64,
    pub swap: u64,
    pub page_tables: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub threads: u64,
    pub start_seconds: f64,
    /// Whether proportional and private memory could be read.
    pub has_proportional: bool,
}

/// A control group's memory (version 2).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cgroup {
    pub path: String,
    pub current: Option<u64>,
    pub limit: Option<u64>,
    pub events: BTreeMap<String, u64>,
    /// Seconds in which some, and all, of its tasks waited for memory.
    pub stalled: Option<(f64, f64)>,
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// A line of /proc/PID/maps.
pub fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let device = words.next()?.to_string();
    let inode = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or("").trim_start().to_string();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let has = |place: usize, letter: u8| permissions.as_bytes().get(place) == Some(&letter);
    let (executable, private) = (has(2, b'x'), has(3, b'p'));
    Some(Mapping { start, end, executable, private, offset, device, inode, path, resident: 0 })
}

fn kilobytes(line: &str) -> u64 {
    line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).map_or(0, |value| value.saturating_mul(1024))
}

/// Adds a line of smaps or smaps_rollup to the sums.
fn add_smaps_line(line: &str, into: &mut Kernel) {
    match line.split_once(':').map(|(name, _)| name) {
        Some("Rss") => into.resident = into.resident.saturating_add(kilobytes(line)),
        Some("Pss") => into.proportional = into.proportional.saturating_add(kilobytes(line)),
        Some("Private_Clean" | "Private_Dirty") => into.private = into.private.saturating_add(kilobytes(line)),
        Some("Swap") => into.swap = into.swap.saturating_add(kilobytes(line)),
        _ => {}
    }
}

fn lines(path: &Path, mut each: impl FnMut(&str)) -> Result<(), Fault> {
    let file = fs::File::open(path).map_err(|error| Fault::of(&error))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => each(String::from_utf8_lossy(&line).trim_end_matches('\n')),
            Err(error) => return Err(Fault::of(&error)),
        }
    }
}

pub fn mappings(folder: &Path) -> Result<Vec<Mapping>, Fault> {
    let mut found = Vec::new();
    lines(&folder.join("maps"), |line| found.extend(mapping(line)))?;
    Ok(found)
}

/// All mappings with their resident bytes; their sums go into `kernel`.
pub fn resident_mappings(folder: &Path, kernel: &mut Kernel) -> Result<Vec<Mapping>, Fault> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut sums = Kernel::default();
    lines(&folder.join("smaps"), |line| {
        // The lines of a mapping's figures begin with a capital letter.
        if line.as_bytes().first().is_some_and(u8::is_ascii_uppercase) {
            add_smaps_line(line, &mut sums);
            if let (true, Some(last)) = (line.starts_with("Rss:"), found.last_mut()) {
                last.resident = kilobytes(line);
            }
        } else {
            found.extend(mapping(line));
        }
    })?;
    take_sums(kernel, &sums);
    Ok(found)
}

fn take_sums(kernel: &mut Kernel, sums: &Kernel) {
    kernel.resident = sums.resident;
    kernel.proportional = sums.proportional;
    kernel.private = sums.private;
    kernel.swap = sums.swap;
    kernel.has_proportional = true;
}

/// The sums alone, for a process of which no mapping is needed.
pub fn add_rollup(folder: &Path, kernel: &mut Kernel) {
    let mut sums = Kernel::default();
    if lines(&folder.join("smaps_rollup"), |line| add_smaps_line(line, &mut sums)).is_ok() {
        take_sums(kernel, &sums);
    }
}

/// The time at which the machine started, in seconds since 1970.
pub fn boot_seconds(proc: &Path) -> f64 {
    let text = fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix("btime "));
    found.and_then(|word| word.trim().parse().ok()).unwrap_or(0.0)
}

/// The kernel's figures from stat; None: it has ended, is a zombie, or belongs to the kernel.
pub fn kernel(folder: &Path, boot: f64) -> Option<(Kernel, String)> {
    let stat = fs::read(folder.join("stat")).ok()?;
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let command = printable(stat.get(open + 1..close)?);
    let rest = String::from_utf8_lossy(stat.get(close + 2..)?).into_owned();
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let word = |place: usize| words.get(place).and_then(|each| each.parse::<u64>().ok());
    // The fields of proc(5), from the third on; a kernel thread has no memory of its own.
    if words.first().is_none_or(|state| matches!(*state, "Z" | "X")) || word(20)? == 0 {
        return None;
    }
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let found = Kernel {
        resident: word(21)?.saturating_mul(rustix::param::page_size() as u64),
        minor_faults: word(7)?,
        major_faults: word(9)?,
        user_seconds: word(11)? as f64 / ticks,
        system_seconds: word(12)? as f64 / ticks,
        threads: word(17)?,
        start_seconds: boot + word(19)? as f64 / ticks,
        ..Kernel::default()
    };
    Some((found, command))
}

/// Adds what status alone has.
pub fn add_status(folder: &Path, kernel: &mut Kernel) {
    let _ = lines(&folder.join("status"), |line| {
        if line.starts_with("VmPTE:") {
            kernel.page_tables = kilobytes(line);
        } else if line.starts_with("VmSwap:") {
            kernel.swap = kilobytes(line);
        }
    });
}

/// The path of the control group of version 2, or of version 1's memory controller.
pub fn cgroup_path(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join("cgroup")).ok()?;
    let of = |wanted: &dyn Fn(&str, &str) -> bool| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(number, names).then(|| path.to_string())
        })
    };
    of(&|_, names| names.split(',').any(|name| name == "memory")).or_else(|| of(&|number, _| number == "0"))
}

/// The systemd unit in a control group's path: the innermost service that is not a user's manager.
pub fn unit(path: &str) -> Option<&str> {
    let service = |part: &&str| part.ends_with(".service") && !part.starts_with("user@");
    path.split('/').rfind(service).map(|part| part.trim_end_matches(".service"))
}

/// The group's figures; a group without a memory controller has none.
pub fn cgroup(root: &Path, path: &str) -> Option<Cgroup> {
    if path == "/" || path.contains("..") {
        return None;
    }
    let folder: PathBuf = root.join(path.trim_start_matches('/'));
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| text(name).and_then(|content| content.trim().parse::<u64>().ok());
    let mut found =
        Cgroup { path: path.to_string(), current: number("memory.current"), limit: number("memory.max"), ..Cgroup::default() };
    for line in text("memory.events").unwrap_or_default().lines() {
        if let Some((name, value)) = line.split_once(' ') {
            if let ("low" | "high" | "max" | "oom" | "oom_kill", Ok(count)) = (name, value.trim().parse()) {
                found.events.insert(name.to_string(), count);
            }
        }
    }
    found.stalled = text("memory.pressure").and_then(|content| stalled(&content));
    (found.current.is_some() || found.stalled.is_some()).then_some(found)
}

fn stalled(content: &str) -> Option<(f64, f64)> {
    let total = |kind: &str| {
        let line = content.lines().find(|line| line.starts_with(kind))?;
        let micros = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
        micros.parse::<u64>().ok().map(|value| value as f64 / 1e6)
    };
    Some((total("some")?, total("full").unwrap_or(0.0)))
}

/// Libraries by a part of their file's name, and the allocator's name.
const ALLOCATORS: [(&str, &str); 7] = [
    ("libjemalloc", "jemalloc"),
    ("libmimalloc", "mimalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libsnmallocshim", "snmalloc"),
    ("librpmalloc", "rpmalloc"),
    ("ld-musl", "musl"),
    ("libc.so", "glibc"),
];

/// The allocator that another process's mapped files suggest, and its version as far as the file's name has it. One that is linked
/// into the program is not seen, as is said in docs/fleet.md.
pub fn allocator(mappings: &[Mapping]) -> (&'static str, String) {
    for (part, name) in ALLOCATORS {
        let file = mappings.iter().map(|each| each.path.rsplit('/').next().unwrap_or("")).find(|file| file.starts_with(part));
        if let Some(file) = file {
            let version =
                if matches!(name, "musl" | "glibc") { "" } else { file.split_once(".so.").map_or("", |(_, rest)| rest) };
            return (name, printable(version.trim_end_matches(" (deleted)").as_bytes()));
        }
    }
    ("unknown", String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_becomes_a_mapping() {
        let found = mapping("7f10a000-7f10b000 r-xp 00002000 fe:01 131      /usr/lib/a b.so (deleted)").unwrap();
        assert_eq!((found.start, found.end, found.offset, found.inode), (0x7f10a000, 0x7f10b000, 0x2000, 131));
        assert!(found.executable && found.private);
        assert_eq!(found.path, "/usr/lib/a b.so (deleted)");
        assert_eq!(mapping("7ffd-8000 rw-p 0 00:00 0").unwrap().path, "");
        assert_eq!(mapping("Rss:  4 kB"), None);
    }

    #[test]
    fn a_unit_is_the_innermost_service() {
        assert_eq!(unit("/system.slice/redis.service"), Some("redis"));
        assert_eq!(unit("/user.slice/user-1.slice/user@1.service/app.slice/web.service"), Some("web"));
        assert_eq!(unit("/user.slice/user-1.slice/user@1.service/init.scope"), None);
        assert_eq!(unit("/"), None);
    }

    #[test]
    fn pressure_is_in_seconds() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=20\n";
        assert_eq!(stalled(text), Some((1.5, 0.00002)));
        assert_eq!(stalled("nonsense"), None);
    }

    #[test]
    fn an_allocator_is_known_by_its_file() {
        let of = |path: &str| allocator(&[Mapping { path: path.into(), ..Mapping::default() }]);
        assert_eq!(of("/usr/lib/libjemalloc.so.2"), ("jemalloc", "2".into()));
        assert_eq!(of("/lib/x86_64-linux-gnu/libc.so.6"), ("glibc", String::new()));
        assert_eq!(of("/usr/bin/static"), ("unknown", String::new()));
    }

    #[test]
    fn this_process_has_figures() {
        let (mut found, command) = kernel(Path::new("/proc/self"), 0.0).unwrap();
        add_status(Path::new("/proc/self"), &mut found);
        assert!(found.page_tables > 0 && found.resident > 0 && found.threads > 0 && found.minor_faults > 0);
        assert!(!command.is_empty());
        let mut sums = found.clone();
        let all = resident_mappings(Path::new("/proc/self"), &mut sums).unwrap();
        assert_eq!(all.iter().map(|each| each.resident).sum::<u64>(), sums.resident);
        assert!(sums.private <= sums.resident && sums.proportional > 0);
    }
}
