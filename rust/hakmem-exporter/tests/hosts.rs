//! Hosts that are not as one wishes: very many processes, a clock that is set, live pages that are damaged or of another version, no
//! rights. The first two are folders that look like /proc.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hakmem_exporter::host::{Host, Settings};
use hakmem_exporter::memory::Fault;
use hakmem_exporter::metrics;
use hakmem_exporter::profile::{self, Refusal};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("hakmem-exporter-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn host(proc: &Path, most_processes: usize) -> Arc<Host> {
    let (proc, cgroups) = (proc.to_path_buf(), PathBuf::from("/nowhere"));
    Arc::new(Host::new(Settings { proc, cgroups, most_processes, patience: Duration::from_secs(120) }))
}

/// A /proc of `count` processes that all look like this one.
fn many(folder: &Path, count: usize) -> PathBuf {
    let (proc, one) = (folder.join("proc"), folder.join("one"));
    fs::create_dir_all(&proc).unwrap();
    fs::create_dir_all(&one).unwrap();
    for name in ["stat", "status", "maps", "smaps_rollup", "cgroup"] {
        fs::write(one.join(name), fs::read(Path::new("/proc/self").join(name)).unwrap()).unwrap();
    }
    fs::write(proc.join("stat"), "btime 1000000000\n").unwrap();
    for pid in 1..=count {
        symlink(&one, proc.join(pid.to_string())).unwrap();
    }
    proc
}

#[test]
fn a_hundred_thousand_processes_are_counted() {
    let folder = Folder::new("many");
    let host = host(&many(&folder.0, 100_000), 1000);
    let began = Instant::now();
    let look = Arc::new(host.look());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed()); // a second or two on a machine at rest
    assert_eq!((look.seen.len(), look.left_out), (1000, 99_000));
    let text = metrics::text(&look, true).unwrap();
    assert!(text.contains("hakmem_exporter_left_out_processes 99000") && text.len() < 4 << 20, "{}", text.len());
}

#[test]
fn a_clock_that_is_set_restarts_nothing() {
    let folder = Folder::new("clock");
    let proc = many(&folder.0, 3);
    let host = host(&proc, 1000);
    let places = |look: &hakmem_exporter::host::Look| {
        look.seen.iter().map(|each| (each.pid, each.place, each.kernel.start_seconds)).collect::<Vec<_>>()
    };
    let before = places(&host.look());
    assert!(before.len() == 3 && before[0].2 > 1e9);
    fs::write(proc.join("stat"), "btime 1000003600\n").unwrap();
    assert_eq!(places(&host.look()), before);
}

const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct { uint32_t magic, version, size, count; uint64_t roots[40]; } hak_live;
static uint32_t tables[1 << 18];
int main(int argc, char **argv) {
  int kind = atoi(argv[1]);
  if (kind > 0)
    hak_live.magic = 0x4c4b4148, hak_live.version = 1, hak_live.size = 4096, hak_live.count = 40;
  if (kind == 1)
    hak_live.version = 7;
  if (kind == 2)
    memset(&hak_live, 0xa5, sizeof hak_live);
  if (kind > 3)
    for (int i = 0; i < 40; i++) hak_live.roots[i] = (uint64_t)(uintptr_t)tables;
  for (int i = 0; i < 1 << 18; i++) tables[i] = kind == 4 ? 0xffffffff : 1 << 20;
  tables[0] = 1 << 20;
  tables[1] = 40;
  write(1, "x", 1);
  pause();
}
"#;

/// Programs with a live page of their own: empty, of version 7, noise, without roots, with tables of all ones and of large numbers.
fn liars(folder: &Path) -> Vec<Running> {
    fs::write(folder.join("liar.c"), PROGRAM).unwrap();
    let built = Command::new("cc").args(["-rdynamic", "liar.c", "-o", "liar"]).current_dir(folder).status().unwrap();
    assert!(built.success());
    let start = |kind: usize| {
        let program = Command::new(folder.join("liar")).arg(kind.to_string()).stdout(Stdio::piped()).spawn();
        let mut program = Running(program.unwrap());
        program.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        program
    };
    (0..6).map(start).collect()
}

#[test]
fn pages_that_are_none_cost_their_own_figures_only() {
    let folder = Folder::new("liars");
    let programs = liars(&folder.0);
    let host = host(Path::new("/proc"), 100_000);
    let look = Arc::new(host.look());
    for program in &programs {
        let seen = look.find(Some(program.0.id()), None, 0).unwrap();
        assert!(seen.served.is_none() && seen.kernel.resident > 0 && seen.allocator == "hakmem");
    }
    assert!(
        look.faults["not_started"] >= 1 && look.faults["other_version"] >= 1 && look.faults["damaged"] >= 4,
        "{:?}",
        look.faults
    );
    assert!(metrics::text(&look, true).unwrap().contains(r#"hakmem_exporter_unread_processes{why="other_version"}"#));
    let refused = |i: usize| match profile::dump(&host, programs[i].0.id()) {
        Err(Refusal::Unreadable(fault)) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!((refused(0), refused(1)), (Fault::NotStarted, Fault::OtherVersion(7)));
    assert!((2..6).all(|i| matches!(refused(i), Fault::Damaged(_))));
}

/// The answer to a request.
fn asked(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_rights_it_serves_what_the_kernel_shows_and_says_why() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Folder::new("rights");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.0.join("exporter");
    fs::copy(env!("CARGO_BIN_EXE_hakmem-exporter"), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(["--listen", "127.0.0.1:0"]);
    let mut exporter = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = Vec::new();
    let mut output = exporter.0.stdout.take().unwrap();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let said = String::from_utf8(line).unwrap();
    let address = said.trim().strip_prefix("serving http://").unwrap().strip_suffix("/metrics").unwrap();
    let metrics = asked(address, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains(r#"hakmem_exporter_unread_processes{why="forbidden"}"#));
    let refused = asked(address, &format!("/debug/pprof/heap?pid={}", std::process::id()));
    assert!(refused.contains("run the exporter as root or with CAP_SYS_PTRACE"), "{refused}");
}
