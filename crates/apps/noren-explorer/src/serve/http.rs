//! HTTP/1.1 on one connection: heads of requests, bodies and responses, each with a limit on its size and its time.
//!
//! One thread serves a connection, one request after another. A size is compared with its limit before the bytes are
//! read into memory.

use crate::serve::budget::Share;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant, SystemTime};

/// The maximum time that a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(20);
/// The maximum time that a client may take to send the body of a request.
pub(crate) const BODY: Duration = Duration::from_secs(60);
/// The maximum time that a client may take to accept the next bytes of a response.
const PIECE: Duration = Duration::from_secs(30);
/// The maximum time that a client may take to receive a whole response.
const RESPONSE: Duration = Duration::from_secs(120);
/// The maximum time for which the server, before it closes a connection, reads bytes that the client still sends. If
/// the server closed at once, the client might not receive the response.
const LINGER: Duration = Duration::from_secs(1);
/// The maximum number of bytes that the server reads from the client after the response, before the server closes the
/// connection.
const MOST_LINGER: usize = 1 << 20;
/// The maximum size of a request's head, in bytes.
const MOST_HEAD: usize = 64 << 10;
/// The maximum number of headers of a request.
const MOST_HEADERS: usize = 100;
/// The maximum length of a line in a chunked body, in bytes. Such a line has the length of the next chunk. Also the
/// maximum total length of the lines after the last chunk.
const MOST_LINE: usize = 1 << 10;
/// The maximum number of bytes that one call of `receive` reads from the connection.
const PIECE_BYTES: usize = 64 << 10;

/// The head of an HTTP request: the method, the path, the query string and the headers.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// The path of the request as sent: percent signs are not decoded.
    pub(crate) path: String,
    /// The query string (the part after the question mark) as sent: percent signs are not decoded.
    pub(crate) query: String,
    headers: Vec<(String, Vec<u8>)>,
    /// Whether the client keeps the connection open for another request.
    keep_alive: bool,
}

impl Head {
    /// Returns the values of all headers with this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Returns the value of the first header with this name; `None` if the head has no such header.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Parses the head of a request. If the head is invalid, returns the HTTP status of the error response: 431 for too
    /// many headers, otherwise 400.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Head, u16> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(431),
            _ => return Err(400),
        }
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
            return Err(400);
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !path.starts_with('/') {
            return Err(400);
        }
        let headers: Vec<_> = request.headers.iter().map(|h| (h.name.to_string(), h.value.to_vec())).collect();
        let mut head =
            Head { method: method.into(), path: path.into(), query: query.into(), headers, keep_alive: false };
        let close = head.all("connection").any(|value| value.to_ascii_lowercase().windows(5).any(|w| w == b"close"));
        head.keep_alive = version == 1 && !close;
        Ok(head)
    }
}

/// A response to a request.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The memory that is reserved for the request's body or for the answer, and released after the response is sent;
    /// `None` if no memory is reserved.
    #[expect(dead_code, reason = "the field only holds the reserved memory until it is dropped")]
    pub(crate) share: Option<Share>,
}

impl Response {
    /// Returns a response with this status, content type and body.
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Response { status, headers: vec![("content-type", content_type.into())], body: body.into(), share: None }
    }

    /// Adds a header, and returns the response.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The reason why a body cannot be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The body has more bytes than the limit.
    Large,
    /// The body does not arrive within the time [`BODY`].
    Slow,
    /// The body does not have the format that the head of the request announces. The text is the reason.
    Broken(String),
}

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => BodyError::Slow,
            _ => BodyError::Broken(error.to_string()),
        }
    }
}

/// The body of a request. The bytes are read from the connection only when a handler needs them.
pub(crate) struct Body<'a> {
    connection: &'a mut Connection,
    /// The length of the body in bytes; `None` if the body is sent in chunks (`transfer-encoding: chunked`).
    length: Option<u64>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    waits: bool,
    /// Whether the whole body has been read.
    pub(crate) is_read: bool,
}

