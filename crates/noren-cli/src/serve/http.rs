//! The server: who may ask, how much, and for how long.

use super::answer::Speeds;
use super::pool::Pool;
use super::problem::{Problem, Result};
use super::store::Store;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 256;
/// How long a client may take to send the head of a request, and its body, and to take a piece of an answer.
const HEAD: Duration = Duration::from_secs(20);
const BODY: Duration = Duration::from_secs(60);
const PIECE: Duration = Duration::from_secs(30);
/// Mebibytes of bodies and answers that are held at a time, and how long one waits for room.
pub(super) const MOST_HELD: usize = 1024;
const ROOM: Duration = Duration::from_secs(10);

/// What all requests share.
pub(super) struct Server {
    /// Answers about masks.
    pub(super) masks: Arc<Pool>,
    /// Answers about texts.
    pub(super) model: Arc<Pool>,
    pub(super) store: Arc<Store>,
    /// A permit for each mebibyte that may be held.
    pub(super) room: Arc<Semaphore>,
    pub(super) speeds: OnceCell<Speeds>,
    /// Workers for masks.
    pub(super) workers: usize,
}

/// Answers until the program is interrupted.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>, port: u16) -> std::io::Result<()> {
    let own = Arc::new(Own::new(port));
    let app: Router = super::routes::routes()
        .with_state(server)
        .layer(from_fn_with_state(own, only_this_page))
        .layer(from_fn(harden));
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let stream = tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => stream,
                // Out of files, for example: what is open goes on, and frees some.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            end = tokio::signal::ctrl_c() => return end,
        };
        // Beyond the limit a connection is closed, so that those which are open go on.
        let Ok(slot) = connections.clone().try_acquire_owned() else { continue };
        let service = TowerToHyperService::new(app.clone());
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(PIECE));
        tokio::spawn(async move {
            let _slot = slot;
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(Box::pin(stream)), service);
            // A client that goes away is no error.
            let _ = connection.await;
        });
    }
}

/// The names under which this server is asked.
struct Own {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Own {
    fn new(port: u16) -> Self {
        let names = ["127.0.0.1", "localhost"];
        let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == 80 {
            // Browsers leave the usual port out.
            hosts.extend(names.map(String::from));
        }
        Own { origins: hosts.iter().map(|host| format!("http://{host}")).collect(), hosts }
    }
}

/// Lets only this page ask: a page from elsewhere has another origin, and a name that was pointed at this machine another host.
async fn only_this_page(State(own): State<Arc<Own>>, request: Request, next: Next) -> Response {
    match refused(&own, request.method(), request.uri().path(), request.headers()) {
        Some(why) => Problem::status(403, why).into_response(),
        None => next.run(request).await,
    }
}

fn refused(own: &Own, method: &Method, path: &str, headers: &HeaderMap) -> Option<&'static str> {
    let one = |name| {
        let mut all = headers.get_all(name).iter();
        let first = all.next().map(HeaderValue::as_bytes);
        if all.next().is_some() { Some(&b"twice"[..]) } else { first }
    };
    let host = one(header::HOST);
    if !own.hosts.iter().any(|name| host.is_some_and(|host| host.eq_ignore_ascii_case(name.as_bytes()))) {
        return Some("the explorer answers to 127.0.0.1 and localhost only");
    }
    let origin = one(header::ORIGIN);
    if origin.is_some_and(|origin| !own.origins.iter().any(|name| origin.eq_ignore_ascii_case(name.as_bytes()))) {
        return Some("the explorer answers its own page only");
    }
    let site = one(HeaderName::from_static("sec-fetch-site"));
    let foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let visit = *method == Method::GET && path == "/";
    if foreign && !visit {
        return Some("the explorer answers its own page only");
    }
    None
}

/// A page that asks with this header gets its errors as successes, the status beside them: browsers write every other answer into
/// their console, and a mask that is being typed is wrong most of the time.
const ERRORS: HeaderName = HeaderName::from_static("x-noren-errors");
const STATUS: HeaderName = HeaderName::from_static("x-noren-status");

/// Says what the page may do: nothing but what comes from here.
async fn harden(request: Request, next: Next) -> Response {
    let quiet = request.headers().get(ERRORS).is_some_and(|value| value == "200");
    let mut response = next.run(request).await;
    if quiet && response.status().as_u16() >= 400 {
        let status = HeaderValue::from(response.status().as_u16());
        response.headers_mut().insert(STATUS, status);
        *response.status_mut() = StatusCode::OK;
    }
    let policy = "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; object-src 'none'; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Room for bodies and answers; given back when it is dropped.
pub(super) type Room = OwnedSemaphorePermit;

impl Server {
    /// Room for so many bytes, for which others may have to be done first.
    pub(super) async fn room(&self, bytes: usize) -> Result<Room> {
        let mebibytes = bytes.div_ceil(1 << 20).clamp(1, MOST_HELD) as u32;
        match tokio::time::timeout(ROOM, self.room.clone().acquire_many_owned(mebibytes)).await {
            Ok(Ok(room)) => Ok(room),
            _ => Err(Problem::status(503, "too much is asked at once: try again in a moment")),
        }
    }

    /// The body of a request, which has at most `most` bytes, and the room that it takes.
    pub(super) async fn body(&self, request: Request, most: usize) -> Result<(Vec<u8>, Room)> {
        let large = || Problem::status(413, format!("the request is larger than {most} bytes"));
        let announced =
            request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|n| n > most as u64) {
            return Err(large());
        }
        let room = self.room(announced.map_or(most, |n| n as usize)).await?;
        match tokio::time::timeout(BODY, Limited::new(request.into_body(), most).collect()).await {
            Ok(Ok(body)) => Ok((Vec::from(body.to_bytes()), room)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(large()),
            Ok(Err(error)) => Err(Problem::new(format!("the request's body is broken: {error}"))),
            Err(_) => Err(Problem::status(408, format!("the request did not come within {} s", BODY.as_secs()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: Method, path: &str, headers: &[(&str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"));
        }
        refused(&Own::new(8080), &method, path, &map).is_none()
    }

    #[test]
    fn only_this_page_is_answered() {
        let host = ("host", "127.0.0.1:8080");
        assert!(ask(Method::GET, "/", &[host]));
        assert!(ask(Method::POST, "/api/masks", &[("host", "localhost:8080"), ("origin", "http://localhost:8080")]));
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
            assert!(!ask(Method::POST, "/api/masks", headers), "{headers:?}");
        }
        // A link from elsewhere leads to the page, and to nothing else.
        assert!(ask(Method::GET, "/", &[host, ("sec-fetch-site", "cross-site")]));
        assert!(!ask(Method::GET, "/api/about", &[host, ("sec-fetch-site", "cross-site")]));
    }
}
