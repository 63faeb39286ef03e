//! A client that sends its request slowly, or a long one, or does not read the answer, holds nothing up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hakmem_exporter::host::{Host, Settings, PATIENCE};
use hakmem_exporter::server::{router, serve, App, Limits};

const LIMITS: Limits = Limits { head: 16 << 10, head_time: Duration::from_millis(500), shutdown: Duration::from_millis(500) };

/// Serves while `clients` run; the time from their end to that of the service.
fn served(clients: impl FnOnce(SocketAddr) + Send + 'static) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let took = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let settings = Settings {
            proc: PathBuf::from("/proc"),
            cgroups: PathBuf::from("/sys/fs/cgroup"),
            most_processes: 10,
            patience: PATIENCE,
        };
        let app = router(Arc::new(App::new(Host::new(settings), None)));
        let (told, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            clients(address);
            told.send(Instant::now()).unwrap();
        });
        let mut when = None;
        serve(listener, app, LIMITS, async { when = ended.await.ok() }).await;
        when.unwrap().elapsed()
    });
    runtime.shutdown_background();
    took
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_request_is_answered() {
    served(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        assert!(answer(stream).starts_with("HTTP/1.1 200"));
    });
}

#[test]
fn a_slow_head_ends() {
    served(|address| {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost:").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!answer(stream).contains("200 OK"));
        assert!(began.elapsed() < Duration::from_secs(15));
    });
}

#[test]
fn a_long_head_is_refused() {
    served(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)).as_bytes());
        assert!(!answer(stream).contains("200 OK"));
    });
}

#[test]
fn an_open_connection_does_not_hold_the_end_up() {
    let took = served(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /").unwrap();
        std::mem::forget(stream);
    });
    assert!(took < Duration::from_secs(10), "{took:?}");
}
