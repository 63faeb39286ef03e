//! The heap profile of a running process (docs/profiling.md): asks the library for a dump, and reads it. A process that was started
//! with HAKMEM_PROFILE=ready has its profile switched on by the first request; nothing is switched on in any other.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{fchown, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{mkdirat, open, openat, openat2, unlinkat, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use serde::Deserialize;

use crate::host::Host;
use crate::live::Page;
use crate::memory::{Fault, Memory, Running};
use crate::process::{mapping, mappings, Mapping};

const ANSWER: Duration = Duration::from_secs(10);
const DUMP: &str = "profile.json";
const MOST_BYTES: u64 = 64 << 20;

/// Why there is no profile.
#[derive(Debug)]
pub enum Refusal {
    Unreadable(Fault),
    /// No profile runs, and the process was not started to begin one.
    NotRunning,
    NoAnswer,
    Failed(String),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Unreadable(fault)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Unreadable(fault) => fault.fmt(f),
            Refusal::NotRunning => {
                write!(f, "no profile runs: start the process with HAKMEM_PROFILE=1, or with HAKMEM_PROFILE=ready HAKMEM_STATS_SIGNAL=N")
            }
            Refusal::NoAnswer => {
                write!(
                    f,
                    "the process has not answered for {} s: it answers when it allocates, or at HAKMEM_STATS_SIGNAL",
                    ANSWER.as_secs()
                )
            }
            Refusal::Failed(why) => write!(f, "{why}"),
        }
    }
}

/// A dump as the library writes it; counts are of samples.
#[derive(Debug, Deserialize)]
pub struct Dump {
    pub interval: u64,
    pub sites: Vec<Site>,
    maps: String,
}

#[derive(Debug, Deserialize)]
pub struct Site {
    pub frames: Vec<u64>,
    pub allocated: (i64, i64), // samples, and their requested bytes
    freed: (i64, i64),
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Site {
    pub fn live(&self) -> (i64, i64) {
        (self.allocated.0.wrapping_sub(self.freed.0), self.allocated.1.wrapping_sub(self.freed.1))
    }
}

impl Dump {
    /// The executable mappings of files.
    pub fn mappings(&self) -> Vec<Mapping> {
        self.maps.lines().filter_map(mapping).filter(|each| each.executable && each.path.starts_with('/')).collect()
    }
}

/// Blocks and bytes that these samples stand for: one block in 1 - exp(-size / interval) is sampled.
pub fn estimate((count, bytes): (i64, i64), interval: u64) -> (i64, i64) {
    if count <= 0 || bytes <= 0 {
        return (count.max(0), 0);
    }
    let mean = bytes as f64 / count as f64;
    let chance = if interval <= 1 { 1.0 } else { -(-mean / interval as f64).exp_m1() };
    ((count as f64 / chance).round() as i64, (bytes as f64 / chance).round() as i64)
}

/// A process that is asked.
struct Asked<'a> {
    page: Page<'a>,
    memory: &'a Running,
    pidfd: OwnedFd,
}

