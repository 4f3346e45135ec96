//! The paths of the server and the calls to worker processes that they are. `page/js/base/api.js` describes the requests.

use crate::request::call::{Call, Question};
use crate::request::message::{JSON, Reply};
use crate::request::problem::{Problem, Result};
use crate::request::query::{Query, decode};
use crate::request::wire::Frame;
use crate::serve::http::{Held, Response, Share, response};
use crate::serve::page;
use crate::serve::server::Server;
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use std::sync::Arc;
use std::time::Duration;

/// The maximum size of a request's body, in bytes.
const MOST_BODY: usize = 8 << 20;
/// The maximum size of a file for the doctor, in bytes.
const MOST_FILE: usize = 64 << 20;
/// The maximum size of a downloaded array, in bytes.
const MOST_EXPORT: usize = 256 << 20;

/// Path, method, question and the known parameters of each route. Requests with the method `post` have a body.
const ROUTES: &[(&str, &str, Question, &[&str])] = &[
    ("/api/masks", "post", Question::Read, &[]),
    ("/api/masks/{id}/tiles/{level}/{row}/{col}", "get", Question::Tile, &["batch", "head", "plan", "other"]),
    ("/api/masks/{id}/explain", "get", Question::Explain, &["batch", "head", "q", "k", "other"]),
    ("/api/masks/{id}/difference", "get", Question::Difference, &["other"]),
    ("/api/masks/{id}/code", "get", Question::Code, &["to"]),
    ("/api/masks/{id}/cost", "get", Question::Cost, NUMBERS),
    ("/api/masks/{id}/export", "get", Question::Export, &["as", "batch", "head", "plan", "other", "rows", "keys"]),
    ("/api/masks/{id}/border", "get", Question::Border, &["batch", "head", "q", "k", "along", "back"]),
    ("/api/facts", "post", Question::Facts, &[]),
    ("/api/curve", "post", Question::Curve, NUMBERS),
    ("/api/flow", "post", Question::Flow, &[]),
    ("/api/flow/certificate", "post", Question::FlowCertificate, &[]),
    ("/api/model", "get", Question::Model, &[]),
    ("/api/text", "post", Question::Text, &[]),
    ("/api/text/certificate", "post", Question::TextCertificate, &[]),
    ("/api/doctor", "post", Question::Doctor, &["name", "context", "meant", "repair"]),
    ("/api/doctor/classes", "get", Question::Classes, &[]),
    ("/api/language", "get", Question::Language, &[]),
    ("/api/presets", "get", Question::Presets, &[]),
];

const NUMBERS: &[&str] = &["head_dim", "dtype"];

/// Answers a request to the API or for a file of the page.
pub(crate) async fn answer(server: &Arc<Server>, head: &Parts, body: &mut Incoming) -> Response {
    let path = head.uri.path();
    let method = if head.method == "HEAD" { "GET" } else { head.method.as_str() };
    let elsewhere = |says: &str, allowed| refusal(&Problem::status(405, says), &[("allow", allowed)]);
    let mut routes = ROUTES.iter().filter_map(|route| Some((route, places(route.0, path)?)));
    match routes.next() {
        Some(((_, way, question, known), places)) if way.eq_ignore_ascii_case(method) => {
            let query = Query::read(head.uri.query().unwrap_or_default(), known);
            let call = places.and_then(|places| Ok(Call { question: *question, places, query: query?, speeds: None }));
            let answer = match call {
                Ok(call) => ask(server, call, body, *way == "post").await,
                Err(problem) => Err(problem),
            };
            answer.unwrap_or_else(|problem| refusal(&problem, &[]))
        }
        Some(((_, way, ..), _)) => elsewhere(
            "this path does not accept the method: use GET or POST as the header Allow lists",
            if *way == "get" { "GET, HEAD" } else { "POST" },
        ),
        None if path.starts_with("/api/") => {
            refusal(&Problem::status(404, "this path does not exist: js/base/api.js has all paths"), &[])
        }
        None if method == "GET" => page::file(head),
        None => elsewhere("this path accepts only GET", "GET, HEAD"),
    }
}

