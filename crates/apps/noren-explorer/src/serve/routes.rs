//! The paths of the server and the calls to worker processes that they are. `page/js/base/api.js` describes the requests.

use crate::request::call::{Call, Question};
use crate::request::message::{JSON, Reply};
use crate::request::problem::{Problem, Result};
use crate::request::query::{Query, decode};
use crate::request::wire::Frame;
use crate::serve::budget::Share;
use crate::serve::http::{Body, Head, Response};
use crate::serve::page;
use crate::serve::server::Server;
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
    ("/api/masks/{id}/row", "post", Question::Row, &[]),
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
pub(crate) fn answer(server: &Server, head: &Head, body: &mut Body<'_>) -> Response {
    let method = if head.method == "HEAD" { "GET" } else { head.method.as_str() };
    let mut allowed = Vec::new();
    for (pattern, way, question, known) in ROUTES {
        let Some(places) = places(pattern, &head.path) else { continue };
        if way.eq_ignore_ascii_case(method) {
            let call = places.and_then(|places| {
                Ok(Call { question: *question, places, query: Query::read(&head.query, known)?, speeds: None })
            });
            return call.and_then(|call| ask(server, call, body, *way == "post")).unwrap_or_else(|p| refusal(&p));
        }
        allowed.push(if *way == "get" { "GET, HEAD" } else { "POST" });
    }
    let elsewhere = |says: &str, allowed: String| refusal(&Problem::status(405, says)).header("allow", allowed);
    match method {
        _ if !allowed.is_empty() => elsewhere(
            "this path does not accept the method: use GET or POST as the header Allow lists",
            allowed.join(", "),
        ),
        _ if head.path.starts_with("/api/") => {
            refusal(&Problem::status(404, "this path does not exist: js/base/api.js has all paths"))
        }
        "GET" => page::file(head),
        _ => elsewhere("this path accepts only GET", "GET, HEAD".into()),
    }
}

/// Returns the HTTP response that reports `problem`, with the status of the problem.
pub(crate) fn refusal(problem: &Problem) -> Response {
    Response::new(problem.status, JSON, problem.body()).header("cache-control", "no-store")
}

/// Compares a path with a route `pattern`, such as `/api/masks/{id}/cost`. Returns the values of the parts in braces,
/// here the identity of a mask; `None` if the path does not match `pattern`.
fn places(pattern: &str, path: &str) -> Option<Result<Vec<String>>> {
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
        Question::Text | Question::TextCertificate | Question::Model | Question::Doctor => 60,
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
fn ask(server: &Server, mut call: Call, body: &mut Body<'_>, has_body: bool) -> Result<Response> {
    let question = call.question;
    let most_answer = most_answer(&call)?;
    let most = if question == Question::Doctor { MOST_FILE } else { MOST_BODY };
    let (bytes, asked) = has_body.then(|| server.body(body, most)).transpose()?.unzip();
    let bytes = bytes.unwrap_or_default();
    if matches!(question, Question::Cost | Question::Curve) {
        call.speeds = Some(server.speeds(&call.query)?);
    }
    let pool = match question {
        Question::Text | Question::TextCertificate | Question::Model => &server.model,
        _ => &server.masks,
    };
    let turn = pool.turn(&|| body.gone())?;
    // Reserves the memory of an answer only when a worker is free: requests that wait hold no memory for it.
    let reserved = most_answer.map(|most| server.memory(most)).transpose()?;
    let definition = (question == Question::Read).then(|| bytes.clone());
    let answer = turn.call(call, bytes, limit(question))?;
    let good = answer.head.status == 200;
    definition.filter(|_| good).into_iter().for_each(|definition| server.store.insert(definition));
    // The identity depends only on the definition of the mask, so a tile changes only if the program changes.
    let cache = if good && question == Question::Tile { "private, max-age=300" } else { "no-store" };
    Ok(respond(answer, reserved.or(asked), cache))
}

/// Returns a worker's answer as a response. `share` is the memory that is reserved for the request's
/// body or for the answer, and released after the response is sent.
fn respond(answer: Frame<Reply>, share: Option<Share>, cache: &str) -> Response {
    let Reply { status, content_type, file_name, .. } = answer.head;
    let body = answer.blobs.into_iter().next().unwrap_or_default();
    let response = Response { share, ..Response::new(status, &content_type, body) }.header("cache-control", cache);
    match file_name {
        Some(name) => response.header("content-disposition", format!("attachment; filename=\"{name}\"")),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::http;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

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
    fn a_request_that_waits_for_a_worker_holds_no_memory_for_its_answer() {
        // The worker is this test program with `--list`, which ends at once.
        let server = Arc::new(Server::new(&["--list".to_string()], &[], 1));
        let only_worker = server.masks.turn(&|| false).expect("a free worker");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (stream, _) = listener.accept().expect("the connection");
        let asked = server.clone();
        let thread = std::thread::spawn(move || {
            http::converse(stream, |head, body| answer(&asked, head, body), |_| Response::default())
        });
        client.write_all(b"GET /api/masks/x/export?as=npy HTTP/1.1\r\n\r\n").expect("an open connection");
        std::thread::sleep(Duration::from_millis(300));
        assert!(server.memory(1 << 30).is_ok(), "the request holds memory");
        drop(client);
        let _ = thread.join().expect("no panic");
        drop(only_worker);
    }
}
