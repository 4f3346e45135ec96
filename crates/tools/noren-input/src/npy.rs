//! Arrays in NumPy's npy format: `\x93NUMPY`, a version, the length of the header, the header, the numbers.
//!
//! The header is a Python dictionary, `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`. It is read by its grammar,
//! and only these three entries are read. Specification: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use crate::error::{Error, Result};
use crate::stored::{Kind, Stored};
use noren_doctor::{Dtype, Numbers, Values};
use noren_mask::Keep;
use std::io::{Read, Write};

/// The maximum length of a header, in bytes. Headers of real files have a few hundred bytes.
const MOST_HEADER: usize = 1 << 16;
/// The maximum number of dimensions of an array, as in NumPy.
const MOST_DIMENSIONS: usize = 64;
/// The number of bytes that [`write_npy`] buffers before it writes them.
const PIECE: usize = 1 << 18;

/// Reads one npy array. `len` is the number of bytes of the file, if this number is known; `name` is the name of the
/// file in error messages.
///
/// # Errors
/// Returns an error if the array cannot be read, has an invalid header or an unsupported number type, or takes more
/// than `most` bytes of memory.
pub fn read_npy(mut reader: impl Read, len: Option<u64>, most: u64, name: &str) -> Result<Values> {
    let refuse = |problem: String| Err(Error::new(format!("{name}: {problem}")));
    let short = |e: std::io::Error| Error::new(format!("{name}: truncated npy header: {e}"));
    let mut start = [0u8; 8];
    reader.read_exact(&mut start).map_err(short)?;
    if start[..6] != *b"\x93NUMPY" {
        return refuse("not an npy array: the first bytes are not those of numpy.save".into());
    }
    let mut size = [0u8; 4];
    let version = start[6];
    let size_bytes = match version {
        1 => 2,
        2 | 3 => 4,
        version => return refuse(format!("npy version {version} is not supported: give version 1, 2 or 3")),
    };
    reader.read_exact(&mut size[..size_bytes]).map_err(short)?;
    let header_len = u32::from_le_bytes(size) as usize;
    if header_len > MOST_HEADER {
        return refuse(format!(
            "the npy file announces a header of {header_len} bytes, but at most {MOST_HEADER} bytes are read"
        ));
    }
    let mut header = vec![0; header_len];
    reader.read_exact(&mut header).map_err(short)?;
    let text = match version {
        // The header is Latin-1: each byte is a character.
        1 | 2 => header.iter().map(|b| char::from(*b)).collect(),
        _ => match String::from_utf8(header) {
            Ok(text) => text,
            Err(e) => return refuse(format!("the npy header is not UTF-8, as version 3 needs: {e}")),
        },
    };
    let (stored, shape) = parse_header(&text).map_err(|problem| Error::new(format!("{name}: {problem}")))?;
    let needed = shape.iter().try_fold(stored.width as u64, |n, &s| n.checked_mul(s as u64));
    let held = len.map(|len| len.saturating_sub((8 + size_bytes + header_len) as u64));
    if let Some(held) = held
        && needed != Some(held)
    {
        return refuse(format!(
            "shape {shape:?} takes {} bytes but {held} follow the header",
            needed.map_or("too many".into(), |n| n.to_string())
        ));
    }
    Ok(Values::new(&shape, stored.dtype(), stored.read(&shape, &mut reader, most, name)?)?)
}