/// Returns the HTTP response that reports `problem`, with the status of the problem and the headers `more`.
pub(crate) fn refusal(problem: &Problem, more: &[(&'static str, &str)]) -> Response {
    let headers = [&[("content-type", JSON), ("cache-control", "no-store")], more].concat();
    response(problem.status, &headers, problem.body())
}

/// Compares a path with a route `pattern`, such as `/api/masks/{id}/cost`. Returns the values of the parts in braces,
/// here the identity of a mask; `None` if the path does not match `pattern`.
pub(super) fn places(pattern: &str, path: &str) -> Option<Result<Vec<String>>> {
    if pattern.split('/').count() != path.split('/').count() {
        return None;
    }
    let pairs = || pattern.split('/').zip(path.split('/'));
    let is_place = |part: &str| part.starts_with('{');
    if pairs().any(|(part, given)| if is_place(part) { given.is_empty() } else { part != given }) {
        return None;
    }
    let text = |given: &str| decode(given).ok_or_else(|| Problem::new(format!("{given} in the path is not UTF-8")));
    Some(pairs().filter(|(part, _)| is_place(part)).map(|(_, given)| text(given)).collect())
}

/// Returns the maximum time of a question.
fn limit(question: Question) -> Duration {
    Duration::from_secs(match question {
        Question::Tile => 5,
        Question::Text | Question::TextCertificate | Question::Model | Question::Doctor | Question::Export => 60,
        _ => 15,
    })
}

/// Returns the maximum size of an answer, in bytes, if it can be larger than the request.
fn most_answer(call: &Call) -> Result<Option<usize>> {
    Ok(match call.question {
        Question::Export if call.query.text("as").as_deref() == Some("npy") => Some(MOST_EXPORT),
        Question::Export | Question::FlowCertificate | Question::TextCertificate => Some(MOST_BODY),
        // A repaired array can be larger than the compressed file of the given array.
        Question::Doctor if call.query.flag("repair")? => Some(MOST_EXPORT),
        _ => None,
    })
}

/// Sends a call to a worker, and returns the worker's answer.
async fn ask(server: &Arc<Server>, mut call: Call, body: &mut Incoming, has_body: bool) -> Result<Response> {
    let question = call.question;
    let most_answer = most_answer(&call)?;
    let most = if question == Question::Doctor { MOST_FILE } else { MOST_BODY };
    let (bytes, asked) =
        if has_body { server.body(body, most).await.map(|(b, s)| (b, Some(s)))? } else { (Vec::new(), None) };
    if matches!(question, Question::Cost | Question::Curve) {
        let (server, query) = (server.clone(), call.query.clone());
        call.speeds = Some(finish(async move { server.speeds(&query).await }).await?);
    }
    let pool = match question {
        Question::Text | Question::TextCertificate | Question::Model => &server.model,
        _ => &server.masks,
    };
    let turn = pool.turn().await?;
    // Reserves the memory of an answer only when a worker is free: requests that wait hold no memory for it.
    let reserved = match most_answer {
        Some(most) => Some(server.memory(most).await?),
        None => None,
    };
    let definition = (question == Question::Read).then(|| bytes.clone());
    let server = server.clone();
    finish(async move {
        let answer = turn.call(call, bytes, limit(question)).await?;
        let good = answer.head.status == 200;
        definition.filter(|_| good).into_iter().for_each(|definition| server.store.insert(definition));
        // The identity depends only on the definition of the mask, so a tile changes only if the program changes.
        let cache = if good && question == Question::Tile { "private, max-age=300" } else { "no-store" };
        Ok(respond(answer, reserved.or(asked), cache))
    })
    .await
}

/// Runs work to its end, also if the client disconnects and the request is dropped.
async fn finish<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let failed = |_| Problem::status(500, "an internal error of noren: the request has no answer");
    tokio::spawn(work).await.map_err(failed)?
}

/// Returns a worker's answer as a response. `share` is the memory that is reserved for the request's
/// body or for the answer, and released after the response is sent.
fn respond(answer: Frame<Reply>, share: Option<Share>, cache: &str) -> Response {
    let Reply { status, content_type, file_name, .. } = answer.head;
    let body = Bytes::from_owner(Held(answer.blobs.into_iter().next().unwrap_or_default(), share));
    let attachment = file_name.map(|name| format!("attachment; filename=\"{name}\""));
    let attachment = attachment.iter().map(|value| ("content-disposition", &**value));
    let headers = [("content-type", &*content_type), ("cache-control", cache)];
    response(status, &headers.into_iter().chain(attachment).collect::<Vec<_>>(), body)
}
