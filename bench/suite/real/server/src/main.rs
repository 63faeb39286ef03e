//! server CONNECTIONS REQUESTS: an HTTP server on hyper and tokio, and clients in the same process. Each connection asks for its own
//! cart in turn: the server reads JSON, changes the cart, and answers with it. Eight workers take the tasks from one another.
//! Prints a digest of all answers.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{json, Value};
use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn Error + Send + Sync>;
type Cart = BTreeMap<String, Vec<Value>>;
type Carts = Arc<Mutex<HashMap<String, Cart>>>;

const WORKERS: usize = 8;
const KEPT: usize = 6; // entries of one article

/// The answer to one request: the customer's cart with the article of the body in it.
fn answer(carts: &Carts, path: &str, body: &[u8]) -> Result<Value, Failure> {
    let order: Value = serde_json::from_slice(body)?;
    let article = order["article"].as_str().ok_or("no article")?;
    let mut carts = carts.lock().map_err(|_| "poisoned")?;
    let cart = carts.entry(path.to_owned()).or_default();
    let entries = cart.entry(article.to_owned()).or_default();
    entries.push(order["detail"].clone());
    if entries.len() > KEPT {
        entries.remove(0);
    }
    let entries = entries.clone();
    Ok(json!({ "cart": path, "articles": cart.len(), "entries": entries, "names": cart.keys().collect::<Vec<_>>() }))
}

async fn serve(carts: Carts, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let (status, text) = match answer(&carts, &path, &body) {
        Ok(found) => (StatusCode::OK, serde_json::to_vec(&found)?),
        Err(reason) => (StatusCode::BAD_REQUEST, reason.to_string().into_bytes()),
    };
    Ok(Response::builder().status(status).header("content-type", "application/json").body(Full::new(Bytes::from(text)))?)
}

async fn listen(listener: TcpListener) {
    let carts = Carts::default();
    while let Ok((stream, _)) = listener.accept().await {
        let carts = carts.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(carts.clone(), request));
            // A client that has what it wanted closes its connection, which is no error here.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn mix(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x100000001b3))
}

/// One connection with all its requests; a digest of the answers.
async fn ask(address: SocketAddr, number: u64, requests: u64) -> Result<u64, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (mut digest, mut state) = (0xcbf29ce484222325, number);
    for turn in 0..requests {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let length = 3 + (state >> 59) as usize;
        let words: Vec<String> = (0..length as u64).map(|word| format!("word-{}", (state >> 40) % (word + 7))).collect();
        let order = json!({ "article": format!("article-{}", (state >> 33) % 40), "detail": { "turn": turn, "words": words } });
        let request = Request::post(format!("/customer/{number}"))
            .header("host", "localhost")
            .body(Full::new(Bytes::from(serde_json::to_vec(&order)?)))?;
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status()).into());
        }
        let body = response.into_body().collect().await?.to_bytes();
        let read: Value = serde_json::from_slice(&body)?;
        digest = mix(digest, read["entries"].to_string().as_bytes());
        digest = mix(digest, &body);
    }
    Ok(digest)
}

async fn run(connections: u64, requests: u64) -> Result<u64, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(listen(listener));
    let clients: Vec<_> = (0..connections).map(|number| tokio::spawn(ask(address, number, requests))).collect();
    let mut digest = 0u64;
    for client in clients {
        digest = digest.wrapping_add(client.await??);
    }
    Ok(digest)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [connections, requests] = arguments[..] else {
        return Err("usage: server CONNECTIONS REQUESTS".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_io().build()?;
    println!("server check={:x}", runtime.block_on(run(connections, requests))?);
    Ok(())
}
