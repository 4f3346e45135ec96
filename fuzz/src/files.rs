//! Reads any bytes as a file of arrays: nothing panics, and an array has the number of values that its shape requires.

use noren_doctor::Values;
use noren_input::arrays::read_from;
use noren_input::npy::read_npy;
use noren_input::tensors::TensorFile;
use noren_input::{Error, MOST_MEMORY};
use std::io::Cursor;

/// Reads `data` as an npy file, once with the file's length and once without.
pub fn npy(data: &[u8]) {
    let known = read_npy(data, Some(data.len() as u64), MOST_MEMORY, "input");
    let unknown = read_npy(data, None, MOST_MEMORY, "input");
    match (known, unknown) {
        (Ok(known), Ok(unknown)) => {
            is_whole(&known);
            // Equal by bits, NaN included.
            assert_eq!(format!("{known:?}"), format!("{unknown:?}"));
        }
        (Ok(_), Err(error)) => panic!("read with its length only: {error:?}"),
        (Err(error), unknown) => {
            is_worded(&error);
            if let Ok(unknown) = unknown {
                is_whole(&unknown);
            }
        }
    }
}

/// Reads every array of `data` as an npz, npy or safetensors file; the first bytes select the format.
pub fn npz(data: &[u8]) {
    match read_from(Cursor::new(data), data.len() as u64, "input.npz") {
        Ok(arrays) => arrays.iter().for_each(|(_, values)| is_whole(values)),
        Err(error) => is_worded(&error),
    }
}

/// Reads every tensor of the safetensors file that `data` may be.
pub fn safetensors(data: &[u8]) {
    let mut file = match TensorFile::new(Cursor::new(data), data.len() as u64, "input") {
        Ok(file) => file,
        Err(error) => return is_worded(&error),
    };
    for name in file.names() {
        match file.read(&name) {
            Ok(tensor) => assert_eq!(tensor.data.len(), tensor.shape.iter().product::<usize>(), "{name:?}"),
            Err(error) => is_worded(&error),
        }
        match file.read_values(&name) {
            Ok(values) => is_whole(&values),
            Err(error) => is_worded(&error),
        }
    }
}

fn is_whole(values: &Values) {
    assert_eq!(values.len(), values.shape().iter().product::<usize>());
}

fn is_worded(error: &Error) {
    assert!(error.message.starts_with("input"), "{error:?}");
}
