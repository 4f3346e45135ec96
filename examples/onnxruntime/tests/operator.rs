//! The operator in ONNX Runtime. `ORT_DYLIB_PATH` is the path of its library, such as `onnxruntime/capi/libonnxruntime.so.1.32.0` of PyPI's
//! package `onnxruntime`; `.ci/onnxruntime` sets it. Without it, the tests print that they did not run. `model.py` writes the model.

use ort::environment::Environment;
use ort::session::Session;
use ort::value::{Tensor, TensorElementType, ValueType};
use std::sync::{Mutex, OnceLock};

const MODEL: &[u8] = include_bytes!("model.onnx");
const WIDTH: usize = 16;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 4;

/// Returns the environment of ONNX Runtime, or `None` if its library is missing.
fn runtime() -> Option<&'static Environment> {
    static RUNTIME: OnceLock<Option<Environment>> = OnceLock::new();
    let load = || {
        let Some(path) = std::env::var_os("ORT_DYLIB_PATH") else {
            eprintln!(
                "not run: the library of ONNX Runtime is missing: set ORT_DYLIB_PATH to its path, or run .ci/onnxruntime"
            );
            return None;
        };
        Some(ort::init_from(path).expect("the library at ORT_DYLIB_PATH loads").build().expect("an environment"))
    };
    RUNTIME.get_or_init(load).as_ref()
}

/// Returns a session with the operator. Sessions are made one after the other: ONNX Runtime looks a domain up and then adds it,
/// so two threads that load the first models with the operator at once can be refused ("the domain is already exist").
fn session(runtime: &Environment, model: &[u8]) -> ort::Result<Session> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _lock = ONE_AT_A_TIME.lock();
    let builder = Session::builder(runtime)?.with_operators(noren_onnxruntime::domain()?)?;
    builder.with_intra_threads(1)?.commit_from_memory(model)
}

/// Returns the cells of the mask in the model, `causal & (window(left=4) | stride(3) | keys(0..2)) | heads(2..: prefix(6))`.
fn allowed(head: usize, q: usize, k: usize) -> bool {
    k <= q && (q - k <= 4 || (q - k).is_multiple_of(3) || k < 2) || head >= 2 && k < 6
}

/// Returns `count` numbers in -1 to 1.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

/// Returns attention in `f64` of `[batch, heads, len, HEAD_DIM]` queries and `[batch, kv_heads, len, HEAD_DIM]` keys and values.
fn textbook(q: &[f32], k: &[f32], v: &[f32], batch: usize, len: usize) -> Vec<f64> {
    let row = |x: &[f32], heads: usize, b: usize, h: usize, i: usize| -> [f64; HEAD_DIM] {
        let first = ((b * heads + h) * len + i) * HEAD_DIM;
        std::array::from_fn(|d| f64::from(x[first + d]))
    };
    let mut out = Vec::new();
    for (b, h) in (0..batch).flat_map(|b| (0..HEADS).map(move |h| (b, h))) {
        let group = h / (HEADS / KV_HEADS);
        for i in 0..len {
            let query = row(q, HEADS, b, h, i);
            let (mut sum, mut total) = ([0.0; HEAD_DIM], 0.0);
            for j in (0..len).filter(|j| allowed(h, i, *j)) {
                let score: f64 = query.iter().zip(row(k, KV_HEADS, b, group, j)).map(|(x, y)| x * y).sum();
                let weight = (score / (HEAD_DIM as f64).sqrt()).exp();
                total += weight;
                sum.iter_mut().zip(row(v, KV_HEADS, b, group, j)).for_each(|(sum, value)| *sum += weight * value);
            }
            out.extend(sum.map(|sum| sum / total));
        }
    }
    out
}

fn largest_difference(got: &[f32], expected: impl ExactSizeIterator<Item = f64>) -> f64 {
    assert_eq!(got.len(), expected.len());
    // `f64::max` would drop NaN
    got.iter()
        .zip(expected)
        .map(|(x, y)| (f64::from(*x) - y).abs())
        .fold(0.0, |most, off| if off <= most { most } else { off })
}

#[test]
fn the_operator_equals_the_textbook_and_the_operators_of_onnx() -> ort::Result<()> {
    let Some(runtime) = runtime() else { return Ok(()) };
    let mut session = session(runtime, MODEL)?;
    for (seed, (batch, len)) in [(1, 1), (1, 9), (2, 70), (2, 70), (3, 33), (1, 300)].into_iter().enumerate() {
        let x = Tensor::from_array(([batch, len, WIDTH], numbers(batch * len * WIDTH, seed)))?;
        let cells = (0..HEADS).flat_map(|h| (0..len).flat_map(move |i| (0..len).map(move |j| (h, i, j))));
        let hidden =
            cells.map(|(h, i, j)| if allowed(h, i, j) { 0.0 } else { f32::NEG_INFINITY }).collect::<Vec<f32>>();
        let hidden = Tensor::from_array(([1, HEADS, len, len], hidden))?;
        let outputs = session.run(ort::inputs! { "x" => x, "hidden" => hidden })?;
        let output = |name: &str| outputs[name].try_extract_tensor::<f32>();
        let ((shape, noren), (_, decomposed)) = (output("noren")?, output("decomposed")?);
        assert_eq!(shape[..], [batch, HEADS, len, HEAD_DIM].map(|n| n as i64));
        let expected = textbook(output("q")?.1, output("k")?.1, output("v")?.1, batch, len);
        let off = largest_difference(noren, expected.into_iter());
        let apart = largest_difference(noren, decomposed.iter().map(|x| f64::from(*x)));
        println!("batch {batch}, len {len}: {off:.1e} from f64, {apart:.1e} from ONNX's own operators");
        assert!(
            off < 1e-5 && apart < 1e-5,
            "batch {batch}, len {len}: {off} from f64, {apart} from ONNX's own operators"
        );
    }
    Ok(())
}

#[test]
fn the_shape_of_the_output_is_inferred() -> ort::Result<()> {
    let Some(runtime) = runtime() else { return Ok(()) };
    let session = session(runtime, MODEL)?;
    let output = session.outputs().iter().find(|output| output.name() == "noren").expect("the output");
    let ValueType::Tensor { ty, shape, .. } = output.dtype() else { panic!("{:?} is no tensor", output.dtype()) };
    assert_eq!((*ty, shape[1], shape[3]), (TensorElementType::Float32, HEADS as i64, HEAD_DIM as i64));
    Ok(())
}

#[test]
fn wrong_masks_are_refused_by_name() {
    let Some(runtime) = runtime() else { return };
    // each text has the length of the text that it replaces: the model stores lengths of texts
    for (from, to, message) in [
        ("window(left=4)", "windov(left=4)", "window"),
        ("| stride(3) |", "| padding   |", "padding"),
        ("mask", "musk", "needs the attribute mask"),
    ] {
        let at = MODEL.windows(from.len()).position(|bytes| bytes == from.as_bytes()).expect("the model has the text");
        let mut model = MODEL.to_vec();
        model[at..at + to.len()].copy_from_slice(to.as_bytes());
        let run = |model: &[u8]| -> ort::Result<()> {
            let mut session = session(runtime, model)?;
            let x = Tensor::from_array(([1, 8, WIDTH], numbers(8 * WIDTH, 0)))?;
            let hidden = Tensor::from_array(([1, HEADS, 8, 8], vec![0f32; HEADS * 64]))?;
            session.run(ort::inputs! { "x" => x, "hidden" => hidden }).map(drop)
        };
        let error = run(&model).expect_err(to).to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
}