/// Reads the number type and the shape from a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4),
/// }`.
fn parse_header(header: &str) -> std::result::Result<(Stored, Vec<usize>), String> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut at = Literal { rest: header };
    at.expect('{')?;
    while !at.take('}') {
        let key = at.text()?;
        at.expect(':')?;
        let twice = match key {
            "descr" if matches!(at.peek(), Some('[' | '(' | '{')) => {
                return Err("the npy array is a structured array with fields: give a plain array of numbers".into());
            }
            "descr" => descr.replace(at.text()?).is_some(),
            "fortran_order" => fortran.replace(at.truth()?).is_some(),
            "shape" => shape.replace(at.sizes()?).is_some(),
            other => {
                return Err(format!("the npy header has {other:?}, but only descr, fortran_order and shape are known"));
            }
        };
        if twice {
            return Err(format!("the npy header has the key {key:?} twice"));
        }
        if !at.take(',') {
            at.expect('}')?;
            break;
        }
    }
    if let Some(more) = at.peek() {
        return Err(format!("the npy header has {more:?} after its dictionary: nothing may follow the dictionary"));
    }
    let missing = |key: &str| format!("the npy header has no key {key:?}");
    let stored = parse_descr(descr.ok_or_else(|| missing("descr"))?)?;
    let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
    let shape = shape.ok_or_else(|| missing("shape"))?;
    if fortran && shape.len() > 1 {
        return Err("the npy array is in Fortran order: save numpy.ascontiguousarray(a)".into());
    }
    Ok((stored, shape))
}

/// Reads NumPy's name of a number type, such as `<f4` (little-endian `float32`), `|b1` (Boolean) or `>i8` (big-endian
/// `int64`).
fn parse_descr(descr: &str) -> std::result::Result<Stored, String> {
    let unread =
        || format!("numbers of type {descr:?} are not supported: give bool, integers or floats of up to 64 bits");
    let plain = descr.trim_start_matches(['<', '>', '|', '=']);
    let order = &descr[..descr.len() - plain.len()];
    if order.len() > 1 {
        return Err(unread());
    }
    let (kind, width) = match plain.as_bytes() {
        b"?" | b"b1" => (Kind::Bool, 1),
        [b'i', width @ (b'1' | b'2' | b'4' | b'8')] => (Kind::Signed, width - b'0'),
        [b'u', width @ (b'1' | b'2' | b'4' | b'8')] => (Kind::Unsigned, width - b'0'),
        [b'f', width @ (b'2' | b'4' | b'8')] => (Kind::Real, width - b'0'),
        [b'O', ..] => {
            return Err(
                "the npy array holds Python objects, which can run code when they are read: save an array of numbers"
                    .into(),
            );
        }
        _ => return Err(unread()),
    };
    Ok(Stored { kind, width: width.into(), big_endian: order == ">" })
}

/// A reader of a Python literal, such as the dictionary in the header. The field is the rest of the text, which is not
/// read yet. Every method skips white space first.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    /// Returns the next character without reading it, or `None` at the end.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.chars().next()
    }

    /// Reads the next character if it equals `wanted`, and returns whether it was equal.
    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, wanted: char) -> std::result::Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(self.error(&format!("{wanted:?}"))),
        }
    }

    fn error(&mut self, wanted: &str) -> String {
        match self.peek() {
            Some(found) => format!("the npy header has {found:?} where {wanted} is expected"),
            None => format!("the npy header ends where {wanted} is expected"),
        }
    }

    /// Reads a text between quotes. Returns an error if it contains escapes, because valid headers contain none.
    fn text(&mut self) -> std::result::Result<&'a str, String> {
        let quote = match self.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.error("text between quotes")),
        };
        match self.rest[1..].split_once(quote) {
            Some((text, _)) if text.contains('\\') => {
                Err(format!("the npy header has a backslash in {text:?}: save the array again with numpy.save"))
            }
            Some((text, rest)) => {
                self.rest = rest;
                Ok(text)
            }
            None => Err("the npy header has text without a closing quote".into()),
        }
    }

    fn truth(&mut self) -> std::result::Result<bool, String> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.error("True or False"))
    }

    /// Reads the shape, a tuple of sizes: `()`, `(3,)` or `(3, 4)`.
    fn sizes(&mut self) -> std::result::Result<Vec<usize>, String> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.take(')') {
            sizes.push(self.size()?);
            if sizes.len() > MOST_DIMENSIONS {
                return Err(format!("the npy shape has more than {MOST_DIMENSIONS} dimensions"));
            }
            if !self.take(',') {
                self.expect(')')?;
                if let [size] = sizes[..] {
                    return Err(format!(
                        "the npy shape ({size}) is not a Python tuple: write a comma after a single size"
                    ));
                }
                break;
            }
        }
        Ok(sizes)
    }

    /// Reads one size, an integer. Files of Python 2 have an `L` after the number, which is skipped.
    fn size(&mut self) -> std::result::Result<usize, String> {
        self.peek();
        let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            return Err(self.error("a size"));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        number.parse().map_err(|_| format!("the npy shape has the size {number}: it is too large"))
    }
}

