//! [`Frame`]: the format of messages between the server and its workers: a head as JSON, and any number of blobs, which
//! are sequences of bytes.

use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// A message: a head, and blobs of bytes that are too large for JSON.
pub(crate) struct Frame<T> {
    pub(crate) head: T,
    pub(crate) blobs: Vec<Vec<u8>>,
}

/// Returns the bytes of a frame before its blobs: the length of the head in bytes, the number of blobs, the length of
/// each blob in bytes, and the head as JSON. Each number is stored as 8 little-endian bytes.
fn start<T: Serialize>(frame: &Frame<T>) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(&frame.head)?;
    let mut out = Vec::with_capacity(head.len() + 8 * (frame.blobs.len() + 2));
    out.extend((head.len() as u64).to_le_bytes());
    out.extend((frame.blobs.len() as u64).to_le_bytes());
    frame.blobs.iter().for_each(|blob| out.extend((blob.len() as u64).to_le_bytes()));
    out.extend(head);
    Ok(out)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte))
}

impl<T: Serialize> Frame<T> {
    /// Writes the frame, which is one message between the server and a worker, and flushes `out`.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&start(self)?)?;
        self.blobs.iter().try_for_each(|blob| out.write_all(blob))?;
        out.flush()
    }
}

impl<T: DeserializeOwned> Frame<T> {
    /// Reads the next frame, which is one message between the server and a worker. Returns `None` at the end of the
    /// input.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut sizes = [0; 16];
        if let Err(error) = from.read_exact(&mut sizes) {
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
        }
        let mut lengths = vec![0; 8 * number(&sizes[8..])];
        from.read_exact(&mut lengths)?;
        let mut head = vec![0; number(&sizes[..8])];
        from.read_exact(&mut head)?;
        let mut blobs: Vec<Vec<u8>> = lengths.chunks(8).map(|len| vec![0; number(len)]).collect();
        blobs.iter_mut().try_for_each(|blob| from.read_exact(blob))?;
        Ok(Some(Frame { head: serde_json::from_slice(&head)?, blobs }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let frame = Frame { head: "a head".to_string(), blobs: vec![b"one".to_vec(), Vec::new(), vec![7; 300]] };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("memory");
        let read = Frame::<String>::read(&mut &bytes[..]).expect("a whole frame").expect("a frame");
        assert_eq!((read.head, read.blobs), (frame.head, frame.blobs));
        assert!(Frame::<String>::read(&mut &b""[..]).expect("the end").is_none());
        assert!(Frame::<String>::read(&mut &bytes[..40]).is_err());
    }
}
