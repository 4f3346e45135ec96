//! What can be asked over HTTP, each a call to a worker; `openapi.json` describes it, and a test holds the two against each other.

use super::answer::{Call, Speeds};
use super::http::{Room, Server};
use super::problem::{Problem, Result};
use super::store::identity;
use super::wire::Frame;
use super::worker::{Answered, MOST_MEMORY};
use super::{page, scene};
use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json as object;
use std::sync::Arc;
use std::time::Duration;

/// The description of everything here.
const OPENAPI: &str = include_str!("openapi.json");

/// Bytes of a request's body, and of a file.
pub(super) const MOST_BODY: usize = 8 << 20;
pub(super) const MOST_FILE: usize = 64 << 20;
/// Bytes of an array that is taken away.
const MOST_EXPORT: usize = 256 << 20;

/// How long an answer may take.
const TILE: Duration = Duration::from_secs(5);
const QUESTION: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(60);

type App = State<Arc<Server>>;

/// Everything that can be asked.
pub(super) fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/api/masks", post(read))
        .route("/api/masks/{id}/tiles/{level}/{row}/{col}", get(tile))
        .route("/api/masks/{id}/explain", get(explain))
        .route("/api/masks/{id}/difference", get(difference))
        .route("/api/masks/{id}/cost", get(cost))
        .route("/api/masks/{id}/export", get(export))
        .route("/api/curve", post(curve))
        .route("/api/flow", post(flow))
        .route("/api/model", get(model))
        .route("/api/text", post(text))
        .route("/api/doctor", post(doctor))
        .route("/api/doctor/classes", get(|app: App| constant(app, Call::Classes)))
        .route("/api/language", get(|app: App| constant(app, Call::Language)))
        .route("/api/presets", get(|app: App| constant(app, Call::Presets)))
        .route("/api/about", get(about))
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) }))
        .fallback(|request: Request| async move {
            let path = request.uri().path();
            match *request.method() {
                Method::GET | Method::HEAD if !path.starts_with("/api/") => page::file(path, request.headers()),
                Method::GET | Method::HEAD => {
                    Problem::status(404, "there is no such question: /openapi.json lists them").into_response()
                }
                _ => {
                    Problem::status(405, "nothing is sent here: /openapi.json lists what can be asked").into_response()
                }
            }
        })
        .method_not_allowed_fallback(|| async {
            Problem::status(405, "this path is asked in another way: /openapi.json lists how").into_response()
        })
}

async fn read(State(server): App, request: Request) -> Result<Response> {
    let (body, room) = server.body(request, MOST_BODY).await?;
    let id = identity(&body);
    let answer = server.masks.call(Call::Read { id }, body.clone(), QUESTION).await?;
    if answer.head.status == 200 {
        server.store.insert(body);
    }
    Ok(respond(answer, Some(room)))
}

/// What query strings say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    batch: Option<usize>,
    #[serde(default)]
    head: Option<usize>,
    #[serde(default)]
    plan: Option<u8>,
    other: Option<String>,
    q: Option<usize>,
    k: Option<usize>,
    #[serde(rename = "as")]
    form: Option<String>,
    rows: Option<String>,
    keys: Option<String>,
}

impl Asked {
    fn pair(&self) -> super::answer::Pair {
        super::answer::Pair { batch: self.batch.unwrap_or(0), head: self.head.unwrap_or(0) }
    }
}

/// A query string, or why it is none.
type Params<T> = std::result::Result<Query<T>, axum::extract::rejection::QueryRejection>;

fn params<T>(given: Params<T>) -> Result<T> {
    given
        .map(|Query(params)| params)
        .map_err(|e| Problem::new(e.body_text()).hint("/openapi.json lists what can be asked"))
}

/// A path, or why it is none.
type Place<T> = std::result::Result<Path<T>, axum::extract::rejection::PathRejection>;

fn place<T>(given: Place<T>) -> Result<T> {
    given.map(|Path(place)| place).map_err(|e| Problem::new(e.body_text()))
}

async fn tile(State(server): App, at: Place<(String, u32, u64, u64)>, asked: Params<Asked>) -> Result<Response> {
    let ((id, level, row, col), asked) = (place(at)?, params(asked)?);
    let tile = super::answer::TileAsked {
        level,
        row,
        col,
        pair: asked.pair(),
        plan: asked.plan == Some(1),
        other: asked.other,
    };
    let answer = server.masks.call(Call::Tile { id, tile }, Vec::new(), TILE).await?;
    let mut response = respond(answer, None);
    if response.status() == StatusCode::OK {
        // The identity is that of the content: a tile changes with the program only.
        let a_while = header::HeaderValue::from_static("private, max-age=300");
        response.headers_mut().insert(header::CACHE_CONTROL, a_while);
    }
    Ok(response)
}

async fn explain(State(server): App, id: Place<String>, asked: Params<Asked>) -> Result<Response> {
    let (id, asked) = (place(id)?, params(asked)?);
    let (Some(q), Some(k)) = (asked.q, asked.k) else {
        return Err(Problem::new("the cell is not said: give q and k, both counted from 0"));
    };
    let cell = super::answer::CellAsked { pair: asked.pair(), q, k, other: asked.other };
    Ok(respond(server.masks.call(Call::Explain { id, cell }, Vec::new(), QUESTION).await?, None))
}

