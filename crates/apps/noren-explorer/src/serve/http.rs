//! HTTP/1.1 on one connection with limits on sizes and times, and responses. The crate `hyper` implements the protocol.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

/// The maximum size of a request's head, in bytes.
const MOST_HEAD: usize = 64 << 10;
/// The maximum time that a client may take to receive a response and to begin its next request.
pub(super) const RESPONSE: Duration = Duration::from_secs(120);
/// Longer than any connection lasts.
const NEVER: Duration = Duration::from_secs(10 << 30);

/// A response to a request.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Returns a response with this status, these headers and this body.
pub(crate) fn response(status: u16, headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let valid = headers.iter().filter_map(|(name, value)| Some((*name, HeaderValue::from_str(value).ok()?)));
    valid.for_each(|(name, value)| drop(response.headers_mut().insert(name, value)));
    response
}

/// Reserved units of a limited resource, such as MiB of memory. Dropping the value releases them.
pub(crate) type Share = OwnedSemaphorePermit;

/// The bytes of a body, and the memory that is reserved until the client has received them.
pub(crate) struct Held(
    pub(crate) Vec<u8>,
    #[expect(dead_code, reason = "the field only holds the reserved memory until it is dropped")]
    pub(crate)  Option<Share>,
);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Answers one request after another until the connection ends, or until the client is too slow. `head` is the maximum
/// time that the client may take to send the head of a request.
pub(super) async fn converse<F: Future<Output = Response>>(
    stream: TcpStream,
    head: Duration,
    answer: impl Fn(Request<Incoming>) -> F,
) {
    let _ = stream.set_nodelay(true);
    let late = Mutex::new(Box::pin(sleep(NEVER)));
    let late = || late.lock().unwrap_or_else(PoisonError::into_inner);
    let allow = |time: Duration| late().as_mut().reset(Instant::now() + time);
    let service = service_fn(|request| {
        allow(NEVER);
        let answer = answer(request);
        async move {
            let response = answer.await;
            allow(RESPONSE);
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_header_size(MOST_HEAD);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    poll_fn(|context| {
        if late().as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        connection.as_mut().poll(context).map(drop)
    })
    .await;
}
