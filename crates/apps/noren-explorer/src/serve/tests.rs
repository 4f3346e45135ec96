//! Requests that are refused, and connections whose clients are slow or disconnect.

use super::connections::{HEAD, respond};
use super::guard::{hosts, refused};
use super::http::{RESPONSE, Response, converse, response};
use super::pool::{MOST_WAITING, ended};
use super::routes::places;
use super::server::Server;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Runs a test. If `stopped` is true, the clock jumps to the next time limit when nothing else happens.
fn run(stopped: bool, test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(stopped).build().expect("a runtime").block_on(test);
}

/// Returns both ends of a connection: a client, and a server that answers with `answer`.
async fn connect<F: Future<Output = Response> + Send + 'static>(
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) -> (TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let (stream, _) = listener.accept().await.expect("the connection");
    (client, tokio::spawn(converse(stream, HEAD, answer)))
}

#[test]
fn a_request_that_waits_for_a_worker_holds_no_memory_and_ends_with_its_client() {
    run(false, async {
        // The worker is this test program with `--list`, which ends at once.
        let server = Arc::new(Server::new(80, &["--list".into()], &[], 1));
        let only_worker = server.masks.turn().await.expect("a free worker");
        let asked = server.clone();
        let (mut client, _) = connect(move |request| respond(asked.clone(), request, false)).await;
        let request = b"GET /api/masks/x/export?as=npy HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(request).await.expect("an open connection");
        while server.masks.waiting.available_permits() == MOST_WAITING {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(server.memory(1 << 30).await.is_ok(), "the request holds memory");
        drop(client);
        while server.masks.waiting.available_permits() < MOST_WAITING {
            sleep(Duration::from_millis(1)).await;
        }
        drop(only_worker);
    });
}

#[test]
fn clients_that_are_too_slow_are_disconnected() {
    run(true, async {
        // A head that never ends.
        let start = Instant::now();
        let (mut client, served) = connect(|_| async { response(200, &[], "") }).await;
        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("an open connection");
        served.await.expect("no panic");
        assert_eq!(start.elapsed().as_secs(), HEAD.as_secs());
        // A body that never ends.
        let server = Arc::new(Server::new(80, &[], &[], 1));
        let (mut client, _) = connect(move |request| respond(server.clone(), request, false)).await;
        let request = b"POST /api/masks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";
        client.write_all(request).await.expect("an open connection");
        let mut said = String::new();
        client.read_to_string(&mut said).await.expect("a response");
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("did not arrive within 60 s"), "{said}");
        // A response that is never taken.
        let start = Instant::now();
        let (mut client, served) = connect(|_| async { response(200, &[], vec![b' '; 64 << 20]) }).await;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("an open connection");
        served.await.expect("no panic");
        assert_eq!(start.elapsed().as_secs(), RESPONSE.as_secs());
    });
}

fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
    let request = hyper::Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let (head, ()) = request.body(()).expect("a request").into_parts();
    refused(&hosts(8080), &head).is_none()
}

#[test]
fn only_this_page_is_answered() {
    let host = ("host", "127.0.0.1:8080");
    assert!(ask("GET", "/", &[host]));
    assert!(ask("POST", "/api/masks", &[("Host", "localhost:8080"), ("origin", "http://localhost:8080")]));
    for headers in [
        &[][..],
        &[("host", "evil.example")],
        &[("host", "127.0.0.1:8081")],
        &[host, ("host", "evil.example")],
        &[host, ("origin", "http://evil.example")],
        &[host, ("origin", "null")],
        &[host, ("origin", "https://127.0.0.1:8080")],
        &[host, ("sec-fetch-site", "cross-site")],
        &[host, ("sec-fetch-site", "same-site")],
    ] {
        assert!(!ask("POST", "/api/masks", headers), "{headers:?}");
    }
    // A link on another site may open the page, but no other path.
    assert!(ask("GET", "/", &[host, ("sec-fetch-site", "cross-site")]));
    assert!(!ask("GET", "/api/presets", &[host, ("sec-fetch-site", "cross-site")]));
    assert!(!ask("GET", "http://evil.example/", &[host]));
}

#[test]
fn paths_are_distinguished() {
    let tile = "/api/masks/{id}/tiles/{level}/{row}/{col}";
    let found = places(tile, "/api/masks/a%20b/tiles/0/1/2").expect("its path").expect("UTF-8");
    assert_eq!(found, ["a b", "0", "1", "2"]);
    for path in ["/api/masks", "/api/masks/a/tiles/0/1", "/api/masks//tiles/0/1/2", "/api/masks/a/tiles/0/1/2/"] {
        assert!(places(tile, path).is_none(), "{path}");
    }
    assert!(places(tile, "/api/masks/%ff/tiles/0/1/2").expect("its path").is_err());
}

#[test]
fn only_a_worker_that_a_signal_ended_had_too_little_memory() {
    assert_eq!((ended(None).status, ended(Some(101)).status), (507, 500));
}
