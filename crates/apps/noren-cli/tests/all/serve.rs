//! `noren serve`: every response is compared with the library; hostile clients do not stop the server.

#![cfg(all(feature = "models", feature = "serve"))]

use noren_mask::{Facts, Mask, Plan, PlanOptions, Reorder, Shape};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running explorer, which is stopped at the end of the test.
struct Explorer {
    process: Child,
    port: u16,
}

impl Drop for Explorer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A response of the server.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Returns the value of a header, in lower case.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn error(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_string()
    }
}

impl Explorer {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_noren"))
            .args(["serve", "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a first line");
        let port = line.trim().trim_start_matches("http://127.0.0.1:").trim_end_matches('/').parse().expect("a port");
        Explorer { process, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(90))).expect("a time-out");
        stream
    }

    /// Sends bytes unchanged, and reads until the server closes the connection.
    fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        Answer { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            self.port,
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// Returns the id of a scene.
    fn mask(&self, scene: &Value) -> String {
        let answer = self.post("/api/masks", scene);
        answer.json()["id"].as_str().unwrap_or_else(|| panic!("{scene}: {}", answer.error())).to_string()
    }

    /// Asserts that the server still answers, and quickly.
    fn lives(&self) {
        let start = Instant::now();
        let answer = self.post("/api/masks", &json!({ "mask": "causal" }));
        assert_eq!(answer.status, 200, "{}", answer.error());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

#[test]
fn the_page_and_what_it_may_do() {
    let explorer = Explorer::start();
    let page = explorer.get("/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("text/html") && page.head.contains("default-src 'self'"), "{}", page.head);
    let tag = page.header("etag").expect("a tag").to_string();
    let text = String::from_utf8(page.body).expect("UTF-8");
    assert!(!text.contains("http://") && !text.contains("https://"), "the page asks for something elsewhere");
    for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".into()] {
        let same = explorer.ask("GET", "/", &format!("If-None-Match: {known}\r\n"), b"");
        assert_eq!((same.status, same.body.len()), (304, 0), "{known}");
        assert_eq!((same.header("etag"), same.header("cache-control")), (Some(&tag[..]), Some("no-cache")), "{known}");
    }
    assert_eq!(explorer.ask("GET", "/", "If-None-Match: \"other\"\r\n", b"").status, 200);
    for path in ["/", "/api/presets"] {
        let (head, whole) = (explorer.ask("HEAD", path, "", b""), explorer.get(path));
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), whole.header("content-length"), "{path}");
    }
    for answer in [explorer.get("/"), explorer.get("/api/presets"), explorer.get("/nothing")] {
        let date = answer.header("date").expect("a date");
        assert!(date.len() == 29 && date.ends_with(" gmt"), "{date}");
    }
    for path in
        ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "/js/../../Cargo.toml", "/etc/passwd", "/README.md", "//", "/js/"]
    {
        assert_eq!(explorer.get(path).status, 404, "{path}");
    }
}

/// Compares the borders that the server finds with those of a search cell by cell.
#[test]
fn borders_are_those_of_the_cells() {
    let explorer = Explorer::start();
    let facts = json!({ "documents": [[4, 3, 5, 588], [600]], "lengths": [600, 417] });
    let mut seed = 11;
    for mask in ["causal & documents & padding", "random(0.01, 3)", "sliding(9) | keys(300)", "full", "none"] {
        let shape = json!({ "len": 600, "batch": 2, "heads": 2 });
        let id = explorer.mask(&json!({ "mask": mask, "shape": shape, "facts": facts }));
        let given = Facts::from_json(&facts.to_string()).expect("facts");
        let sizes = Shape::square(600).batch(2).heads(2);
        let bound = mask.parse::<Mask>().expect("a mask").bind(&sizes, &given).expect("sizes");
        for _ in 0..24 {
            let [batch, head, q, k] = [2, 2, 600, 600].map(|end| below(&mut seed, end) as usize);
            let (along, back) = (below(&mut seed, 2), below(&mut seed, 2));
            let cell = |at: usize| if along == 0 { (q, at) } else { (at, k) };
            let allowed = |at: usize| bound.allowed(batch, head, cell(at).0, cell(at).1);
            let from = if along == 0 { k } else { q };
            let differs = |at: &usize| allowed(*at) != allowed(from);
            let expected = if back == 1 { (0..from).rfind(differs) } else { (from + 1..600).find(differs) };
            let along = ["keys", "queries"][along as usize];
            let place = format!("?batch={batch}&head={head}&q={q}&k={k}&along={along}&back={back}");
            let answer = explorer.get(&format!("/api/masks/{id}/border{place}")).json();
            let found = expected.map(|at| json!({ "q": cell(at).0, "k": cell(at).1 }));
            assert_eq!(answer["cell"], json!(found), "{mask}: {place}");
            assert_eq!(answer["allowed"], allowed(from), "{mask}: {place}");
        }
    }
}