impl<'a> Body<'a> {
    /// Returns the body that a head announces; `None` if the headers contradict each other or have an unknown value.
    fn of(head: &Head, connection: &'a mut Connection) -> Option<Self> {
        let waits = head.header("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let pieces: Vec<&[u8]> = head.all("transfer-encoding").collect();
        let lengths: Vec<&[u8]> = head.all("content-length").collect();
        let length = match (&pieces[..], &lengths[..]) {
            ([], []) => Some(0),
            ([one], []) if one.eq_ignore_ascii_case(b"chunked") => None,
            ([], [one]) => {
                let digits = one.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(one).ok()?.parse().ok());
                Some(digits.flatten()?)
            }
            _ => return None,
        };
        Some(Body { connection, length, waits, is_read: length == Some(0) })
    }

    /// Returns whether the client has disconnected. A client that has closed only its sending side counts as
    /// disconnected, although it could still receive.
    pub(crate) fn gone(&self) -> bool {
        let stream = &self.connection.stream;
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = stream.peek(&mut [0]);
        let blocks = stream.set_nonblocking(false).is_ok();
        !blocks || seen.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |bytes| bytes == 0)
    }

    /// Returns the length of the body in bytes; `None` if the body is sent in chunks.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads the body. Returns an error if it has more than `most` bytes.
    pub(crate) fn read(&mut self, most: usize) -> Result<Vec<u8>, BodyError> {
        let until = Instant::now() + BODY;
        if self.length.is_some_and(|length| length > most as u64) {
            return Err(BodyError::Large);
        }
        if std::mem::take(&mut self.waits) && !self.is_read {
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n", until)?;
        }
        let mut body = Vec::new();
        match self.length {
            Some(length) => self.connection.take(length as usize, until, &mut body)?,
            None => self.connection.take_pieces(most, until, &mut body)?,
        }
        self.is_read = true;
        Ok(body)
    }
}