async fn difference(State(server): App, id: Place<String>, asked: Params<Asked>) -> Result<Response> {
    let (id, asked) = (place(id)?, params(asked)?);
    let Some(other) = asked.other else { return Err(Problem::new("the other mask is not said: give other")) };
    Ok(respond(server.masks.call(Call::Difference { id, other }, Vec::new(), QUESTION).await?, None))
}

async fn cost(State(server): App, id: Place<String>) -> Result<Response> {
    let (id, speeds) = (place(id)?, server.speeds().await?);
    Ok(respond(server.masks.call(Call::Cost { id, speeds }, Vec::new(), QUESTION).await?, None))
}

async fn curve(State(server): App, request: Request) -> Result<Response> {
    let ((body, room), speeds) = (server.body(request, MOST_BODY).await?, server.speeds().await?);
    Ok(respond(server.masks.call(Call::Curve { speeds }, body, QUESTION).await?, Some(room)))
}

async fn export(State(server): App, id: Place<String>, asked: Params<Asked>) -> Result<Response> {
    let (id, asked) = (place(id)?, params(asked)?);
    let pair = (asked.batch.is_some() || asked.head.is_some()).then(|| asked.pair());
    let asked = super::answer::ExportAsked {
        form: asked.form.ok_or_else(|| Problem::new("the form is not said: give as=svg, for example"))?,
        pair,
        plan: asked.plan == Some(1),
        other: asked.other,
        rows: asked.rows,
        keys: asked.keys,
    };
    let room = server.room(if asked.form == "npy" { MOST_EXPORT } else { MOST_BODY }).await?;
    Ok(respond(server.masks.call(Call::Export { id, asked }, Vec::new(), QUESTION).await?, Some(room)))
}

async fn flow(State(server): App, request: Request) -> Result<Response> {
    let (body, room) = server.body(request, MOST_BODY).await?;
    Ok(respond(server.masks.call(Call::Flow, body, QUESTION).await?, Some(room)))
}

async fn model(State(server): App) -> Result<Response> {
    Ok(respond(server.model.call(Call::Model, Vec::new(), LONG).await?, None))
}

async fn text(State(server): App, request: Request) -> Result<Response> {
    let (body, room) = server.body(request, MOST_BODY).await?;
    Ok(respond(server.model.call(Call::Text, body, LONG).await?, Some(room)))
}

/// What is said of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AboutFile {
    #[serde(default = "unnamed")]
    name: String,
    context: Option<String>,
    meant: Option<String>,
}

fn unnamed() -> String {
    "the file".into()
}

async fn doctor(State(server): App, about: Params<AboutFile>, request: Request) -> Result<Response> {
    let AboutFile { name, context, meant } = params(about)?;
    let asked = super::answer::DoctorAsked { name, context, meant };
    let (body, room) = server.body(request, MOST_FILE).await?;
    Ok(respond(server.masks.call(Call::Doctor { asked }, body, LONG).await?, Some(room)))
}

/// What is the same whenever it is asked.
async fn constant(State(server): App, call: Call) -> Result<Response> {
    Ok(respond(server.masks.call(call, Vec::new(), QUESTION).await?, None))
}

async fn about(State(server): App) -> impl IntoResponse {
    let value = object!({
        "version": env!("CARGO_PKG_VERSION"),
        "workers": server.workers,
        "limits": {
            "expression_bytes": scene::MOST_TEXT,
            "expression_depth": 256,
            "len": scene::MOST_LEN,
            "pairs": scene::MOST_PAIRS,
            "body_bytes": MOST_BODY,
            "file_bytes": MOST_FILE,
            "tile_seconds": TILE.as_secs(),
            "seconds": QUESTION.as_secs(),
            "text_seconds": LONG.as_secs(),
            "worker_bytes": MOST_MEMORY,
        },
    });
    ([(header::CONTENT_TYPE, "application/json")], value.to_string())
}

impl Server {
    /// How quick this machine is, measured at the first question.
    async fn speeds(&self) -> Result<Speeds> {
        let measure = || async {
            let answer = self.model.call(Call::Calibrate, Vec::new(), LONG).await?;
            Ok(serde_json::from_slice(&answer.blobs[0])?)
        };
        self.speeds.get_or_try_init(measure).await.cloned()
    }
}

/// An answer of a worker as a response. It keeps its room until it is sent.
fn respond(mut answer: Frame<Answered>, room: Option<Room>) -> Response {
    struct Held(Vec<u8>, #[expect(dead_code, reason = "dropped with the bytes")] Option<Room>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let status = StatusCode::from_u16(answer.head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [(header::CONTENT_TYPE, answer.head.content_type), (header::CACHE_CONTROL, "no-store".to_string())];
    let body = Bytes::from_owner(Held(answer.blobs.drain(..).next().unwrap_or_default(), room));
    let mut response = (status, headers, body).into_response();
    if let Some(name) = answer.head.file_name
        && let Ok(value) = format!("attachment; filename=\"{name}\"").parse()
    {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/json")], self.body()).into_response()
    }
}