/// A generator of reproducible numbers from 0 to less than `end`.
fn below(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

/// Returns the number of rows, the number of columns and the cells of a tile.
fn tile(bytes: &[u8]) -> (usize, usize, &[u8]) {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    (number(0), number(4), &bytes[16..])
}

#[test]
fn tiles_are_what_the_mask_says() {
    let explorer = Explorer::start();
    let cases = [
        ("causal & documents", r#"{"documents": [[100, 70, 130], [300]]}"#, "sliding(40)"),
        ("heads(0: sliding(70), else: causal & stride(3)) & padding", r#"{"lengths": [300, 177]}"#, "causal"),
        ("random(0.4, 3) | neighborhood(grid=[20, 15], size=[5, 3])", "{}", "!causal"),
        (r#"causal - keys(label="pii")"#, r#"{"labels": {"pii": [[5, "100..140"], [7]]}}"#, "causal"),
    ];
    for (mask, facts, other) in cases {
        let shape = json!({ "len": 300, "batch": 2, "heads": 2 });
        let facts: Value = serde_json::from_str(facts).expect("JSON");
        let id = explorer.mask(&json!({ "mask": mask, "shape": shape, "facts": facts }));
        let second = explorer.mask(&json!({ "mask": other, "shape": shape, "facts": facts }));
        let facts = Facts::from_json(&facts.to_string()).expect("facts");
        let bind = |text: &str| {
            let mask: Mask = text.parse().expect("a mask");
            mask.bind(&Shape::square(300).batch(2).heads(2), &facts).expect("bound")
        };
        let (a, b) = (bind(mask), bind(other));
        let plan: Plan = a.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() });
        for level in [0, 1, 3] {
            let step = 1usize << level;
            for (batch, head, row, col) in [(0, 0, 0, 0), (1, 1, 0, 0), (1, 0, if level == 0 { 1 } else { 0 }, 0)] {
                let at = format!("{level}/{row}/{col}?batch={batch}&head={head}");
                let answer = explorer.get(&format!("/api/masks/{id}/tiles/{at}&plan=1&other={second}"));
                assert_eq!(answer.status, 200, "{}", answer.error());
                let (rows, cols, cells) = tile(&answer.body);
                assert_eq!(cells.len(), rows * cols);
                let spans = &plan.patterns()[plan.pattern_of(batch, head)];
                for (i, cell) in cells.iter().enumerate() {
                    let start = [(row * 256 + i / cols) * step, (col * 256 + i % cols) * step];
                    let places = || {
                        let end = start.map(|at| (at + step).min(300));
                        (start[0]..end[0]).flat_map(move |q| (start[1]..end[1]).map(move |k| (q, k)))
                    };
                    let cover = |of: &dyn Fn(usize, usize) -> bool| {
                        let (all, none) = (places().all(|(q, k)| of(q, k)), !places().any(|(q, k)| of(q, k)));
                        if none { 0 } else { 1 + u8::from(all) }
                    };
                    let (in_a, in_b) = (|q, k| a.allowed(batch, head, q, k), |q, k| b.allowed(batch, head, q, k));
                    let computed =
                        spans.tiles().flat_map(|tile| tile.spans.iter().map(move |s| (tile.start..tile.end, s)));
                    let kind = computed
                        .filter(|(rows, span)| {
                            let meets =
                                |a: u32, b: u32, at: usize| (a as usize) < (at + step).min(300) && at < b as usize;
                            meets(rows.start, rows.end, start[0]) && meets(span.start, span.end, start[1])
                        })
                        .map(|(_, span)| if span.kind == noren_mask::SpanKind::Mixed { 2 } else { 1 })
                        .max();
                    let expected = cover(&in_a)
                        | kind.map_or(0, |kind| 3 - kind) << 2
                        | u8::from(places().any(|(q, k)| in_a(q, k) && !in_b(q, k))) << 4
                        | u8::from(places().any(|(q, k)| in_b(q, k) && !in_a(q, k))) << 5
                        | cover(&in_b) << 6;
                    assert_eq!(*cell, expected, "{mask} at {at}: cell {i}, {start:?}");
                }
            }
        }
        let first = a.first_difference(&b).expect("comparable").expect("a difference");
        let said = explorer.get(&format!("/api/masks/{id}/difference?other={second}")).json();
        assert_eq!([&said["first"]["q"], &said["first"]["k"]], [&json!(first.q), &json!(first.k)]);
        let answer = explorer.get(&format!("/api/masks/{id}/explain?q=9&k=7&batch=1&other={second}")).json();
        assert_eq!(answer["text"], json!(a.explain(1, 0, 9, 7).expect("inside").to_string()));
        assert_eq!(answer["other_allowed"], json!(b.allowed(1, 0, 9, 7)));
        let stats = explorer.get(&format!("/api/masks/{id}/cost")).json();
        assert_eq!(stats["allowed"], json!(a.plan().stats().allowed.to_string()));
    }
}

#[test]
fn masks_have_code_for_every_library_or_a_reason() {
    let explorer = Explorer::start();
    let mask = "heads(0: causal, else: sliding(3)) & documents + softcap(30)";
    let id =
        explorer.mask(&json!({ "mask": mask, "shape": { "len": 8, "heads": 2 }, "facts": { "documents": [5, 3] } }));
    let shape = noren_mask::Shape::square(8).heads(2);
    let facts = noren_mask::Facts::new().documents(vec![5, 3]);
    let spec = mask.parse().expect("a mask");
    let language = explorer.get("/api/language").json();
    assert_eq!(language["targets"].as_array().map(Vec::len), Some(noren_code::Target::ALL.len()));
    for target in noren_code::Target::ALL {
        let answer = explorer.get(&format!("/api/masks/{id}/code?to={target}")).json();
        match noren_code::code(&spec, &shape, &facts, target) {
            Ok(code) => assert_eq!((&answer["code"], &answer["inputs"]), (&json!(code.text), &json!(code.inputs))),
            Err(error) => assert_eq!((&answer["code"], &answer["reason"]), (&json!(null), &json!(error.to_string()))),
        }
    }
    let answer = explorer.get(&format!("/api/masks/{id}/code?to=tensorflow"));
    assert!(
        answer.error().contains("\"tensorflow\" is not a target of code: give one of python"),
        "{}",
        answer.error()
    );
}

#[test]
fn masks_are_taken_away_in_every_form() {
    let explorer = Explorer::start();
    let id = explorer.mask(
        &json!({ "mask": "causal & padding + softcap(30)", "shape": { "batch": 2 }, "facts": { "lengths": [5, 3] } }),
    );
    let get = |form: &str| {
        let answer = explorer.get(&format!("/api/masks/{id}/export?as={form}"));
        assert_eq!(answer.status, 200, "{form}: {}", answer.error());
        assert!(answer.head.contains("attachment; filename=\"mask."), "{}", answer.head);
        answer.body
    };
    assert!(get("svg").starts_with(b"<svg"));
    assert!(get("png").starts_with(b"\x89PNG"));
    let page = String::from_utf8(get("html")).expect("a page");
    assert!(
        page.starts_with("<!doctype html>") && page.contains("<code>causal &amp; padding + softcap(30)</code>"),
        "{page}"
    );
    assert_eq!(get("expression"), b"causal & padding + softcap(30)\n");
    assert_eq!(String::from_utf8_lossy(&get("notebook")), include_str!("../../../../../testdata/explorer/cell.py"));
    let markdown = String::from_utf8(get("markdown")).expect("text");
    assert!(markdown.starts_with("```text\ncausal & padding\n"), "{markdown}");
    let command = "noren show 'causal & padding + softcap(30)' --len 5 --batch 2 --facts <(echo '{\"lengths\":[5,3]}')";
    assert!(markdown.ends_with(&format!("\n```\n\n```sh\n{command}\n```\n")), "{markdown}");
    let scene: Value = serde_json::from_slice(&get("json")).expect("JSON");
    assert_eq!(scene["facts"]["lengths"], json!([5, 3]));
    let cells = get("npy");
    let second_row: Vec<u8> = (0..25).map(|i| u8::from(i % 5 <= i / 5 && i % 5 < 3)).collect();
    assert_eq!(cells[cells.len() - 25..], second_row);
    let answer = explorer.get(&format!("/api/masks/{id}/export?as=gif"));
    assert!(answer.status == 400 && answer.error().contains("expected svg"), "{}", answer.error());
}

#[test]
fn a_faulty_mask_is_repaired() {
    let explorer = Explorer::start();
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let header = "{'descr': '|b1', 'fortran_order': False, 'shape': (6, 6), }\n";
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend((0..36).map(|i| u8::from(i % 6 <= i / 6 + 1)));
    let path = "/api/doctor?name=mask.npy&context=%7B%22kind%22%3A%22causal%22%2C%22convention%22%3A%22keep_bool%22%7D";
    let report = explorer.ask("POST", path, "", &file).json();
    assert_eq!(report["classes"], json!(["causal_leak"]), "{report}");
    let fixed = report["fixed"].as_str().expect("a repair");
    let cells = explorer.get(&format!("/api/masks/{fixed}/export?as=npy")).body;
    let expected: Vec<u8> = (0..36).map(|i| u8::from(i % 6 <= i / 6)).collect();
    assert_eq!(cells[cells.len() - 36..], expected);
    let repaired = explorer.ask("POST", &format!("{path}&repair=1"), "", &file);
    assert_eq!((repaired.status, &report["repaired"]), (200, &json!(true)), "{}", repaired.error());
    assert_eq!(repaired.body[repaired.body.len() - 36..], expected);
    assert!(String::from_utf8_lossy(&repaired.body).contains("'shape': (6, 6)"));
    let given = report["given"].as_str().expect("what was given");
    let difference = explorer.get(&format!("/api/masks/{given}/difference?other={fixed}")).json();
    assert_eq!([&difference["only_this"], &difference["only_other"]], [&json!(5), &json!(0)]);

    for (file, name) in [(&b"\x80\x04pickle"[..], "mask.pt"), (b"", "mask.npy"), (b"PK\x03\x04nothing", "mask.npz")] {
        let answer = explorer.ask("POST", &format!("/api/doctor?name={name}"), "", file);
        assert!(answer.status == 400 && answer.error().contains(name), "{}: {}", answer.status, answer.error());
    }
    explorer.lives();
}

/// Returns the exit code of `noren verify` for a certificate, and what the command prints.
fn verify(certificate: &[u8]) -> (Option<i32>, String) {
    let path = std::env::temp_dir().join(format!("noren-certificate-{:?}.json", std::thread::current().id()));
    std::fs::write(&path, certificate).expect("a temporary file");
    let output =
        Command::new(env!("CARGO_BIN_EXE_noren")).arg("verify").arg(&path).output().expect("the program starts");
    let _ = std::fs::remove_file(&path);
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn certificates_are_accepted_by_verify() {
    let explorer = Explorer::start();
    let stack = |policy: &str| {
        json!({
            "layers": ["causal & documents", "sliding(3)"], "depth": 4, "shape": { "batch": 2 },
            "facts": { "documents": [[4, 4], [8]], "labels": { "pii": [2] } }, "fill": "finite", "policy": policy,
        })
    };
    for (policy, code) in [("deny: token(7) -> tokens(0..7)", 0), ("deny: label(pii) -> output", 1)] {
        let answer = explorer.post("/api/flow/certificate", &stack(policy));
        assert!(answer.head.contains("attachment; filename=\"certificate.json\""), "{}", answer.head);
        let (status, printed) = verify(&answer.body);
        assert_eq!(status, Some(code), "{policy}: {printed}");
        let changed = String::from_utf8_lossy(&answer.body).replace("sliding(3)", "sliding(2)");
        assert_eq!(verify(changed.as_bytes()).0, Some(2));
    }
    let answer = explorer.post("/api/flow/certificate", &stack("# nothing"));
    assert!(answer.status == 400 && answer.error().contains("has no rule"), "{}", answer.error());
    let long = json!({ "layers": ["causal"], "shape": { "len": 8 }, "policy": "#".repeat(20_000) });
    assert_eq!(explorer.post("/api/flow/certificate", &long).status, 400);

    let text = "Mr Bingley wrote to ann@longbourn.example from Netherfield.";
    for mask in [Value::Null, json!("full"), json!("causal & sliding(4)")] {
        let asked = json!({ "text": text, "hide": ["email"], "words": ["Bingley"], "mask": mask });
        let answer = explorer.post("/api/text/certificate", &asked);
        let certificate = String::from_utf8(answer.body.clone()).expect("text");
        assert!(answer.head.contains("attachment; filename=\"proof.json\""), "{}", answer.head);
        for word in ["Bingley", "longbourn", "Netherfield", "wrote"] {
            assert!(!certificate.contains(word), "{certificate}");
        }
        let (status, printed) = verify(&answer.body);
        assert_eq!(status, Some(0), "{printed}");
        let layers = explorer.get("/api/model").json()["layers"].clone();
        assert_eq!(answer.json()["layers"].as_array().map(Vec::len), layers.as_u64().map(|n| n as usize));
    }
    for wrong in
        [json!({ "text": text }), json!({ "text": " ", "hide": ["email"] }), json!({ "text": text, "hide": ["x"] })]
    {
        assert_eq!(explorer.post("/api/text/certificate", &wrong).status, 400, "{wrong}");
    }
    explorer.lives();
}

#[test]
fn leaks_are_followed() {
    let explorer = Explorer::start();
    let stack = json!({
        "layers": ["documents | global(0)"], "depth": 3, "shape": { "len": 24 }, "facts": { "documents": [8, 8, 8] },
        "policy": "deny: document(i) -> document(j)", "token": 20,
    });
    let flow = explorer.post("/api/flow", &stack).json();
    assert_eq!((&flow["verdict"], &flow["pairs"]), (&json!("broken"), &json!(3 * 8 * 16)));
    assert_eq!(flow["back"].as_array().map(Vec::len), Some(4));
    assert_eq!(flow["back"][1], json!([[0, 1], [16, 24]]));
    assert!(flow["violations"][0]["witness"]["steps"].as_array().is_some_and(|steps| !steps.is_empty()));
    let answer = explorer.post("/api/flow", &json!({ "layers": ["causal", "cuasal"] }));
    assert_eq!(answer.json()["error"]["layer"], json!(1));
    let wrong =
        explorer.post("/api/flow", &json!({ "layers": ["causal"], "policy": "# first\ndeny: nonsense" })).json();
    assert_eq!(wrong["policy_error"]["line"], json!(2), "{wrong}");
}

#[test]
fn a_text_keeps_its_secret() {
    let explorer = Explorer::start();
    let asked =
        json!({ "text": "Mail ann@x.example today, please, before the ball begins", "hide": ["email"], "layer": 1 });
    let answer = explorer.post("/api/text", &asked).json();
    assert_eq!((&answer["test"]["holds"], &answer["test"]["leaks"]), (&json!(true), &json!([])), "{answer}");
    let units = answer["units"].as_array().expect("units");
    assert!(units.iter().any(|unit| unit["private"] == "email" && unit["hidden"] == true), "{units:?}");
    assert_eq!(answer["attention"].as_array().map(Vec::len), Some(units.len()));
    let id = answer["id"].as_str().expect("a mask");
    assert_eq!(explorer.get(&format!("/api/masks/{id}/tiles/0/0/0?head=3")).status, 200);
    for wrong in [
        json!({ "text": " " }),
        json!({ "text": "x", "layer": 99 }),
        json!({ "text": "x", "hide": ["nobody"] }),
        json!({}),
    ] {
        assert_eq!(explorer.post("/api/text", &wrong).status, 400, "{wrong}");
    }
}

#[test]
fn only_its_own_page_is_answered() {
    let explorer = Explorer::start();
    let body = br#"{"mask": "causal"}"#;
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Host: evil.example\r\n",
    ] {
        assert_eq!(explorer.ask("POST", "/api/masks", headers, body).status, 403, "{headers}");
    }
    assert_eq!(explorer.raw(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").status, 403);
    let own = format!("Origin: http://127.0.0.1:{}\r\nSec-Fetch-Site: same-origin\r\n", explorer.port);
    let answer = explorer.ask("POST", "/api/masks", &own, body);
    assert_eq!(answer.status, 200);
    assert!(!answer.head.contains("access-control-allow"), "{}", answer.head);
}

#[test]
fn malformed_questions_have_clear_answers() {
    let explorer = Explorer::start();
    let deep = format!("{}causal{}", "!(".repeat(4000), ")".repeat(4000));
    for (scene, says) in [
        (json!({ "mask": "cuasal" }), "unknown name"),
        (json!({ "mask": deep }), "levels of nesting"),
        (json!({ "mask": "causal | ".repeat(4000) }), "bytes"),
        (json!({ "mask": "causal", "shape": { "len": 4_000_000_000u64 } }), "shows at most"),
        (json!({ "mask": "causal", "shape": { "len": -1 } }), "not have the expected format"),
        (json!({ "mask": "causal", "shape": { "len": 8, "batch": 100_000, "heads": 100 } }), "too large"),
        (json!({ "mask": "causal", "shape": { "len": 8, "batch": 100_000 } }), "pairs"),
        (json!({ "mask": "documents" }), "documents"),
        (json!({ "mask": "causal", "facts": { "lenghts": [3] } }), "lenghts"),
        (json!([1, 2]), "not have the expected format"),
    ] {
        let answer = explorer.post("/api/masks", &scene);
        assert!(answer.status == 400 && answer.error().contains(says), "{says}: {} {}", answer.status, answer.error());
    }
    let id = explorer.mask(&json!({ "mask": "causal" }));
    for (path, status) in [
        ("tiles/0/0/0?head=9".to_string(), 400),
        ("tiles/23/0/0".into(), 404),
        ("tiles/0/18446744073709551615/0".into(), 404),
        ("tiles/0/1/0".into(), 404),
        ("tiles/0/-1/0".into(), 400),
        ("explain?q=99&k=0".into(), 400),
        ("explain?q=1".into(), 400),
        ("code".into(), 400),
        ("code?to=tensorflow".into(), 400),
        ("explain?q=1&k=1&nonsense=1".into(), 400),
        ("difference?other=00".into(), 410),
        ("export?as=svg&rows=9..3".into(), 400),
    ] {
        let answer = explorer.get(&format!("/api/masks/{id}/{path}"));
        assert_eq!(answer.status, status, "{path}: {}", answer.error());
        assert!(!answer.error().is_empty(), "{path}");
    }
    assert_eq!(explorer.get("/api/masks/unknown/cost").status, 410);
    assert_eq!(explorer.get("/api/nothing").status, 404);
    assert_eq!(explorer.ask("POST", "/api/nothing", "", b"").status, 404);
    for (method, path, allowed) in
        [("DELETE", "/api/masks", "post"), ("POST", "/api/presets", "get, head"), ("PUT", "/js/main.js", "get, head")]
    {
        let answer = explorer.ask(method, path, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{method} {path}");
    }
    assert_eq!(explorer.ask("POST", "/api/masks", "", b"\xff\xfe{").status, 400);
    // If the page requests it, the status is sent in a header and the response has status 200.
    let quiet = explorer.ask("POST", "/api/masks", "X-Noren-Errors: 200\r\n", br#"{"mask": "cuasal"}"#);
    assert!(quiet.status == 200 && quiet.head.contains("x-noren-status: 400"), "{}", quiet.head);
    assert_eq!(quiet.json()["error"]["start"], json!(0));
    explorer.lives();
}

#[test]
fn malformed_http_gets_a_status() {
    let explorer = Explorer::start();
    let own = format!("HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n", explorer.port);
    let post = |rest: &str| format!("POST /api/masks {own}{rest}");
    let chunks = |rest: &str| post(&format!("Transfer-Encoding: chunked\r\n\r\n{rest}"));
    for (request, status) in [
        ("GET\r\n\r\n".into(), 400),
        ("GET / HTTP/3.0\r\n\r\n".into(), 400),
        (format!("GET http://evil.example/ {own}\r\n"), 403),
        (format!("GET / {own}{}\r\n", "a: b\r\n".repeat(101)), 431),
        (format!("GET / {own}a: {}\r\n\r\n", "b".repeat(70_000)), 431),
        (post("Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), 400),
        (post("Content-Length: -1\r\n\r\n"), 400),
        (post("Content-Length: 99999999999999999999\r\n\r\n"), 400),
        (post("Transfer-Encoding: gzip\r\n\r\n"), 400),
        (post("Content-Length: 8388609\r\n\r\n"), 413),
        (chunks("10000000000000000\r\n"), 400),
        (chunks("+1\r\nx\r\n"), 400),
        (chunks("1\r\nxy\r\n"), 400),
        (chunks("\r\n"), 400),
        (chunks(&format!("0\r\n{}\r\n", "a: b\r\n".repeat(4000))), 400),
    ] {
        assert_eq!(explorer.raw(request.as_bytes()).status, status, "{request:.120}");
    }
    let chunked =
        explorer.raw(chunks("2;ext=1\r\n{\"\r\nf\r\nmask\":\"causal\"}\r\n0\r\nTrailer: 1\r\n\r\n").as_bytes());
    assert_eq!(chunked.status, 200, "{}", chunked.error());
    let body = r#"{"mask": "causal"}"#;
    let patient = explorer.ask("POST", "/api/masks", "Expect: 100-continue\r\n", body.as_bytes());
    assert!(patient.status == 100 && patient.body.starts_with(b"HTTP/1.1 200 OK"), "{}", patient.head);
    explorer.lives();
}

#[test]
fn the_server_outlives_what_is_asked_of_it() {
    let explorer = Explorer::start();
    // Requests longer than the limit, with and without a stated length.
    let head = |rest: &str| {
        format!("POST /api/masks HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n{rest}\r\n", explorer.port)
    };
    assert_eq!(explorer.raw(head("Content-Length: 99999999999\r\n").as_bytes()).status, 413);
    let mut flood = head("Transfer-Encoding: chunked\r\n").into_bytes();
    let piece = [&b"100000\r\n"[..], &[b' '; 0x100000], b"\r\n"].concat();
    (0..12).for_each(|_| flood.extend(&piece));
    assert!(matches!(explorer.raw(&flood).status, 413 | 0));
    assert!(matches!(explorer.raw(b"\x16\x03\x01 no HTTP at all\r\n\r\n").status, 400 | 0));
    assert!(matches!(
        explorer.raw(&[b"GET / HTTP/1.1\r\nX: ", &[b'a'; 300_000][..], b"\r\n\r\n"].concat()).status,
        400 | 431 | 0
    ));

    // Clients that send one byte and wait do not keep others from being served.
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = explorer.connect();
            stream.write_all(b"P").expect("a byte");
            stream
        })
        .collect();
    explorer.lives();

    // A computation that takes too long is ended.
    let long = explorer.mask(&json!({ "mask": "random(0.000000001, 1)", "shape": { "len": 4_194_304 } }));
    let answer = explorer.get(&format!("/api/masks/{long}/tiles/14/0/0"));
    assert_eq!(answer.status, 408, "{}", answer.error());
    assert!(answer.error().contains("longer than 5 s"), "{}", answer.error());
    explorer.lives();

    // Many requests at once.
    let (explorer, id) =
        (&explorer, &explorer.mask(&json!({ "mask": "causal & stride(3)", "shape": { "len": 65_536 } })));
    std::thread::scope(|scope| {
        for worker in 0..32 {
            scope.spawn(move || {
                for i in 0..6 {
                    let answer = explorer.get(&format!("/api/masks/{id}/tiles/0/{worker}/{i}"));
                    assert!(matches!(answer.status, 200 | 503), "{}", answer.status);
                }
            });
        }
    });
    drop(slow);
    explorer.lives();
}

#[test]
fn connections_beyond_the_limit_get_a_status() {
    let explorer = Explorer::start();
    let open: Vec<TcpStream> = (0..256).map(|_| explorer.connect()).collect();
    let answer = explorer.get("/");
    assert!(answer.status == 503 && answer.error().contains("connections"), "{}: {}", answer.status, answer.head);
    assert_eq!(answer.header("connection"), Some("close"));
    drop(open);
    // The server notices the closed connections one after another.
    let freed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        explorer.get("/").status == 200
    });
    assert!(freed);
}

/// Kills the processes that the server has started, and expects new ones.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_ends_is_replaced() {
    let explorer = Explorer::start();
    let id = explorer.mask(&json!({ "mask": "causal & chunk(4)" }));
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", explorer.process.id())).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{}/task", explorer.process.id())).expect("threads");
    let mut ended = 0;
    for thread in threads.flatten() {
        let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in list.split_whitespace() {
            ended +=
                usize::from(Command::new("kill").args(["-9", child]).status().is_ok_and(|status| status.success()));
        }
    }
    assert!(ended > 0, "no worker found, {children:?}");
    // Only the request that discovers the ended process may fail.
    let statuses: Vec<u16> = (0..4).map(|_| explorer.get(&format!("/api/masks/{id}/tiles/0/0/0")).status).collect();
    assert_eq!(statuses[3], 200, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 507)), "{statuses:?}");
}
