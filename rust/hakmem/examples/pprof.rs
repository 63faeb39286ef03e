//! Serves its heap profile: cargo run --example pprof --features pprof; then go tool pprof http://127.0.0.1:6060/debug/pprof/heap

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

/// What a handler of axum or hyper does.
async fn heap() -> Result<Vec<u8>, String> {
    let mut profile = hakmem::pprof::PROF_CTL.as_ref().ok_or("no profiler")?.lock().await;
    profile.dump_pprof().map_err(|error| error.to_string())
}

async fn serve() -> std::io::Result<()> {
    hakmem::pprof::activate_profiling().await?;
    let _kept: Vec<String> = (0..100_000).map(|number| format!("{number:1000}")).collect();
    let listener = TcpListener::bind("127.0.0.1:6060").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let _asked = stream.read(&mut [0; 1024]).await?; // whatever it was
        let (status, content) = heap().await.map_or_else(|said| ("500", said.into_bytes()), |profile| ("200", profile));
        let head = format!("HTTP/1.1 {status} heap\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
        stream.write_all(&[head.as_bytes(), &content].concat()).await?;
    }
}

fn main() -> std::io::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_io().build()?.block_on(serve())
}
