//! Sends requests to a server and reads the responses. Each request uses a new TCP connection.

use crate::http::Request;
use std::io::{Error, Result};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP response of the server.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status code, such as 200.
    pub status: u16,
    /// The header lines, without the status line.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends texts to `/embed` and returns the response.
///
/// # Errors
/// Returns an error if the connection fails, or if the answer is not HTTP.
pub async fn embed(address: SocketAddr, texts: Vec<String>) -> Result<Response> {
    let body = serde_json::to_vec(&Request { texts })?;
    send(address, "POST", "/embed", &body).await
}

/// Sends a request with a JSON body and returns the response.
///
/// # Errors
/// Returns an error if the connection fails, or if the answer is not HTTP.
pub async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Result<Response> {
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
