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
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, Semaphore};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 256;
/// How long a client may take to send the head of a request, and its body.
const HEAD: Duration = Duration::from_secs(20);
const BODY: Duration = Duration::from_secs(60);

/// What all requests share.
pub(super) struct Server {
    /// Answers about masks.
    pub(super) masks: Arc<Pool>,
    /// Answers about texts.
    pub(super) model: Arc<Pool>,
    pub(super) store: Arc<Store>,
    pub(super) speeds: OnceCell<Speeds>,
    /// Workers for masks.
    pub(super) workers: usize,
}

/// Answers until the program is interrupted.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>, port: u16) -> std::io::Result<()> {
    let own = Arc::new(Own::new(port));
    let app: Router = super::routes::routes()
        .with_state(server)
        .layer(from_fn(harden))
        .layer(from_fn_with_state(own, only_this_page));
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
        tokio::spawn(async move {
            let _slot = slot;
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away is no error.
            let _ = connection.await;
        });
    }
}

/// The names under which this server is asked.
struct Own {
    hosts: [String; 2],
    origins: [String; 2],
}

impl Own {
    fn new(port: u16) -> Self {
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
        Own { origins: [0, 1].map(|i| format!("http://{}", hosts[i])), hosts }
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
    if !own.hosts.iter().any(|name| host == Some(name.as_bytes())) {
        return Some("the explorer answers to 127.0.0.1 and localhost only");
    }
    let origin = one(header::ORIGIN);
    if origin.is_some_and(|origin| !own.origins.iter().any(|name| name.as_bytes() == origin)) {
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

/// The body of a request, which has at most `most` bytes.
pub(super) async fn body(request: Request, most: usize) -> Result<Vec<u8>> {
    let large = || Problem::status(413, format!("the request is larger than {most} bytes"));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > most as u64) {
        return Err(large());
    }
    match tokio::time::timeout(BODY, Limited::new(request.into_body(), most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(_)) => Err(large()),
        Err(_) => Err(Problem::status(408, format!("the request did not come within {} s", BODY.as_secs()))),
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
