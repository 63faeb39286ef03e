//! A service with live state, for hosts.py: SET and DEL of keys, a line each, a thread per connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Kept = Arc<Mutex<HashMap<String, String>>>;

fn answer(mut stream: TcpStream, kept: &Kept) -> std::io::Result<()> {
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        let mut words = line.trim_end().splitn(3, ' ');
        let (Some(verb), Some(key)) = (words.next(), words.next()) else { break };
        let mut kept = kept.lock().unwrap();
        match (verb, words.next()) {
            ("SET", Some(value)) => drop(kept.insert(key.to_string(), value.to_string())),
            _ => drop(kept.remove(key)),
        }
        drop(kept);
        stream.write_all(b"+OK\r\n")?;
    }
    Ok(())
}

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("a port");
    let kept = Kept::default();
    for stream in TcpListener::bind(("127.0.0.1", port)).expect("a free port").incoming().flatten() {
        let kept = Arc::clone(&kept);
        std::thread::spawn(move || answer(stream, &kept));
    }
}