/// A connection to a client, with the received bytes that are not used yet.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Receives more bytes and returns their number, which is 0 at the end of the stream. Returns an error if no byte
    /// arrives by `until`.
    fn receive(&mut self, until: Instant) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(until)?))?;
        let old = self.received.len();
        self.received.resize(old + PIECE_BYTES, 0);
        let read = self.stream.read(&mut self.received[old..]);
        self.received.truncate(old + *read.as_ref().unwrap_or(&0));
        match read {
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(until),
            read => read,
        }
    }

    /// Reads the head of the next request. Returns `None` if the client has disconnected, and `Some(Err(status))` with
    /// an HTTP status if the head is invalid. Returns an error if the client is too slow.
    fn head(&mut self) -> io::Result<Option<Result<Head, u16>>> {
        let until = Instant::now() + HEAD;
        let mut seen = 0usize;
        loop {
            let ends = |w: &[u8]| w.starts_with(b"\n\n") || w.starts_with(b"\n\r\n");
            let from = seen.saturating_sub(3);
            if let Some(at) = (from..self.received.len()).find(|at| ends(&self.received[*at..])) {
                let end = at + if self.received[at + 1] == b'\n' { 2 } else { 3 };
                if end > MOST_HEAD {
                    return Ok(Some(Err(431)));
                }
                let head = Head::parse(&self.received[..end]);
                self.received.drain(..end);
                return Ok(Some(head));
            }
            seen = self.received.len();
            if seen > MOST_HEAD {
                return Ok(Some(Err(431)));
            }
            if self.receive(until)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Moves the next `count` received bytes to `out`. If too few bytes have arrived, waits for more bytes until
    /// `until`.
    fn take(&mut self, mut count: usize, until: Instant, out: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let n = count.min(self.received.len());
            out.extend(self.received.drain(..n));
            count -= n;
            if count == 0 {
                return Ok(());
            }
            if self.receive(until)? == 0 {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the connection ended before the whole body arrived",
                ));
            }
        }
    }

    /// Reads a body with `transfer-encoding: chunked`, and appends the chunks to `out`. The client sends the length of
    /// each chunk in a line before the chunk. Returns an error if the body has more than `most` bytes, or does not
    /// arrive by `until`.
    fn take_pieces(&mut self, most: usize, until: Instant, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let broken = |what: &str| BodyError::Broken(what.into());
        loop {
            let line = self.line(until)?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let length = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
            let length = length.and_then(|text| usize::from_str_radix(text, 16).ok());
            let length = length.ok_or_else(|| broken("a chunk of the body begins without its length"))?;
            if length > most - out.len() {
                return Err(BodyError::Large);
            }
            if length == 0 {
                let mut bytes = 0;
                while let line = self.line(until)?
                    && !line.is_empty()
                {
                    bytes += line.len();
                    if bytes > MOST_LINE {
                        return Err(broken("too many bytes follow the last chunk of the body"));
                    }
                }
                return Ok(());
            }
            self.take(length, until, out)?;
            if !self.line(until)?.is_empty() {
                return Err(broken("a chunk of the body is longer than its given length"));
            }
        }
    }

    /// Reads a line of a body that is sent in chunks. Returns the line without the line end.
    fn line(&mut self, until: Instant) -> Result<Vec<u8>, BodyError> {
        loop {
            if let Some(at) = self.received.iter().take(MOST_LINE).position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.received.drain(..=at).collect();
                line.truncate(at);
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.received.len() >= MOST_LINE {
                return Err(BodyError::Broken("a line between two chunks of the body is too long".into()));
            }
            if self.receive(until)? == 0 {
                return Err(BodyError::Broken("the connection ended before the whole body arrived".into()));
            }
        }
    }

    /// Sends the response to a request with the method `method`. The body is left out for the method HEAD and the
    /// status 304. If `stays` is false, a header announces that the server closes the connection.
    fn send(&mut self, method: &str, response: &Response, stays: bool, until: Instant) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
        head.push_str(&format!("date: {}\r\n", httpdate::fmt_http_date(SystemTime::now())));
        for (name, value) in &response.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if response.status != 304 {
            head.push_str(&format!("content-length: {}\r\n", response.body.len()));
        }
        head.push_str(if stays { "\r\n" } else { "connection: close\r\n\r\n" });
        self.write(head.as_bytes(), until)?;
        if method != "HEAD" && response.status != 304 {
            self.write(&response.body, until)?;
        }
        Ok(())
    }

    /// Sends bytes. Returns an error if the client accepts no bytes for the time [`PIECE`], or has not accepted all
    /// bytes by `until`.
    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(until)?.min(PIECE)))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the response and closes the connection. Before closing, reads the bytes that the client still sends, for up
    /// to [`LINGER`]; without this, the client might not receive the response.
    fn close(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let until = Instant::now() + LINGER;
        let mut bytes = 0;
        while bytes < MOST_LINGER {
            self.received.clear();
            match self.receive(until)? {
                0 => break,
                n => bytes += n,
            }
        }
        Ok(())
    }
}

/// Returns the time from now to the deadline `until`. Returns an error if the deadline has passed.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    Ok(left.ok_or(ErrorKind::TimedOut)?)
}

/// Returns the reason phrase of an HTTP status.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "Other",
    }
}

