//! Times the attention of burn-flex, Burn's CPU backend: causal by its option, other masks as a dense drop-array.

use burn_backend::{DType, TensorData, ops::AttentionModuleOptions};
use burn_flex::{FlexTensor, ops::attention::attention};
use peer_common::{Case, normal, refuse};

fn main() {
    let case = Case::from_arguments();
    if case.op == "fwdbwd" {
        refuse("the attention of this backend has no backward");
    }
    if case.heads != case.kv_heads {
        refuse("no grouped heads");
    }
    let array = |heads: usize, len: usize, seed| {
        let data = TensorData::new(normal(heads * len * case.dim, seed), [1, heads, len, case.dim]);
        FlexTensor::from_data(match case.dtype.as_str() {
            "bf16" => data.convert_dtype(DType::BF16),
            "f16" => data.convert_dtype(DType::F16),
            _ => data,
        })
    };
    let (q, k, v) = (array(case.heads, case.n, 1), array(case.kv_heads, case.m, 2), array(case.kv_heads, case.m, 3));
    let mut options = AttentionModuleOptions::default();
    let mut drop_mask = None;
    match case.mask.as_str() {
        _ if !case.is_masked() => {}
        "causal" => options.is_causal = true,
        _ => {
            let dropped: Vec<bool> = case.keep().into_iter().map(|keep| !keep).collect();
            drop_mask = Some(FlexTensor::from_data(TensorData::new(dropped, [1, 1, case.n, case.m])));
        }
    }
    case.measure(|| drop(attention(q.clone(), k.clone(), v.clone(), drop_mask.clone(), None, options)));
}
