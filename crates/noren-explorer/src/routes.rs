//! The paths of the server with their handlers. Most handlers send a call to a worker process. `page/js/api.js` describes
//! the requests.

use crate::budget::Share;
use crate::call::{BorderSearch, Call, CellRequest, DoctorRequest, ExportRequest, Numbers, Pair, TileRequest};
use crate::http::{Body, Head, Response};
use crate::message::{JSON, Reply};
use crate::page;
use crate::pool::Pool;
use crate::problem::{Problem, Result};
use crate::query::{Query, decode, number};
use crate::scene;
use crate::server::Server;
use crate::store::identity;
use crate::wire::Frame;
use crate::worker::MOST_MEMORY;
use noren::Dtype;
use serde_json::json as object;
use std::time::Duration;

/// The head dimensions for which costs are predicted.
const HEAD_DIMS: [usize; 5] = [32, 64, 96, 128, 256];

/// The maximum size of a request's body, in bytes.
const MOST_BODY: usize = 8 << 20;
/// The maximum size of a file for the doctor, in bytes.
const MOST_FILE: usize = 64 << 20;
/// The maximum size of a downloaded array, in bytes.
const MOST_EXPORT: usize = 256 << 20;

/// The maximum time to compute one tile of a mask's picture.
const TILE: Duration = Duration::from_secs(5);
/// The maximum time of a request, except for requests that have their own limit.
const QUESTION: Duration = Duration::from_secs(15);
/// The maximum time of a request to the model or to the doctor.
const LONG: Duration = Duration::from_secs(60);

/// A request whose path matches a route.
struct Request<'a, 'b> {
    /// The values of the variable parts of the path, which the route has in braces, in order: for `{id}`, the identity
    /// of a mask.
    places: Vec<String>,
    head: &'a Head,
    body: &'a mut Body<'b>,
}

type Handler = fn(&Server, Request<'_, '_>) -> Result<Response>;

/// Path, method and handler of each route.
const ROUTES: &[(&str, &str, Handler)] = &[
    ("/api/masks", "post", read),
    ("/api/masks/{id}/tiles/{level}/{row}/{col}", "get", tile),
    ("/api/masks/{id}/explain", "get", explain),
    ("/api/masks/{id}/row", "post", row),
    ("/api/masks/{id}/difference", "get", difference),
    ("/api/masks/{id}/code", "get", code),
    ("/api/masks/{id}/cost", "get", cost),
    ("/api/masks/{id}/export", "get", export),
    ("/api/masks/{id}/border", "get", border),
    ("/api/facts", "post", facts),
    ("/api/curve", "post", curve),
    ("/api/flow", "post", flow),
    ("/api/flow/certificate", "post", flow_certificate),
    ("/api/model", "get", model),
    ("/api/text", "post", text),
    ("/api/text/certificate", "post", text_certificate),
    ("/api/doctor", "post", doctor),
    ("/api/doctor/classes", "get", |server, request| question(server, request.body, Call::Classes)),
    ("/api/language", "get", |server, request| question(server, request.body, Call::Language)),
    ("/api/presets", "get", |server, request| question(server, request.body, Call::Presets)),
    ("/api/about", "get", about),
];