impl Asked<'_> {
    fn at(&self, name: &str) -> Result<u64, Fault> {
        Ok(self.page.root("profile")?.wrapping_add(self.page.number(&format!("profile_{name}"))? as u64))
    }

    fn half(&self, name: &str) -> Result<u32, Fault> {
        self.memory.half(self.at(name)?)
    }

    fn request(&self, what: &str) -> Result<(), Refusal> {
        let (before, signal) = (self.half("answered")?, self.half("signal")?);
        // While a profile counts, this makes the next call of malloc look for a request.
        let former = self.half("malloc_counts")?;
        if self.half("counts")? != 0 {
            self.memory.write(self.at("malloc_counts")?, &0u32.to_ne_bytes())?;
        }
        let number = self.page.number(&format!("profile_{what}"))? as u32;
        self.memory.write(self.at("request")?, &number.to_ne_bytes())?;
        if let Some(signal) = Signal::from_named_raw(signal as i32) {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
        let deadline = Instant::now() + ANSWER;
        while self.half("answered")? == before {
            if Instant::now() > deadline {
                // Withdrawn, so that it is not served later.
                self.memory.write(self.at("request")?, &0u32.to_ne_bytes())?;
                if self.half("counts")? != 0 {
                    self.memory.write(self.at("malloc_counts")?, &former.to_ne_bytes())?;
                }
                return Err(Refusal::NoAnswer);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        match self.half("result")? {
            0 => Ok(()),
            code => Err(Refusal::Failed(std::io::Error::from_raw_os_error(code as i32).to_string())),
        }
    }
}

/// A new folder in which the process may write, in its own /tmp. It is removed when dropped. The process may change its file system
/// meanwhile, so nothing is looked up twice, and nothing outside of its root is reached.
struct Folder {
    temporary: OwnedFd,
    name: String,
    folder: OwnedFd,
}

impl Folder {
    fn new(process: &Path) -> Result<Folder, Refusal> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
        let name = format!("hakmem-exporter-{}-{number}-{nanos:x}", std::process::id());
        let failed = |error: std::io::Error| Refusal::Failed(format!("no folder for the profile in the process's /tmp: {error}"));
        let temporary = temporary(&process.join("root")).map_err(|error| failed(error.into()))?;
        mkdirat(&temporary, &name, Mode::RWXU).map_err(|error| failed(error.into()))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = openat(&temporary, &name, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let folder = Folder { temporary, name, folder };
        let owner = fs::metadata(process).map_err(failed)?;
        if owner.uid() != rustix::process::geteuid().as_raw() {
            fchown(&folder.folder, Some(owner.uid()), Some(owner.gid())).map_err(failed)?;
        }
        Ok(folder)
    }

    /// As the process sees it.
    fn theirs(&self) -> String {
        format!("/tmp/{}", self.name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = unlinkat(&self.folder, DUMP, AtFlags::empty());
        let _ = unlinkat(&self.temporary, &self.name, AtFlags::REMOVEDIR);
    }
}

/// The folder /tmp below a root; its links lead no further than that root. Where the kernel has no such lookup it may be no link.
fn temporary(root: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let root = open(root, flags, Mode::empty())?;
    match openat2(&root, "tmp", flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => openat(&root, "tmp", flags | OFlags::NOFOLLOW, Mode::empty()),
        found => found,
    }
}

/// The profile of a process up to now.
pub fn dump(host: &Host, pid: u32) -> Result<Dump, Refusal> {
    let process = host.folder(pid);
    let memory = Running::open_to_write(&process)?;
    let address = host.live_page(&process, &mappings(&process)?)?;
    let pid = Pid::from_raw(pid as i32).ok_or(Fault::Ended)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Fault::Ended)?;
    let asked = Asked { page: Page::at(&memory, address)?, memory: &memory, pidfd };
    if !asked.page.is_profiled()? {
        if asked.half("signal")? == 0 {
            return Err(Refusal::NotRunning);
        }
        asked.request("start")?;
    }
    let folder = Folder::new(&process)?;
    let mut path = format!("{}/{DUMP}", folder.theirs()).into_bytes();
    path.push(0);
    if path.len() > asked.page.number("profile_path_size")? {
        return Err(Refusal::Failed("the dump's name is too long".to_string()));
    }
    memory.write(asked.at("path")?, &path)?;
    asked.request("dump")?;
    read(&folder.folder, DUMP)
}

fn read(folder: &OwnedFd, name: &str) -> Result<Dump, Refusal> {
    let failed = |why: &dyn std::fmt::Display| Refusal::Failed(format!("the dump cannot be read: {why}"));
    // The process may put anything there at any time, a link or a pipe too.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = fs::File::from(openat(folder, name, flags, Mode::empty()).map_err(|error| failed(&error))?);
    if !file.metadata().is_ok_and(|about| about.is_file() && about.len() <= MOST_BYTES) {
        return Err(failed(&"it is no file of a profile's size"));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    // A label is any bytes that the program chose.
    serde_json::from_str(&String::from_utf8_lossy(&bytes)).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_more_the_smaller_their_blocks_are() {
        assert_eq!(estimate((3, 3 << 20), 1), (3, 3 << 20));
        let (blocks, bytes) = estimate((10, 640), 512 << 10);
        assert!((blocks as f64 / (10.0 * (512 << 10) as f64 / 64.0) - 1.0).abs() < 0.01);
        assert_eq!(bytes / blocks, 64);
        assert_eq!(estimate((-1, 5), 1), (0, 0));
        assert_eq!(estimate((2, 0), 512), (2, 0));
    }

    #[test]
    fn what_the_process_puts_in_the_dump_s_place_is_not_read() {
        let folder = std::env::temp_dir().join(format!("hakmem-exporter-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
        let opened = open(&folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for name in ["link", "pipe", "nothing"] {
            assert!(matches!(read(&opened, name), Err(Refusal::Failed(_))), "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_label_need_not_be_utf_8() {
        let folder = std::env::temp_dir().join(format!("hakmem-exporter-label-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut text = br#"{"interval": 512, "sites": [{"frames": [4096], "allocated": [3, 300], "freed": [0, 0], "peak": [3, 300], "labels": {"tenant": "a_"}}], "maps": "", "pid": 4}"#.to_vec();
        let at = text.windows(2).position(|two| two == b"a_").unwrap() + 1;
        text[at] = 0xff;
        fs::write(folder.join(DUMP), text).unwrap();
        let opened = open(&folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(read(&opened, DUMP).unwrap().sites[0].labels["tenant"], "a\u{fffd}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_container_s_links_do_not_lead_out_of_it() {
        let base = std::env::temp_dir().join(format!("hakmem-exporter-root-{}", std::process::id()));
        let (process, outside) = (base.join("process"), base.join("outside"));
        fs::create_dir_all(process.join("root/var/tmp")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, process.join("root/tmp")).unwrap();
        assert!(matches!(Folder::new(&process), Err(Refusal::Failed(_))));
        fs::remove_file(process.join("root/tmp")).unwrap();
        std::os::unix::fs::symlink("../../../var/tmp", process.join("root/tmp")).unwrap();
        let made = Folder::new(&process);
        if let Ok(folder) = &made {
            assert!(process.join("root/var/tmp").join(&folder.name).is_dir());
        }
        drop(made);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(fs::read_dir(process.join("root/var/tmp")).unwrap().count(), 0);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_dump_is_read() {
        let text = r#"{"interval": 512, "sites": [{"frames": [4096], "allocated": [3, 300], "freed": [1, 100], "peak": [1, 2]}],
                       "maps": "1000-2000 r-xp 0 00:01 7 /bin/x\n3000-4000 rw-p 0 00:00 0\n", "pid": 4}"#;
        let found: Dump = serde_json::from_str(text).unwrap();
        assert_eq!(found.sites[0].live(), (2, 200));
        assert_eq!(found.mappings().len(), 1);
    }
}
