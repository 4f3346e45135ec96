//! Adapters for other projects: compiled against small copies of their signatures, computed, and shown on `docs/adapters.md`. The operator for
//! ONNX Runtime on that page is `examples/onnxruntime`.

mod fastembed;
mod mistral;
mod tei;

use candle_nn::ops::softmax;
use noren_candle::candle_core::{D, DType, Device, Result, Tensor};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/adapters.md");

fn random(shape: &[usize], seed: usize) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Returns attention by candle's operations in `f64`. All arrays are `[batch, heads, len, head_dim]`; `keep(q, k)` returns whether a
/// query reads a key.
fn textbook(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64, keep: impl Fn(usize, usize) -> bool) -> Result<Tensor> {
    let group = q.dim(1)? / k.dim(1)?;
    let wide = |x: &Tensor| x.to_dtype(DType::F64)?.contiguous();
    let shared = |x: &Tensor| {
        let index: Vec<u32> = (0..q.dim(1)?).map(|h| (h / group) as u32).collect();
        wide(x)?.index_select(&Tensor::new(index, &Device::Cpu)?, 1)
    };
    let (q_len, k_len) = (q.dim(2)?, k.dim(2)?);
    let cells = (0..q_len).flat_map(|i| (0..k_len).map(move |j| (i, j)));
    let mask: Vec<f64> = cells.map(|(i, j)| if keep(i, j) { 0.0 } else { f64::NEG_INFINITY }).collect();
    let mask = Tensor::from_vec(mask, (q_len, k_len), &Device::Cpu)?;
    let scores = (wide(q)?.matmul(&shared(k)?.transpose(2, 3)?.contiguous()?)? * scale)?;
    softmax(&scores.broadcast_add(&mask)?, D::Minus1)?.matmul(&shared(v)?)
}

fn close(got: &Tensor, expected: &Tensor) -> Result<()> {
    assert_eq!(got.dims(), expected.dims());
    let off = (got.to_dtype(DType::F64)? - expected)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f64>()?;
    assert!(off < 1e-5, "outputs differ by {off}");
    Ok(())
}

/// The page shows the code of the adapters. `NOREN_UPDATE=1` writes the code into the page.
#[test]
fn the_page_has_the_code_of_the_adapters() {
    let mut page = std::fs::read_to_string(PAGE).expect("docs/adapters.md");
    let given = page.clone();
    for (name, file) in [
        ("tei", include_str!("tei.rs")),
        ("mistral", include_str!("mistral.rs")),
        ("fastembed", include_str!("fastembed.rs")),
        ("onnxruntime", include_str!("../../../../../../examples/onnxruntime/src/lib.rs")),
    ] {
        let code = file.split("// begin\n").nth(1).and_then(|rest| rest.split("// end\n").next()).expect("two marks");
        let mark = format!("<!-- {name}.rs -->\n```rust\n");
        let start = page.find(&mark).unwrap_or_else(|| panic!("the page has no `{mark}`")) + mark.len();
        let end = start + page[start..].find("```\n").expect("the end of the code");
        page.replace_range(start..end, code);
    }
    if std::env::var_os("NOREN_UPDATE").is_some() {
        std::fs::write(PAGE, &page).expect("docs/adapters.md can be written");
    } else {
        assert!(page == given, "docs/adapters.md differs from the adapters: run with NOREN_UPDATE=1");
    }
}