/// Answers a request to the API or for a file of the page.
pub(crate) fn answer(server: &Server, head: &Head, body: &mut Body<'_>) -> Response {
    let method = if head.method == "HEAD" { "GET" } else { head.method.as_str() };
    let mut allowed = Vec::new();
    for (pattern, way, handler) in ROUTES {
        let Some(places) = places(pattern, &head.path) else { continue };
        if way.eq_ignore_ascii_case(method) {
            let answer = places.and_then(|places| handler(server, Request { places, head, body }));
            return answer.unwrap_or_else(|problem| refusal(&problem));
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
            refusal(&Problem::status(404, "this path does not exist: js/api.js has all paths"))
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

impl Request<'_, '_> {
    /// Reads the query string. Returns an error if it has a name that is not in `known`.
    fn query(&self, known: &[&str]) -> Result<Query> {
        Query::read(&self.head.query, known)
    }

    /// Returns the identity of the mask: the first variable part of the path, `places[0]`.
    fn id(&self) -> String {
        self.places.first().cloned().unwrap_or_default()
    }
}

/// Returns the parameters `batch` (batch row) and `head` of a query string. A missing parameter is 0.
fn pair(query: &Query) -> Result<Pair> {
    Ok(Pair { batch: query.number("batch")?.unwrap_or(0), head: query.number("head")?.unwrap_or(0) })
}

fn read(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (body, share) = server.body(request.body, MOST_BODY)?;
    let id = identity(&body);
    let answer = server.masks.call(Call::Read { id }, body.clone(), QUESTION, &|| request.body.gone())?;
    if answer.head.status == 200 {
        server.store.insert(body);
    }
    Ok(respond(answer, Some(share)))
}

fn tile(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let query = request.query(&["batch", "head", "plan", "other"])?;
    let [id, level, row, col] = &request.places[..] else {
        return Err(Problem::new("the path of a tile needs an id, a level, a row and a column"));
    };
    let tile = TileRequest {
        level: number("level", level)?,
        row: number("row", row)?,
        col: number("col", col)?,
        pair: pair(&query)?,
        plan: query.flag("plan")?,
        other: query.text("other"),
    };
    let answer = server.masks.call(Call::Tile { id: id.clone(), tile }, Vec::new(), TILE, &|| request.body.gone())?;
    // The identity depends only on the definition of the mask, so a tile changes only if the program changes.
    let cache = if answer.head.status == 200 { "private, max-age=300" } else { "no-store" };
    Ok(respond_cached(answer, None, cache))
}

fn explain(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (id, query) = (request.id(), request.query(&["batch", "head", "q", "k", "other"])?);
    let (Some(q), Some(k)) = (query.number("q")?, query.number("k")?) else {
        return Err(Problem::new("the cell is missing: give the parameters q and k, both counted from 0"));
    };
    let cell = CellRequest { pair: pair(&query)?, q, k, other: query.text("other") };
    question(server, request.body, Call::Explain { id, cell })
}

fn border(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (id, query) = (request.id(), request.query(&["batch", "head", "q", "k", "along", "back"])?);
    let (Some(q), Some(k)) = (query.number("q")?, query.number("k")?) else {
        return Err(Problem::new("the cell is missing: give the parameters q and k, both counted from 0"));
    };
    let queries = match query.text("along").as_deref() {
        None | Some("keys") => false,
        Some("queries") => true,
        Some(other) => return Err(Problem::new(format!("along={other}: expected keys or queries"))),
    };
    let cell = CellRequest { pair: pair(&query)?, q, k, other: None };
    let search = BorderSearch { queries, back: query.flag("back")? };
    question(server, request.body, Call::Border { id, cell, search })
}

fn facts(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (body, share) = server.body(request.body, MOST_BODY)?;
    Ok(respond(server.masks.call(Call::Facts, body, QUESTION, &|| request.body.gone())?, Some(share)))
}

fn row(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (body, share) = server.body(request.body, MOST_BODY)?;
    let answer = server.masks.call(Call::Row { id: request.id() }, body, QUESTION, &|| request.body.gone())?;
    Ok(respond(answer, Some(share)))
}

fn difference(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (id, query) = (request.id(), request.query(&["other"])?);
    let Some(other) = query.text("other") else {
        return Err(Problem::new("the second mask is missing: give the parameter `other`"));
    };
    question(server, request.body, Call::Difference { id, other })
}

fn code(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (id, query) = (request.id(), request.query(&["to"])?);
    let Some(to) = query.text("to") else {
        return Err(Problem::new("the library is missing: give for example to=flex"));
    };
    question(server, request.body, Call::Code { id, to })
}

fn cost(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let speeds = server.speeds(&numbers(&request.query(NUMBERS)?)?)?;
    question(server, request.body, Call::Cost { id: request.id(), speeds })
}

/// The parameters of requests for costs.
const NUMBERS: &[&str] = &["head_dim", "dtype"];

/// Returns the head dimension and the data type of a request for a cost.
fn numbers(query: &Query) -> Result<Numbers> {
    let head_dim = query.number("head_dim")?.unwrap_or(64);
    if !HEAD_DIMS.contains(&head_dim) {
        let listed = HEAD_DIMS.map(|dim| dim.to_string()).join(", ");
        return Err(Problem::new(format!("head_dim={head_dim}: expected {listed}")));
    }
    let dtype = query.text("dtype").unwrap_or_else(|| Dtype::F32.to_string());
    dtype.parse::<Dtype>().map_err(|_| Problem::new(format!("dtype={dtype}: expected f32, bf16 or f16")))?;
    Ok(Numbers { head_dim, dtype })
}

fn curve(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let numbers = numbers(&request.query(NUMBERS)?)?;
    let (body, share) = server.body(request.body, MOST_BODY)?;
    let speeds = server.speeds(&numbers)?;
    let answer = server.masks.call(Call::Curve { speeds }, body, QUESTION, &|| request.body.gone())?;
    Ok(respond(answer, Some(share)))
}

fn export(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (id, query) = (request.id(), request.query(&["as", "batch", "head", "plan", "other", "rows", "keys"])?);
    let one = query.text("batch").is_some() || query.text("head").is_some();
    let export = ExportRequest {
        form: query
            .text("as")
            .ok_or_else(|| Problem::new("the format of the download is missing: give for example as=svg"))?,
        pair: one.then(|| pair(&query)).transpose()?,
        plan: query.flag("plan")?,
        other: query.text("other"),
        rows: query.text("rows"),
        keys: query.text("keys"),
    };
    let most = if export.form == "npy" { MOST_EXPORT } else { MOST_BODY };
    let turn = server.masks.turn(&|| request.body.gone())?;
    // Reserves the memory of an answer only when a worker is free: requests that wait hold no memory.
    let share = server.memory(most)?;
    let answer = turn.call(Call::Export { id, export }, Vec::new(), QUESTION)?;
    Ok(respond(answer, Some(share)))
}

fn flow(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (body, share) = server.body(request.body, MOST_BODY)?;
    Ok(respond(server.masks.call(Call::Flow, body, QUESTION, &|| request.body.gone())?, Some(share)))
}

fn flow_certificate(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    certificate(server, &server.masks, Call::FlowCertificate, QUESTION, request.body)
}

fn text_certificate(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    certificate(server, &server.model, Call::TextCertificate, LONG, request.body)
}

/// Sends a call for a certificate to a worker of `pool`, and returns the worker's answer. `limit` is the maximum time of
/// the call.
fn certificate(server: &Server, pool: &Pool, call: Call, limit: Duration, body: &mut Body<'_>) -> Result<Response> {
    let (bytes, asked) = server.body(body, MOST_BODY)?;
    let turn = pool.turn(&|| body.gone())?;
    // Reserves the memory of an answer only when a worker is free: requests that wait hold no memory for it.
    let share = server.memory(MOST_BODY)?;
    let answer = turn.call(call, bytes, limit)?;
    drop(asked);
    Ok(respond(answer, Some(share)))
}

fn model(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    Ok(respond(server.model.call(Call::Model, Vec::new(), LONG, &|| request.body.gone())?, None))
}

fn text(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let (body, share) = server.body(request.body, MOST_BODY)?;
    Ok(respond(server.model.call(Call::Text, body, LONG, &|| request.body.gone())?, Some(share)))
}

fn doctor(server: &Server, request: Request<'_, '_>) -> Result<Response> {
    let query = request.query(&["name", "context", "meant", "repair"])?;
    let about = DoctorRequest {
        name: query.text("name").unwrap_or_else(|| "the file".into()),
        context: query.text("context"),
        meant: query.text("meant"),
        repair: query.flag("repair")?,
    };
    let (body, share) = server.body(request.body, MOST_FILE)?;
    let turn = server.masks.turn(&|| request.body.gone())?;
    // A repaired array can be larger than the compressed file of the given array.
    let share = if about.repair { server.memory(MOST_EXPORT)? } else { share };
    let answer = turn.call(Call::Doctor { request: about }, body, LONG)?;
    Ok(respond(answer, Some(share)))
}

/// Sends a call without a body to a worker for masks, and returns the worker's answer. The parameter `body` is only
/// used to check whether the client is still connected.
fn question(server: &Server, body: &Body<'_>, call: Call) -> Result<Response> {
    Ok(respond(server.masks.call(call, Vec::new(), QUESTION, &|| body.gone())?, None))
}

fn about(server: &Server, _: Request<'_, '_>) -> Result<Response> {
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
    Ok(Response::new(200, JSON, value.to_string()))
}

/// Returns a worker's answer as a response that is not cached. `share` is the memory that is reserved for the request's
/// body or for the answer, and released after the response is sent.
fn respond(answer: Frame<Reply>, share: Option<Share>) -> Response {
    respond_cached(answer, share, "no-store")
}

/// Returns a worker's answer as a response. `share` is the memory that is reserved for the request's body or for the
/// answer, and `cache` the value of the header `cache-control`.
fn respond_cached(answer: Frame<Reply>, share: Option<Share>, cache: &str) -> Response {
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
    use crate::http;
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
