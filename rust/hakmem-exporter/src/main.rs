//! hakmem-exporter: the memory of a host's processes for Prometheus, Pyroscope and Parca.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use hakmem_exporter::host::{Host, Settings, PATIENCE};
use hakmem_exporter::server::{self, router, App, LIMITS};

/// Serves the memory of all processes of this host to Prometheus, Pyroscope and Parca; those that HAKMEM serves in detail.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen. All who can reach it can read the figures.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9798")]
    listen: SocketAddr,
    /// A file with a token that requests must have ("Authorization: Bearer TOKEN").
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Processes with series of their own: those with the most resident memory.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    processes: usize,
    /// The processes' file system, of another host or namespace.
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    proc: PathBuf,
    /// The control groups' file system (version 2).
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    cgroups: PathBuf,
}

async fn serve(arguments: Arguments, token: Option<String>) -> std::io::Result<()> {
    let settings =
        Settings { proc: arguments.proc, cgroups: arguments.cgroups, most_processes: arguments.processes, patience: PATIENCE };
    let app = Arc::new(App::new(Host::new(settings), token));
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("serving http://{}/metrics", listener.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let ended = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    server::serve(listener, router(app), LIMITS, ended).await;
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let token = match arguments.token_file.as_ref().map(std::fs::read_to_string).transpose() {
        Ok(text) => text.map(|text| text.trim().to_string()),
        Err(error) => {
            eprintln!("hakmem-exporter: the token's file: {error}");
            return ExitCode::from(2);
        }
    };
    if token.as_ref().is_some_and(String::is_empty) {
        eprintln!("hakmem-exporter: the token's file is empty");
        return ExitCode::from(2);
    }
    let listen = arguments.listen;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.and_then(|runtime| {
        let done = runtime.block_on(serve(arguments, token));
        runtime.shutdown_background(); // a process that does not answer holds nothing up
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hakmem-exporter: cannot serve {listen}: {error}");
            ExitCode::FAILURE
        }
    }
}
