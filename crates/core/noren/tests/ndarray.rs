//! Arrays of the crate ndarray as inputs and outputs: in any order of axes, reversed, sliced with gaps, and broadcast.

use ndarray::{Array4, ArrayD, ArrayView4, ArrayViewMut4, Axis, Ix4, s};
use noren::{Attend, Error, IntoView, View, ViewMut, attend};

fn array(shape: (usize, usize, usize, usize), seed: usize) -> Array4<f32> {
    Array4::from_shape_fn(shape, |(b, h, i, d)| {
        ((b * 7919 + h * 311 + i * 53 + d * 17 + seed * 101) % 97) as f32 / 48.5 - 1.0
    })
}

#[test]
fn every_layout_gives_the_same_bits() {
    let (q, k, v) = (array((2, 4, 11, 8), 1), array((2, 2, 11, 8), 2), array((2, 2, 11, 6), 3));
    let mask = "sliding(5) | global(0)";
    let expected: Array4<f32> = attend(&q, &k, &v, mask).unwrap().into();

    // [batch, length, heads, head_dim] memory, and head_dim outermost: borrowed
    let by_token = q.view().permuted_axes([0, 2, 1, 3]).as_standard_layout().into_owned();
    let by_token = by_token.permuted_axes([0, 2, 1, 3]);
    let columns = v.view().reversed_axes().as_standard_layout().into_owned().reversed_axes();
    // reversed in memory
    let mut backwards = k.slice(s![.., .., ..;-1, ..;-1]).as_standard_layout().into_owned();
    backwards.invert_axis(Axis(2));
    backwards.invert_axis(Axis(3));
    for array in [&by_token, &columns, &backwards] {
        assert!(!array.is_standard_layout() && !array.into_view().unwrap().is_copied());
    }
    assert_eq!(Array4::from(attend(&by_token, &backwards, &columns, mask).unwrap()), expected);

    // slices with gaps are copied
    let mut wide = Array4::from_elem((2, 6, 11, 20), f32::NAN);
    wide.slice_mut(s![.., 1..5, .., 3..19;2]).assign(&q);
    let gaps = wide.slice(s![.., 1..5, .., 3..19;2]);
    assert!(gaps.into_view().unwrap().is_copied());
    assert_eq!(Array4::from(attend(gaps, &k, &v, mask).unwrap()), expected);

    // dynamic dimensions, and a broadcast batch
    let dynamic: ArrayD<f32> = q.clone().into_dyn();
    assert_eq!(Array4::from(attend(&dynamic, &k, &v, mask).unwrap()), expected);
    let one = k.slice(s![..1, .., .., ..]);
    let twice = one.broadcast((2, 2, 11, 8)).unwrap();
    let dense = twice.to_owned();
    assert_eq!(attend(&q, twice, &v, mask).unwrap(), attend(&q, &dense, &v, mask).unwrap());
}

#[test]
fn outputs_may_be_arrays_without_gaps() {
    let x = array((1, 2, 7, 4), 1);
    let expected: Array4<f32> = attend(&x, &x, &x, "causal").unwrap().into();
    let attend = Attend::new("causal").unwrap();
    let mut out = Array4::<f32>::zeros((1, 7, 2, 4));
    let by_head: ArrayViewMut4<'_, f32> = out.view_mut().permuted_axes([0, 2, 1, 3]);
    attend.forward_into(&x, &x, &x, by_head, None).unwrap();
    assert_eq!(out.view().permuted_axes([0, 2, 1, 3]), expected);

    let mut reversed = Array4::<f32>::zeros((1, 2, 7, 4));
    reversed.invert_axis(Axis(2));
    attend.forward_into(&x, &x, &x, &mut reversed, None).unwrap();
    assert_eq!(reversed, expected);

    let mut wide = Array4::<f32>::zeros((1, 2, 7, 8));
    let error = attend.forward_into(&x, &x, &x, wide.slice_mut(s![.., .., .., ..4]), None).unwrap_err();
    assert!(error.to_string().contains("the memory of this array has gaps between its elements"), "{error}");
    let mut small = Array4::<f32>::zeros((1, 2, 7, 3));
    assert!(matches!(attend.forward_into(&x, &x, &x, &mut small, None), Err(Error::Shape { name: "out", .. })));
}

#[test]
fn other_shapes_are_refused() {
    let x = array((1, 2, 7, 4), 1);
    let flat = x.clone().into_shape_with_order((2, 7, 4)).unwrap();
    let error = attend(&flat, &x, &x, "causal").unwrap_err();
    assert!(matches!(&error, Error::Shape { given, .. } if given == &[2, 7, 4]), "{error}");
    let empty = Array4::<f32>::zeros((1, 2, 0, 4));
    assert!(matches!(attend(&empty, &x, &x, "causal"), Err(Error::View { .. })));
    // a broadcast array whose copy would not fit into memory
    let single = Array4::<f32>::zeros((1, 1, 1, 4));
    let wide = single.broadcast((1 << 20, 1 << 20, 1 << 12, 4)).unwrap();
    let error = attend(wide, &x, &x, "causal").unwrap_err().to_string();
    assert!(error.contains("[1048576, 1048576, 4096, 4]") && error.contains("memory"), "{error}");
    let dynamic = x.clone().into_dyn().into_dimensionality::<Ix4>().unwrap();
    assert!(attend(&dynamic, &x, &x, "causal").is_ok());
}

/// Views of any strides become arrays of ndarray without a copy, and have the same elements.
#[test]
fn views_become_arrays_without_copies() {
    let mut data: Vec<f32> = (0..200).map(|x| x as f32).collect();
    for (shape, strides, offset) in [
        ([2, 3, 4, 5], [60, 20, 5, 1], 0),
        ([2, 3, 4, 5], [5, 10, 30, 1], 7),
        ([2, 3, 4, 5], [60, 20, -5, 1], 15),
        ([2, 3, 4, 5], [-60, -20, -5, -1], 119),
        ([1, 1, 1, 1], [-9, 0, 1000, 1], 199),
        ([2, 2, 3, 2], [80, 25, 7, 3], 20),
    ] {
        let view = View::strided(&data, shape, strides, offset).unwrap();
        let array = ArrayView4::from(view);
        assert_eq!(array.shape(), shape);
        for ((b, h, i, d), value) in array.indexed_iter() {
            assert_eq!(*value, view.get([b, h, i, d]), "{strides:?}");
        }
        let first = std::ptr::from_ref(&data[offset]);
        assert_eq!(std::ptr::from_ref(&array[[0, 0, 0, 0]]), first);
        let expected: Vec<f32> = array.iter().copied().collect();
        let mut array = ArrayViewMut4::from(ViewMut::strided(&mut data, shape, strides, offset).unwrap());
        assert_eq!(array.iter().copied().collect::<Vec<_>>(), expected);
        array[[0, 0, 0, 0]] += 1000.0;
        assert_eq!(data[offset], expected[0] + 1000.0);
    }
    // a broadcast view
    let view = View::strided(&data, [2, 3, 4, 5], [0, 0, 5, 1], 0).unwrap();
    assert_eq!(ArrayView4::from(view)[[1, 2, 3, 4]], data[19]);
}