/// Writes the header of an npy array in row-major order. `descr` is NumPy's name of the number type, such as `<f4`. The
/// caller writes the values after the header.
///
/// # Errors
/// Returns the error of `out` if writing fails.
pub fn write_npy_header(out: &mut dyn Write, descr: &str, shape: &[usize]) -> std::io::Result<()> {
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let sizes = if shape.len() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Data begin at a multiple of 64 bytes.
    let len = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(len as u16).to_le_bytes())?;
    out.write_all(format!("{dict:<fill$}\n", fill = len - 1).as_bytes())
}

/// Writes the cells of `keep` (true for allowed) as an npy array of Booleans `[batch, heads, q_len, kv_len]`.
///
/// # Errors
/// Returns the error of `out` if writing fails.
pub fn write_npy(out: &mut dyn Write, keep: &Keep) -> std::io::Result<()> {
    write_npy_header(out, "|b1", &keep.dims())?;
    write_each(out, keep.cells(), 1, |cell| [u8::from(cell)])
}

/// Writes an array with its shape and its number type. npy has no `bfloat16`: such an array is written as `float32`.
///
/// # Errors
/// Returns the error of `out` if writing fails.
pub fn write_npy_values(out: &mut dyn Write, values: &Values) -> std::io::Result<()> {
    let (kind, width) = match (values.dtype(), values.numbers()) {
        (dtype, Numbers::Bool(_)) => ('b', dtype.width()),
        (dtype, Numbers::Int(_)) if dtype.name().starts_with('u') => ('u', dtype.width()),
        (dtype, Numbers::Int(_)) => ('i', dtype.width()),
        (Dtype::Bf16, _) => ('f', 4),
        (dtype, _) => ('f', dtype.width()),
    };
    let order = if width == 1 { '|' } else { '<' };
    write_npy_header(out, &format!("{order}{kind}{width}"), values.shape())?;
    match values.numbers() {
        Numbers::Bool(v) => write_each(out, v.iter(), width, |&x| [u8::from(x)]),
        Numbers::Int(v) => write_each(out, v.iter(), width, |x| x.to_le_bytes()),
        Numbers::Single(v) if width == 2 => write_each(out, v.iter(), width, |&x| half::f16::from_f32(x).to_le_bytes()),
        Numbers::Single(v) => write_each(out, v.iter(), width, |x| x.to_le_bytes()),
        Numbers::Double(v) => write_each(out, v.iter(), width, |x| x.to_le_bytes()),
    }
}

