//! The routes of the server: `POST /embed` and `GET /health`.

use crate::queue::{Counts, Queue, Refused};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use noren_models::embed::Embedder;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;

/// The maximum number of bytes of a request's body.
pub const MOST_BYTES: usize = 1 << 20;

/// The maximum number of texts of a request.
pub const MOST_TEXTS: usize = 256;

/// The maximum number of requests that are read, tokenized or waiting at the same time. Each request takes memory for its
/// body.
pub const MOST_REQUESTS: usize = 1024;

/// The body of a request to `/embed`.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The texts, at most [`MOST_TEXTS`].
    pub texts: Vec<String>,
}

/// The body of a response of `/embed`.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub struct Answer {
    /// One vector for each text, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// For each text, the number of tokens that the model has read.
    pub tokens: Vec<usize>,
    /// For each text, the number of tokens that were cut off because the text is longer than the model reads.
    pub cut: Vec<usize>,
}

/// A response with the status code of an error. Its body is `{"error": message}`.
#[derive(Debug)]
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Json(serde_json::json!({ "error": self.1 }));
        let mut response = (self.0, body).into_response();
        if self.0 == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure(StatusCode::SERVICE_UNAVAILABLE, refused.to_string())
    }
}

#[derive(Clone)]
struct Service {
    embedder: Arc<Embedder>,
    queue: Queue,
    requests: Arc<Semaphore>,
}

/// Listens on an address. Up to [`MOST_REQUESTS`] connections may wait until they are accepted; with the 128 of
/// [`TcpListener::bind`], a burst of clients loses connections.
///
/// # Errors
/// Returns an error if the address is in use or does not belong to this machine.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(cfg!(unix))?;
    socket.bind(address)?;
    socket.listen(MOST_REQUESTS as u32)
}

/// Returns the routes of a server. `embedder` tokenizes the texts, and `queue` computes them with the same model.
pub fn routes(embedder: Arc<Embedder>, queue: Queue) -> Router {
    let service = Service { embedder, queue, requests: Arc::new(Semaphore::new(MOST_REQUESTS)) };
    Router::new()
        .route("/embed", post(embed))
        .route("/health", get(health))
        .layer(axum::middleware::from_fn_with_state(service.clone(), admit))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(service)
}

/// Refuses a request, before its body is read, if too many requests are being processed.
async fn admit(
    State(service): State<Service>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    match service.requests.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => {
            let problem = format!(
                "the server is overloaded: {MOST_REQUESTS} requests are being processed. Send the request again later"
            );
            Failure(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
        }
    }
}

async fn embed(
    State(service): State<Service>,
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Json<Answer>, Failure> {
    let Json(Request { texts }) = request.map_err(|rejection| Failure(rejection.status(), rejection.body_text()))?;
    let refuse = |problem: String| Err(Failure(StatusCode::BAD_REQUEST, problem));
    if texts.is_empty() || texts.len() > MOST_TEXTS {
        return refuse(format!("`texts` has {} texts: give 1 to {MOST_TEXTS} texts", texts.len()));
    }
    if let Some(at) = texts.iter().position(String::is_empty) {
        return refuse(format!("texts[{at}] is empty: give a text with at least one character"));
    }
    let embedder = Arc::clone(&service.embedder);
    let encode = move || {
        texts.iter().map(|text| embedder.encode(text).map_err(|e| e.to_string())).collect::<Result<Vec<_>, _>>()
    };
    let lost = |_| Failure(StatusCode::INTERNAL_SERVER_ERROR, "the computation ended without a result".to_owned());
    let encoded = tokio::task::spawn_blocking(encode).await.map_err(|_| lost(()))?;
    let encoded = encoded.map_err(|problem| Failure(StatusCode::BAD_REQUEST, problem))?;
    let (ids, cut): (Vec<_>, Vec<_>) = encoded.into_iter().unzip();
    let tokens = ids.iter().map(Vec::len).collect();
    let vectors = service.queue.submit(ids)?.await.map_err(|_| lost(()))?;
    let vectors = vectors.map_err(|problem| Failure(StatusCode::UNPROCESSABLE_ENTITY, problem))?;
    Ok(Json(Answer { vectors, tokens, cut }))
}

async fn health(State(service): State<Service>) -> Json<Counts> {
    Json(service.queue.counts())
}
