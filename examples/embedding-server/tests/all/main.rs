//! Tests of the server over sockets of the loopback address, with a small model whose weights are those of `testdata`.

mod client;
mod model;

use client::{Response, text};
use noren_embedding_server::http::{Answer, MOST_BYTES, MOST_TEXTS, listen, routes};
use noren_embedding_server::queue::{Counts, Limits, Queue};
use noren_models::embed::Embedder;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::{JoinHandle, JoinSet};

const LIMITS: Limits = Limits { batch_tokens: 2048, waiting_tokens: 1 << 20 };

struct Server {
    embedder: Arc<Embedder>,
    address: SocketAddr,
    queue: Queue,
    task: JoinHandle<std::io::Result<()>>,
}

async fn start(limits: Limits) -> Server {
    let embedder = model::embedder();
    let (queue, _) = Queue::start(Arc::clone(&embedder), limits);
    let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(axum::serve(listener, routes(Arc::clone(&embedder), queue.clone())).into_future());
    Server { embedder, address, queue, task }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        self.queue.close();
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

fn answer(response: &Response) -> Answer {
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    serde_json::from_slice(&response.body).unwrap()
}

fn error(response: &Response) -> String {
    let body: serde_json::Value = serde_json::from_slice(&response.body).expect("the body of an error is JSON");
    body["error"].as_str().expect("the body has an error").to_owned()
}

/// Returns the bits of the vector of a text that is computed alone.
fn alone(embedder: &Embedder, text: &str) -> Vec<u32> {
    let vectors = embedder.embed(&[embedder.tokens(text).unwrap()], 1).unwrap();
    vectors[0].iter().map(|x| x.to_bits()).collect()
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn three_hundred_parallel_clients_get_the_vectors_of_single_runs() {
    block_on(async {
        let server = start(LIMITS).await;
        let address = server.address;
        let mut clients = JoinSet::new();
        for i in 0..300 {
            clients.spawn(async move {
                let texts: Vec<String> = (0..1 + i % 3).map(|j| text(3 * i + j, 400)).collect();
                (texts.clone(), client::embed(address, texts).await.unwrap())
            });
        }
        let (mut answered, mut lengths) = (0, Vec::new());
        while let Some(done) = clients.join_next().await {
            let (texts, response) = done.unwrap();
            let answer = answer(&response);
            assert_eq!(answer.vectors.len(), texts.len());
            for (text, vector) in texts.iter().zip(&answer.vectors) {
                assert_eq!(bits(vector), alone(&server.embedder, text), "{text}");
            }
            lengths.extend(answer.tokens);
            answered += 1;
        }
        assert_eq!(answered, 300);
        assert!(lengths.iter().any(|n| *n < 10) && lengths.iter().any(|n| *n > 300), "lengths are mixed");
        let counts = server.queue.counts();
        assert_eq!((counts.computed, counts.refused, counts.waiting_tokens), (300, 0, 0));
        assert!(counts.batches < 300, "requests share batches: {counts:?}");
    });
}

#[test]
fn overload_is_answered_by_503_and_never_exceeds_the_limit() {
    block_on(async {
        let limits = Limits { batch_tokens: 64, waiting_tokens: 1000 };
        let server = start(limits).await;
        let address = server.address;
        let mut clients = JoinSet::new();
        for i in 0..300 {
            clients.spawn(async move {
                let text = text(i, 400);
                (text.clone(), client::embed(address, vec![text]).await.unwrap())
            });
        }
        let (mut computed, mut refused) = (0, 0);
        while let Some(done) = clients.join_next().await {
            let (text, response) = done.unwrap();
            if response.status == 503 {
                let message = error(&response);
                assert!(message.contains("overloaded") && message.contains("the limit is 1000"), "{message}");
                assert!(response.head.to_lowercase().contains("retry-after: 1"), "{}", response.head);
                refused += 1;
            } else {
                assert_eq!(bits(&answer(&response).vectors[0]), alone(&server.embedder, &text));
                computed += 1;
            }
        }
        let counts = server.queue.counts();
        assert_eq!((counts.computed, counts.refused), (computed, refused));
        assert!(refused > 0, "the load exceeds the limit");
        assert!(counts.most_waiting_tokens <= 1000, "{counts:?}");
        // The server recovers: a request after the overload is computed.
        assert_eq!(client::embed(address, vec![text(0, 9)]).await.unwrap().status, 200);
    });
}

#[test]
fn wrong_requests_are_refused_by_name() {
    block_on(async {
        let server = start(LIMITS).await;
        let many = serde_json::to_vec(&serde_json::json!({ "texts": vec!["a"; MOST_TEXTS + 1] })).unwrap();
        let large = serde_json::to_vec(&serde_json::json!({ "texts": ["a".repeat(MOST_BYTES)] })).unwrap();
        let cases: [(&[u8], u16, &str); 8] = [
            (b"{\"texts\": []}", 400, "`texts` has 0 texts: give 1 to 256"),
            (&many, 400, "`texts` has 257 texts"),
            (b"{\"texts\": [\"a\", \"\"]}", 400, "texts[1] is empty"),
            (b"{\"texts\": \"a\"}", 422, "invalid type"),
            (b"{\"text\": [\"a\"]}", 422, "unknown field `text`"),
            (b"{\"texts\": [\"a\"", 400, "EOF"),
            (b"\xff", 400, "expected value"),
            (&large, 413, "length limit exceeded"),
        ];
        for (body, status, message) in cases {
            let response = client::send(server.address, "POST", "/embed", body).await.unwrap();
            let error = error(&response);
            assert_eq!(response.status, status, "{error}");
            assert!(error.contains(message), "{error:?} does not contain {message:?}");
        }
        assert_eq!(client::send(server.address, "GET", "/embed", b"").await.unwrap().status, 405);
        assert_eq!(client::send(server.address, "GET", "/other", b"").await.unwrap().status, 404);
        let health = client::send(server.address, "GET", "/health", b"").await.unwrap();
        let counts: serde_json::Value = serde_json::from_slice(&health.body).unwrap();
        assert_eq!((health.status, &counts["computed"]), (200, &serde_json::json!(0)));
    });
}

#[test]
fn long_texts_are_cut_and_the_answer_names_the_number_of_tokens() {
    block_on(async {
        let server = start(LIMITS).await;
        let long = ["mask"; 700].join(" ");
        let answer = answer(&client::embed(server.address, vec![long.clone()]).await.unwrap());
        assert_eq!((answer.tokens, answer.cut), (vec![model::POSITIONS], vec![700 - model::POSITIONS]));
        assert_eq!(bits(&answer.vectors[0]), alone(&server.embedder, &long));
    });
}

#[test]
fn requests_of_clients_that_left_are_not_computed() {
    let embedder = model::embedder();
    let (queue, thread) = Queue::start(Arc::clone(&embedder), Limits { batch_tokens: 1, ..LIMITS });
    let ids = embedder.tokens(&text(0, 400)).unwrap();
    // Many requests before it keep the thread busy, so that the abandoned ones wait.
    let kept: Vec<_> = (0..20).map(|_| queue.submit(vec![ids.clone(); 8]).unwrap()).collect();
    (0..5).for_each(|_| drop(queue.submit(vec![ids.clone()]).unwrap()));
    queue.close();
    assert!(queue.submit(vec![ids]).is_err_and(|refused| refused.to_string().contains("shutting down")));
    thread.join().unwrap();
    for receiver in kept {
        assert_eq!(receiver.blocking_recv().unwrap().unwrap().len(), 8);
    }
    let Counts { computed, abandoned, waiting_tokens, .. } = queue.counts();
    assert_eq!((computed, abandoned, waiting_tokens), (20, 5, 0));
}

#[test]
fn a_faulty_request_does_not_fail_the_requests_of_its_batch() {
    let embedder = model::embedder();
    let (queue, _) = Queue::start(Arc::clone(&embedder), LIMITS);
    let good = embedder.tokens("the mask").unwrap();
    let receivers: Vec<_> =
        [good.clone(), vec![1_000_000], good.clone()].map(|ids| queue.submit(vec![ids]).unwrap()).into_iter().collect();
    let results: Vec<_> = receivers.into_iter().map(|r| r.blocking_recv().unwrap()).collect();
    let expected = alone(&embedder, "the mask");
    assert_eq!(bits(&results[0].as_ref().unwrap()[0]), expected);
    assert!(results[1].as_ref().unwrap_err().contains("1000000"), "{:?}", results[1]);
    assert_eq!(bits(&results[2].as_ref().unwrap()[0]), expected);
    queue.close();
}