/// Answers the requests of a connection until the connection ends. `answer` returns the response to a request. If the
/// head of a request is invalid, `refuse(status)` returns the response, where `status` is the HTTP status of the error.
///
/// # Errors
/// Returns an error if the client disconnects or is too slow.
pub(crate) fn converse(
    stream: TcpStream,
    answer: impl Fn(&Head, &mut Body<'_>) -> Response,
    refuse: impl Fn(u16) -> Response,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection { stream, received: Vec::new() };
    while let Some(head) = connection.head()? {
        let (response, stays, method) = match head {
            Err(status) => (refuse(status), false, String::new()),
            Ok(head) => match Body::of(&head, &mut connection) {
                None => (refuse(400), false, head.method),
                Some(mut body) => {
                    let response = answer(&head, &mut body);
                    (response, body.is_read && head.keep_alive, head.method)
                }
            },
        };
        connection.send(&method, &response, stays, Instant::now() + RESPONSE)?;
        drop(response);
        if !stays {
            return connection.close();
        }
    }
    Ok(())
}

/// Receives the first bytes of a request, sends a response, and closes the connection.
///
/// # Errors
/// Returns an error if the client disconnects or is too slow.
pub(crate) fn turn_away(stream: TcpStream, response: &Response) -> io::Result<()> {
    let mut connection = Connection { stream, received: Vec::new() };
    connection.receive(Instant::now() + LINGER)?;
    connection.send("GET", response, false, Instant::now() + LINGER)?;
    connection.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Sends `request` to a server and returns all responses as one text. The server accepts bodies of up to 16 bytes.
    fn talk(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (server, _) = listener.accept().expect("the connection");
        let thread = std::thread::spawn(move || {
            let _ = converse(
                server,
                |head, body| match body.read(16) {
                    Ok(bytes) => Response::new(200, "text/plain", [head.path.as_bytes(), b" ", &bytes].concat()),
                    Err(BodyError::Large) => Response { status: 413, ..Response::default() },
                    Err(_) => Response { status: 400, ..Response::default() },
                },
                |status| Response { status, ..Response::default() },
            );
        });
        client.write_all(request).expect("a server that reads");
        client.shutdown(Shutdown::Write).expect("an open connection");
        let mut text = String::new();
        let _ = client.read_to_string(&mut text);
        thread.join().expect("no panic");
        text
    }

    #[test]
    fn bodies_are_read_by_length_and_in_pieces() {
        let said = talk(
            b"POST /a?b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyzPOST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
              2;ext=1\r\nuv\r\n1\r\nw\r\n0\r\nTrailer: 1\r\n\r\nGET /c HTTP/1.1\r\nConnection: close\r\n\r\n",
        );
        let bodies: Vec<&str> =
            said.split("\r\n\r\n").skip(1).map(|part| part.split("HTTP").next().expect("a part")).collect();
        assert_eq!(bodies, ["/a xyz", "/b uvw", "/c "], "{said}");
    }

    #[test]
    fn clients_that_wait_are_asked_for_the_body() {
        let said = talk(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx");
        assert!(said.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "{said}");
        let said = talk(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 17\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    }

    #[test]
    fn a_response_has_a_deadline_however_many_pieces_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (stream, _) = listener.accept().expect("the connection");
        let mut connection = Connection { stream, received: Vec::new() };
        let reader = std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while client.read(&mut piece).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let response = Response::new(200, "text/plain", vec![b' '; 64 << 20]);
        let start = Instant::now();
        let error = connection.send("GET", &response, false, start + Duration::from_millis(300)).expect_err("too slow");
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        drop(connection);
        reader.join().expect("no panic");
    }

    #[test]
    fn a_head_has_no_body() {
        let said = talk(b"HEAD /x HTTP/1.1\r\n\r\n");
        assert!(said.contains("content-length: 3\r\n") && said.ends_with("\r\n\r\n"), "{said}");
    }

    #[test]
    fn hostile_requests_are_refused() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(70_000));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (request, status) in [
            ("GET\r\n\r\n".to_string(), 400),
            ("GET http://elsewhere/ HTTP/1.1\r\n\r\n".into(), 400),
            ("GET / HTTP/3.0\r\n\r\n".into(), 400),
            (many, 431),
            (long, 431),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx".into(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".into(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".into(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n".into(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 17\r\n\r\n".into(), 413),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nx".into(), 400),
            (format!("{chunked}11\r\n"), 413),
            (format!("{chunked}ffffffffffffffff\r\n"), 413),
            (format!("{chunked}10000000000000000\r\n"), 400),
            (format!("{chunked}+1\r\nx\r\n"), 400),
            (format!("{chunked}1\r\nxy\r\n"), 400),
            (format!("{chunked}\r\n"), 400),
            (format!("{chunked}0\r\n{}\r\n", "a: b\r\n".repeat(400)), 400),
            (format!("{chunked}{}", "1".repeat(2000)), 400),
        ] {
            let said = talk(request.as_bytes());
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{:.60}: {said}", request);
        }
    }
}