/// Writes the first `width` bytes of each item, in pieces of limited size.
fn write_each<T, B: AsRef<[u8]>>(
    out: &mut dyn Write,
    items: impl Iterator<Item = T>,
    width: usize,
    bytes_of: impl Fn(T) -> B,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(PIECE);
    for item in items {
        bytes.extend_from_slice(&bytes_of(item).as_ref()[..width]);
        if bytes.len() >= PIECE {
            out.write_all(&bytes)?;
            bytes.clear();
        }
    }
    out.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::MOST_MEMORY;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(data);
        out
    }

    fn read(bytes: &[u8]) -> Result<Values> {
        read_npy(bytes, Some(bytes.len() as u64), MOST_MEMORY, "x.npy")
    }

    fn message(bytes: &[u8]) -> String {
        match read(bytes) {
            Err(Error { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let keep = Keep::from_fn([2, 1, 3, 5], |[b, _, q, k]| (b + q + k) % 2 == 0);
        let mut bytes = Vec::new();
        write_npy(&mut bytes, &keep).expect("memory");
        let values = read(&bytes).expect("a sound file");
        assert_eq!(values.shape(), [2, 1, 3, 5]);
        assert_eq!(values.numbers(), &Numbers::Bool(keep.cells().collect()));
    }

    #[test]
    fn arrays_keep_their_number_type() {
        let ints = |dtype| Values::new(&[3], dtype, Numbers::Int(vec![0, 1, 7])).expect("three numbers");
        let reals = |dtype| Values::new(&[1, 2], dtype, Numbers::Single(vec![0.0, -65504.0])).expect("two numbers");
        let doubles =
            Values::new(&[2], Dtype::F64, Numbers::Double(vec![0.0, f64::NEG_INFINITY])).expect("two numbers");
        let bools = Values::bools(&[2], vec![true, false]).expect("two values");
        let whole = [Dtype::I8, Dtype::U8, Dtype::I16, Dtype::U16, Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64];
        let all = whole.map(ints).into_iter().chain([Dtype::F16, Dtype::F32].map(reals)).chain([doubles, bools]);
        for values in all {
            let mut bytes = Vec::new();
            write_npy_values(&mut bytes, &values).expect("memory");
            assert_eq!(read(&bytes).expect("a sound file"), values);
        }
    }

    #[test]
    fn all_types() {
        let header = |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}");
        let values = |descr: &str, data: &[u8]| {
            let v = read(&npy(&header(descr), data)).expect("a sound file");
            [v.at(0), v.at(1)]
        };
        assert_eq!(values("<i2", &[254, 255, 1, 0]), [-2.0, 1.0]);
        assert_eq!(values(">i2", &[255, 254, 0, 1]), [-2.0, 1.0]);
        assert_eq!(values("|u1", &[254, 1]), [254.0, 1.0]);
        assert_eq!(values("<f2", &[0, 0x3C, 0, 0xFC]), [1.0, f64::NEG_INFINITY]);
        assert_eq!(values("<f8", &[[0u8; 8], 1f64.to_le_bytes()].concat()), [0.0, 1.0]);
    }

    #[test]
    fn hostile_files_are_refused() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
        assert!(message(&npy(good, &[0; 12])).contains("takes 16 bytes but 12 follow"));
        assert!(message(&npy(&good.replace("<f4", "|O"), &[0; 16])).contains("run code"));
        assert!(message(&npy(&good.replace("'<f4'", "[('a', '<f4')]"), &[0; 16])).contains("fields"));
        assert!(message(&npy(&good.replace("False", "True"), &[0; 16])).contains("Fortran"));
        assert!(message(&npy(&good.replace("(2, 2)", "(99999999999, 99999999999)"), &[0; 16])).contains("too many"));
        assert!(message(&npy(&good.replace("(2, 2)", "(2, x)"), &[0; 16])).contains("'x' where a size is expected"));
        assert!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("announces"));
        assert!(message(b"\x93NUMPY\x01").contains("truncated"));
        // If the length is not known, no memory is allocated for missing data either.
        let endless = npy(&good.replace("(2, 2)", "(4000000000, 1)"), &[0; 16]);
        assert!(read_npy(&endless[..], None, MOST_MEMORY, "x").is_err());
    }

    #[test]
    fn a_type_of_any_characters_is_refused() {
        let header = |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
        for descr in ["é4", "€", "<é", "", "<", "<<f4", "<f", "<f16", "<f+4", "<c8", "|S4", "<M8[ns]", "f4 ", "<?1"]
        {
            let said = message(&npy(&header(descr), &[0; 8]));
            assert!(said.contains("are not supported"), "{descr:?}: {said}");
            let mut third = npy(&header(descr), &[0; 8]);
            third[6] = 3;
            third.splice(10..10, [0, 0]);
            let said = message(&third);
            assert!(said.contains("are not supported"), "{descr:?} in version 3: {said}");
        }
        let mut latin = npy(&header("x"), &[0; 8]);
        let at = latin.iter().position(|b| *b == b'x').expect("a type");
        latin[at] = 0xE9;
        assert!(message(&latin).contains("\"é\" are not supported"), "{}", message(&latin));
        latin[6] = 3;
        latin.splice(10..10, [0, 0]);
        assert!(message(&latin).contains("not UTF-8"));
    }

    #[test]
    fn entries_in_any_form_that_python_reads() {
        let cells = [1u8, 2, 3, 4, 5, 6];
        for header in [
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3,)}\n",
            "{\"shape\":(2,3),\"descr\":\"u1\",\"fortran_order\":False}",
            "  { 'fortran_order' : False , 'shape' : ( 2L , 3L ) , 'descr' : '=u1' }  ",
        ] {
            let values = read(&npy(header, &cells)).unwrap_or_else(|e| panic!("{header}: {e:?}"));
            assert_eq!((values.shape(), values.numbers()), (&[2, 3][..], &Numbers::Int((1..=6).collect())), "{header}");
        }
        let scalar = read(&npy("{'descr': '|u1', 'fortran_order': True, 'shape': ()}", &[7])).expect("a number");
        assert_eq!((scalar.shape(), scalar.at(0)), (&[][..], 7.0));
    }

    #[test]
    fn an_array_in_fortran_order_is_never_read_as_if_it_were_not() {
        for header in [
            "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}",
            "{'descr': '|u1', 'shape': (2, 3), 'fortran_order': True}",
            "{'descr': '|u1', 'fortran_order':True, 'shape': (2,3)}",
            "{'fortran_order': True, 'shape': (2, 3,), 'descr': '|u1'}",
        ] {
            assert!(message(&npy(header, &[0; 6])).contains("Fortran"), "{header}");
        }
    }

    #[test]
    fn headers_that_are_no_dictionary_of_the_three_entries() {
        let good = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}";
        for (from, to, expected) in [
            ("'shape': (2, 3)", "'shape': (6)", "not a Python tuple"),
            ("(2, 3)", "(2 3)", "'3' where ')' is expected"),
            ("(2, 3)", "[2, 3]", "'[' where '(' is expected"),
            ("(2, 3)", "(,)", "',' where a size is expected"),
            ("(2, 3)", "(2, -3)", "'-' where a size is expected"),
            ("(2, 3)", "(2, 99999999999999999999)", "too large"),
            ("(2, 3)}", "(2, 3)", "ends where '}' is expected"),
            ("(2, 3)}", "(2, 3", "ends where ')' is expected"),
            ("(2, 3)}", "(2, 3)} 'shape': (3, 2)", "has '\\'' after its dictionary"),
            ("(2, 3)}", "(2, 3), 'shape': (3, 2)}", "\"shape\" twice"),
            ("(2, 3)}", "(2, 3), 'more': 1}", "has \"more\""),
            ("'|u1'", "'|u1", "'f' where '}' is expected"),
            ("'|u1'", "'\\x7cu1'", "backslash"),
            ("'|u1'", "[('a', '|u1')]", "fields"),
            ("'|u1'", "('|u1', (2,))", "fields"),
            ("'|u1'", "None", "'N' where text between quotes is expected"),
            ("False", "0", "'0' where True or False is expected"),
            ("False", "Falsey", "'y' where '}' is expected"),
            ("'shape': (2, 3)", "", "no key \"shape\""),
            ("'descr': '|u1', ", "", "no key \"descr\""),
            ("'fortran_order': False, ", "", "no key \"fortran_order\""),
            ("{", "", "'\\'' where '{' is expected"),
        ] {
            let header = good.replace(from, to);
            assert_ne!(header, good);
            let said = message(&npy(&header, &[0; 6]));
            assert!(said.contains(expected), "{header}: {said}");
        }
        assert!(message(&npy("", &[])).contains("ends where '{' is expected"));
        let many = format!("({})", "1,".repeat(65));
        assert!(message(&npy(&good.replace("(2, 3)", &many), &[0; 1])).contains("more than 64 dimensions"));
        let nested = "{".repeat(60_000);
        assert!(message(&npy(&nested, &[])).contains("where text between quotes is expected"));
    }
}
