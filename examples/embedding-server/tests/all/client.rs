//! The texts of the tests. Sends requests to a server and reads the responses. Each request uses a new TCP connection.

use noren_embedding_server::http::Request;
use std::io::{Error, Result};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP response of the server.
#[derive(Debug)]
pub(crate) struct Response {
    /// The HTTP status code, such as 200.
    pub(crate) status: u16,
    /// The header lines, without the status line.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// Sends texts to `/embed` and returns the response.
pub(crate) async fn embed(address: SocketAddr, texts: Vec<String>) -> Result<Response> {
    let body = serde_json::to_vec(&Request { texts })?;
    send(address, "POST", "/embed", &body).await
}

/// Sends a request with a JSON body and returns the response.
pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Result<Response> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    // A server may refuse a large body before it has read all of it.
    let written = stream.write_all(body).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    parse(&answer).ok_or_else(|| written.err().or(read.err()).unwrap_or_else(|| Error::other("the answer is not HTTP")))
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let (first, head) = head.split_once("\r\n")?;
    let status = first.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, head: head.to_owned(), body: answer[end + 4..].to_vec() })
}

/// Returns a text of 3 to `most` words from a fixed list. `number` selects the text.
pub(crate) fn text(number: usize, most: usize) -> String {
    const WORDS: [&str; 12] =
        ["the", "mask", "of", "a", "query", "reads", "keys", "in", "its", "document", "and", "no"];
    // a multiplicative hash spreads the lengths over the requests
    let hash = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let part = (hash >> 11) as f64 / (1u64 << 53) as f64;
    let words = (3.0 * (most.max(3) as f64 / 3.0).powf(part)).round() as usize;
    (0..words).map(|i| WORDS[(hash >> (i % 48)) as usize % WORDS.len()]).collect::<Vec<_>>().join(" ")
}
