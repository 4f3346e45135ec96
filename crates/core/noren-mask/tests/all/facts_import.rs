//! Facts from token ids, padding masks, segment ids, position ids and `cu_seqlens`: accepted input, refused input,
//! messages.

use noren_mask::interval::IntervalSet;
use noren_mask::{Error, Facts, Shape, Side, atoms};

fn message(result: Result<Facts, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn token_ids_find_side_and_lengths() {
    let ids = |rows: &[Vec<i64>]| Facts::from_token_ids(rows, 0).unwrap();
    assert_eq!(ids(&[vec![5, 6, 0], vec![7, 0, 0]]), Facts::new().lengths([2, 1]));
    assert_eq!(ids(&[vec![0, 5, 6], vec![0, 0, 7]]), Facts::new().lengths([2, 1]).side(Side::Left));
    assert_eq!(ids(&[vec![5, 6], vec![7, 8]]), Facts::new().lengths([2, 2]));
    assert_eq!(ids(&[vec![0, 0], vec![0, 8]]), Facts::new().lengths([0, 1]).side(Side::Left));
    let mixed = Facts::new().real_keys(vec![IntervalSet::from(2..3), IntervalSet::from(0..2)]);
    assert_eq!(ids(&[vec![0, 0, 5], vec![7, 8, 0]]), mixed);
    let both = Facts::new().real_keys(vec![IntervalSet::from(2..3)]);
    assert_eq!(ids(&[vec![0, 0, 5, 0, 0]]), both);
}

#[test]
fn token_ids_whose_pad_id_is_real_are_refused() {
    let eos = 50256;
    assert_eq!(
        message(Facts::from_token_ids(&[[5, eos, 7, eos, eos]], eos)),
        "facts: token_ids: pad id 50256 is also a real token: in batch row 0, key 1 has this id and is between other tokens: give lengths \
         or an attention_mask instead of token ids"
    );
    assert_eq!(
        message(Facts::from_token_ids(&[[eos, 5, 7, 8], [eos, 5, eos, eos]], eos)),
        "facts: token_ids: exactly one id 50256 is at the beginning of every batch row, and some batch rows have this id at the other end too: pad id 50256 is \
         probably also a real token (eos or bos): give lengths or an attention_mask instead of token ids"
    );
    assert!(
        message(Facts::from_token_ids(&[[5, 7, 8, eos], [eos, eos, 5, eos]], eos))
            .contains("is at the end of every batch row")
    );
    assert_eq!(
        message(Facts::from_token_ids_with(&[[5, 7, 9], [5, 7, eos]], eos, &[1, eos])),
        "facts: token_ids: pad id 50256 is also a real token, so this id can be text or padding at the end of batch row 1: give lengths or an attention_mask instead of token ids"
    );
    assert!(
        message(Facts::from_token_ids_with(&[[eos, eos]], eos, &[eos])).contains("batch row 0 contains only this id")
    );
    assert_eq!(Facts::from_token_ids_with(&[[5, 7]], eos, &[eos]).unwrap(), Facts::new().lengths([2]));
}

#[test]
fn rows_must_be_equal() {
    let none: &[Vec<i64>] = &[];
    assert_eq!(
        message(Facts::from_token_ids(none, 0)),
        "facts: token_ids: the list has no rows: give one row per batch row"
    );
    assert_eq!(
        message(Facts::from_token_ids(&[vec![1, 2], vec![1]], 0)),
        "facts: token_ids: batch row 1 has 1 entries but batch row 0 has 2: pad all rows to one length"
    );
    assert_eq!(
        message(Facts::padding_from_keep(&[Vec::new()])),
        "facts: keep padding: batch row 0 has 0 entries: give 1 to 2147483647"
    );
}

#[test]
fn padding_masks_say_their_polarity() {
    let keep = [[true, true, false], [true, false, false]];
    let drop = keep.map(|row| row.map(|cell| !cell));
    let additive = keep.map(|row| row.map(|cell| if cell { 0.0 } else { f32::NEG_INFINITY }));
    let facts = Facts::new().lengths([2, 1]);
    assert_eq!(Facts::padding_from_keep(&keep).unwrap(), facts);
    assert_eq!(Facts::padding_from_drop(&drop).unwrap(), facts);
    assert_eq!(Facts::padding_from_additive(&additive).unwrap(), facts);
    let textbook = keep.map(|row| row.map(|cell| if cell { 0.0 } else { -1e9 }));
    assert_eq!(Facts::padding_from_additive(&textbook).unwrap(), facts);
    let holes = Facts::new().real_keys(vec![[0..1, 2..3].into_iter().collect()]);
    assert_eq!(Facts::padding_from_keep(&[[true, false, true]]).unwrap(), holes);
    for wrong in [-1000.0, 1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(
            message(Facts::padding_from_additive(&[[0.0, wrong]])),
            format!(
                "facts: additive padding: the mask contains {wrong}: an additive mask contains only 0 (allowed), and -inf or numbers \
                 from -9984 down, such as -1e9 (not allowed)"
            )
        );
    }
}

#[test]
fn segment_ids_become_documents_and_padding() {
    let ids = |rows: &[Vec<i64>]| Facts::from_segment_ids(rows);
    assert_eq!(ids(&[vec![1, 1, 2, 0]]).unwrap(), Facts::new().lengths([3]).documents(vec![vec![2, 1]]));
    assert_eq!(ids(&[vec![7, 3, 3]]).unwrap(), Facts::new().lengths([3]).documents(vec![vec![1, 2]]));
    // Padding after each document: the runs of non-padding keys have gaps, and the padding belongs to separate
    // documents.
    let aligned = Facts::new().real_keys(vec![[0..2, 3..5].into_iter().collect()]).documents(vec![vec![2, 1, 2, 1]]);
    assert_eq!(ids(&[vec![1, 1, 0, 2, 2, 0]]).unwrap(), aligned);
    // A gap inside a document stays part of it.
    let hole = Facts::new().real_keys(vec![[0..1, 2..3].into_iter().collect()]).documents(vec![vec![3, 1]]);
    assert_eq!(ids(&[vec![1, 0, 1, 0]]).unwrap(), hole);
    let left = Facts::new().lengths([3]).side(Side::Left).documents(vec![vec![1, 2]]);
    assert_eq!(Facts::from_segment_ids_with(&[[0, 0, 1, 2, 2]], Some(0)).unwrap(), left);
    assert_eq!(
        Facts::from_segment_ids_with(&[[0, 0, 1, -1]], Some(-1)).unwrap(),
        Facts::new().lengths([3]).documents(vec![vec![2, 1]])
    );
    assert_eq!(
        message(ids(&[vec![1, 2, 1]])),
        "facts: segment_ids: batch row 0 has id 1 again at key 2: the keys of a document must be consecutive; give segments that interleave as \
         an array, `dense(name)`"
    );
    assert_eq!(
        message(ids(&[vec![1, 1, 1], vec![0, 0, 1]])),
        "facts: segment_ids: batch row 1 begins with id 0: the id can be left padding or the number of a document: give segment_padding (0 if id 0 is padding, or none), or number documents from 1"
    );
    for rows in [vec![vec![0, 0, 1, 1, 2, 0]], vec![vec![1, 1, 2, 0], vec![0, 0, 1, 1]]] {
        assert!(message(ids(&rows)).contains("begins with id 0: the id can be left padding or"), "{rows:?}");
    }
    assert_eq!(
        message(ids(&[vec![1, -1]])),
        "facts: segment_ids: batch row 0 has id -1 at key 1: ids count from 1 and 0 is padding; if -1 is padding, set \
         segment_padding"
    );
}

#[test]
fn facts_from_padded_segments_bind() {
    for rows in [vec![1, 1, 2, 2, 0], vec![1, 0, 2, 2, 0]] {
        let facts = Facts::from_segment_ids(std::slice::from_ref(&rows)).unwrap();
        let mask = atoms::documents() & atoms::padding();
        let bound = mask.bind(&Shape::square(5), &facts).unwrap();
        for (q, k) in (0..5).flat_map(|q| (0..5).map(move |k| (q, k))) {
            if rows[q] != 0 {
                assert_eq!(bound.allowed(0, 0, q, k), rows[q] == rows[k], "{rows:?} {q} {k}");
            }
        }
    }
    let left = Facts::from_segment_ids_with(&[[0, 1, 1, 2]], Some(0)).unwrap();
    let bound = (atoms::documents() & atoms::padding()).bind(&Shape::square(4), &left).unwrap();
    assert!(bound.allowed(0, 0, 1, 2) && !bound.allowed(0, 0, 2, 3) && !bound.allowed(0, 0, 1, 0));
}

#[test]
fn position_ids_restart_with_documents() {
    let ids = |rows: &[Vec<i64>]| Facts::from_position_ids(rows);
    assert_eq!(
        ids(&[vec![0, 1, 0, 1, 2], vec![0, 1, 2, 0, 1]]).unwrap(),
        Facts::new().documents(vec![vec![2, 3], vec![3, 2]])
    );
    assert_eq!(ids(&[vec![0]]).unwrap(), Facts::new().documents(vec![vec![1]]));
    assert_eq!(
        message(ids(&[vec![0, 1, 3]])),
        "facts: position_ids: batch row 0: key 2 has position 3 after position 1: positions rise by 1 within a document and restart at 0"
    );
    assert_eq!(
        message(ids(&[vec![1, 1, 0, 1]])),
        "facts: position_ids: batch row 0: the first position is 1, but a document begins at position 0: if the first tokens are padding, give lengths or \
         an attention_mask too"
    );
    for (row, place) in [
        (vec![0, 0, 0, 1], "twice at its beginning"),
        (vec![0, 1, 0, 0], "at its end"),
        (vec![0, 1, 2, 0], "at its end"),
    ] {
        assert_eq!(
            message(ids(&[row])),
            format!(
                "facts: position_ids: batch row 0: the row has position id 0 {place}, which can mean padding or a document of one token: give \
                 lengths or an attention_mask too, or the documents themselves"
            )
        );
    }
    assert!(message(ids(&[vec![0, i64::MIN]])).contains("position -9223372036854775808 after position 0"));
    let known = Facts::new().lengths([2, 4]);
    assert_eq!(
        known.clone().with_position_ids(&[[0, 1, 1, 1], [0, 1, 0, 1]]).unwrap(),
        known.clone().documents(vec![vec![2], vec![2, 2]])
    );
    assert_eq!(
        message(known.clone().with_position_ids(&[[0, 1]])),
        "facts: position_ids: the list has 1 rows but the real tokens are given for 2 batch rows"
    );
    assert_eq!(
        message(known.with_position_ids(&[[0, 1], [0, 1]])),
        "facts: position_ids: the rows have 2 keys but the real tokens extend over 4 keys"
    );
    let left = Facts::new().lengths([2]).side(Side::Left);
    assert_eq!(
        message(left.with_position_ids(&[[0, 1, 2]])),
        "facts: position_ids: batch row 0: the first real token has position 1, but a document begins at position 0"
    );
}

#[test]
fn cu_seqlens_become_documents() {
    let facts = |ends: &[i64]| Facts::from_cu_seqlens(ends);
    assert_eq!(facts(&[0, 5, 32]).unwrap(), Facts::new().documents(vec![vec![5, 27]]));
    assert_eq!(facts(&[0, 5, 5]).unwrap(), Facts::new().documents(vec![vec![5, 0]]));
    let form = "give 0 and then the end of every document, such as [0, 5, 32] for documents of lengths [5, 27]";
    assert_eq!(message(facts(&[])), format!("facts: cu_seqlens: the list has 0 entries: {form}"));
    assert_eq!(message(facts(&[0])), format!("facts: cu_seqlens: the list has 1 entries: {form}"));
    assert_eq!(message(facts(&[5, 32])), format!("facts: cu_seqlens: the list begins with 5: {form}"));
    assert_eq!(
        message(facts(&[0, 5, 3])),
        "facts: cu_seqlens: the ends decrease from 5 to 3 at entry 2: give ends that do not decrease, or give lengths as `documents`"
    );
    assert_eq!(
        message(facts(&[0, i64::MAX])),
        "facts: cu_seqlens: the documents have 9223372036854775807 tokens in total (the last entry), but at most 2147483647 tokens are supported"
    );
    assert!(message(facts(&[0, i64::MAX, i64::MIN])).contains("the ends decrease from"));
}

/// `Reading::facts` of every reading are the stored ones.
#[test]
fn batches_have_the_stored_readings() {
    use noren_mask::batch::{Entry, Options, read};
    for batch in noren_testing::batches::batches() {
        let entry = |(name, shape, values): &(String, Vec<usize>, Vec<i64>)| Entry {
            name: Some(name.clone()),
            shape: shape.clone(),
            values: values.iter().map(|n| *n as f64).collect(),
            float: false,
        };
        let entries: Vec<Entry> = batch.arrays.iter().map(entry).collect();
        let found: Vec<Facts> =
            read(&entries, &Options::default()).unwrap().found.into_iter().map(|r| r.facts).collect();
        assert!(
            found.len() == batch.readings.len() && found.iter().all(|f| batch.readings.contains(f)),
            "{:?}: {found:?}",
            batch.arrays
        );
    }
}
