//! The connections of the server: how many are open, and the response to each request.

use crate::request::problem::Problem;
use crate::serve::http::{Response, converse};
use crate::serve::server::Server;
use crate::serve::{guard, routes};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The maximum number of connections whose requests the server answers at a time. Further connections receive only the
/// HTTP status 503.
const MOST_CONNECTIONS: usize = 256;
/// The maximum number of connections beyond `MOST_CONNECTIONS` to which the server sends the HTTP status 503 at a time.
/// Further connections are closed without a response.
const MOST_REFUSALS: usize = 16;
/// The maximum time that a client may take to send the head of a request.
pub(super) const HEAD: Duration = Duration::from_secs(20);
/// The maximum time for which the server reads the rest of a body that no handler has read. If the server closed the
/// connection at once, the client might not receive the response.
const LINGER: Duration = Duration::from_secs(1);

/// Answers requests on `listener` until the program ends.
///
/// # Errors
/// Returns an error if the system cannot watch `listener` for connections.
pub(crate) async fn listen(listener: std::net::TcpListener, server: Arc<Server>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS + MOST_REFUSALS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The process may have too many open files. Open connections continue, and some of them close.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
        let is_refused = slots.available_permits() < MOST_REFUSALS;
        let server = server.clone();
        tokio::spawn(async move {
            let answer = |request| respond(server.clone(), request, is_refused);
            converse(stream, if is_refused { LINGER } else { HEAD }, answer).await;
            drop(slot);
        });
    }
}

/// Returns the response to a request. `is_refused` is true if too many connections are open.
pub(super) async fn respond(server: Arc<Server>, request: Request<Incoming>, is_refused: bool) -> Response {
    let (head, mut body) = request.into_parts();
    let answer = match guard::refused(&server.hosts, &head) {
        _ if is_refused => {
            let problem = Problem::status(503, "too many connections are open: try again in a moment");
            routes::refusal(&problem, &[("connection", "close")])
        }
        Some(reason) => routes::refusal(&Problem::status(403, reason), &[]),
        None => routes::answer(&server, &head, &mut body).await,
    };
    let _ = timeout(LINGER, async { while let Some(Ok(_)) = body.frame().await {} }).await;
    guard::harden(&head, answer)
}
