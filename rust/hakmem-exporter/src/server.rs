//! What is served over HTTP. One look at the host at a time; requests within a second share one.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Query, Request, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use crate::host::{Host, Look, Seen};
use crate::profile::{self, Refusal};
use crate::{metrics, pprof, why};

const FRESH: Duration = Duration::from_secs(1);
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

pub struct App {
    host: Arc<Host>,
    last: Mutex<Option<(Instant, Arc<Look>)>>,
    /// One profile at a time: a process has one place for a request.
    profiles: Mutex<()>,
    token: Option<String>,
}

/// Which process: by id, or by service and place.
#[derive(Debug, Default, Deserialize)]
struct Which {
    pid: Option<u32>,
    service: Option<String>,
    #[serde(default)]
    process: usize,
}

impl App {
    pub fn new(host: Host, token: Option<String>) -> App {
        App { host: Arc::new(host), last: Mutex::default(), profiles: Mutex::default(), token }
    }

    /// The present state; the second of two requests at once waits for the first one's look.
    pub fn look(&self) -> Arc<Look> {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*last {
            Some((when, look)) if when.elapsed() < FRESH => Arc::clone(look),
            _ => {
                // Before the next one is made: two looks need twice the memory.
                *last = None;
                let look = Arc::new(self.host.look());
                *last = Some((Instant::now(), Arc::clone(&look)));
                look
            }
        }
    }
}

/// What a client may take of the exporter's time and memory.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The bytes of a request's head.
    pub head: usize,
    /// From a connection, or the answer before, to the end of a request's head.
    pub head_time: Duration,
    /// From the end of the service to that of the requests being answered.
    pub shutdown: Duration,
}

pub const LIMITS: Limits = Limits { head: 16 << 10, head_time: Duration::from_secs(30), shutdown: Duration::from_secs(5) };

/// Serves until `ended`.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, ended: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(limits.head);
    let connections = GracefulShutdown::new();
    let mut ended = std::pin::pin!(ended);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // No file is left, or the client has gone: others are served when it passes.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = &mut ended => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            let _ = connection.await;
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(limits.shutdown, connections.shutdown()).await;
}

pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(
            "/",
            get(|| async {
                "hakmem-exporter: /metrics /debug/pprof/heap /debug/pprof/allocs /debug/hakmem/why /debug/hakmem/ledger\n"
            }),
        )
        .route("/metrics", get(serve_metrics))
        .route("/debug/pprof/heap", get(|app, which| serve_profile(app, which, "inuse")))
        .route("/debug/pprof/allocs", get(|app, which| serve_profile(app, which, "alloc")))
        .route("/debug/hakmem/why", get(serve_why))
        .route("/debug/hakmem/ledger", get(serve_ledger))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), with_token))
        .with_state(app)
}

async fn with_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match &app.token {
        Some(token) if !given.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|given| same(given, token)) => {
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "the token is missing or wrong\n").into_response()
        }
        _ => next.run(request).await,
    }
}

/// Compares in a time that does not tell how much of it is right.
fn same(given: &str, token: &str) -> bool {
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Work that waits for the kernel, off the thread that serves.
async fn off<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the look failed\n").into_response())
}

async fn serve_metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Response> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let open = accepted.contains("application/openmetrics-text");
    let content = off(move || metrics::text(&app.look(), open)).await?;
    let content =
        content.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the figures could not be written\n").into_response())?;
    Ok(([(header::CONTENT_TYPE, if open { OPEN } else { PLAIN })], content).into_response())
}

fn chosen(look: &Look, which: &Which) -> Result<Seen, Response> {
    let served: Vec<&Seen> = look.seen.iter().filter(|each| each.served.is_some()).collect();
    let only = if which.pid.is_none() && which.service.is_none() && served.len() == 1 { served.first().copied() } else { None };
    only.or_else(|| look.find(which.pid, which.service.as_deref(), which.process)).cloned().ok_or_else(|| {
        let lines =
            served.iter().map(|each| format!("  ?service={}&process={}   (pid {})\n", each.service, each.place, each.pid));
        let text = format!("which process? Those that HAKMEM serves:\n{}", lines.collect::<String>());
        (StatusCode::NOT_FOUND, text).into_response()
    })
}

async fn serve_profile(
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    kind: &'static str,
) -> Result<Response, Response> {
    off(move || {
        let seen = chosen(&app.look(), &which)?;
        let _one = app.profiles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let dump = profile::dump(&app.host, seen.pid).map_err(|refusal| {
            let status = match refusal {
                Refusal::NotRunning => StatusCode::CONFLICT,
                Refusal::NoAnswer => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            (status, format!("process {}: {refusal}\n", seen.pid)).into_response()
        })?;
        let content = pprof::encode(&dump, &app.host.folder(seen.pid), kind)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response())?;
        let name = format!("attachment; filename=\"{kind}.pb.gz\"");
        Ok(([(header::CONTENT_TYPE, "application/octet-stream".to_string()), (header::CONTENT_DISPOSITION, name)], content)
            .into_response())
    })
    .await?
}

async fn serve_why(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Result<Response, Response> {
    off(move || {
        let look = app.look();
        let line = |seen: &Seen| format!("{}/{} (pid {}): {}\n", seen.service, seen.place, seen.pid, why::sentence(seen));
        if which.pid.is_some() || which.service.is_some() {
            return chosen(&look, &which).map(|seen| line(&seen).into_response());
        }
        Ok(look.seen.iter().filter(|each| each.served.is_some()).map(line).collect::<String>().into_response())
    })
    .await?
}

async fn serve_ledger(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Result<Response, Response> {
    off(move || {
        let seen = chosen(&app.look(), &which)?;
        let served = seen.served.as_ref().ok_or_else(|| (StatusCode::NOT_FOUND, "HAKMEM does not serve it\n").into_response())?;
        let ledger = served.ledger.as_ref().map(|each| each.parts().into_iter().collect::<std::collections::BTreeMap<_, _>>());
        let content = json!({
            "pid": seen.pid, "service": seen.service, "process": seen.place, "version": seen.version,
            "resident": seen.kernel.resident, "ledger": ledger, "pinned": served.ledger.as_ref().map(|each| each.pinned),
            "figures": served.snapshot.figures,
        });
        Ok(([(header::CONTENT_TYPE, "application/json")], format!("{content}\n")).into_response())
    })
    .await?
}
