//! The messages between the server and its workers.

use crate::request::call::Call;
use crate::request::wire::Frame;
use serde::{Deserialize, Serialize};

/// The content type of most answers.
pub(crate) const JSON: &str = "application/json";

/// The JSON head of a message that sends a call to a worker. Sequences of bytes (blobs) follow the head; the first blob
/// is the body of the call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// The identities of masks whose definitions are sent with the message: identity 0 belongs to blob 1, identity 1 to
    /// blob 2, and so on.
    pub(crate) defined: Vec<String>,
}

/// The head of a worker's answer to a call. The first blob of the answer, a sequence of bytes, is the body of the
/// response; the other blobs are definitions of new masks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// The file name with which the browser saves a download; `None` if the answer is not a download.
    pub(crate) file_name: Option<String>,
    /// The identity of a mask whose definition the worker needs before it can answer the call; `None` if no definition
    /// is missing.
    pub(crate) needs: Option<String>,
}

impl Frame<Reply> {
    /// Returns an answer with HTTP status 200, this content type and this body.
    pub(crate) fn of(content_type: &str, body: Vec<u8>) -> Self {
        let head = Reply { status: 200, content_type: content_type.into(), ..Reply::default() };
        Frame { head, blobs: vec![body] }
    }

    /// Returns an answer that the browser saves as a file with the name `name`.
    pub(crate) fn file(name: String, content_type: &str, body: Vec<u8>) -> Self {
        let mut file = Self::of(content_type, body);
        file.head.file_name = Some(name);
        file
    }
}
