//! The model that is embedded in the command. With one set of weights and two masks, its generated text consists of words, and
//! it predicts a masked byte better than frequencies do.

use noren::atoms;
use noren_models::generate::{GenerateOptions, Sampling, generate};
use noren_models::model::{Batch, Model, Stack};
use noren_text::{ByteTokenizer, Role, Tokenizer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A text from George Eliot's Middlemarch (1871), which is not in the training data.
const UNSEEN: &str = "Miss Brooke had that kind of beauty which seems to be thrown into relief by poor dress. Her hand and wrist were \
    so finely formed that she could wear sleeves not less bare of style than those in which the Blessed Virgin appeared to \
    Italian painters; and her profile as well as her stature and bearing seemed to gain the more dignity from her plain \
    garments, which by the side of provincial fashion gave her the impressiveness of a fine quotation from the Bible, or from \
    one of our elder poets, in a paragraph of to-day's newspaper. She was usually spoken of as being remarkably clever, but \
    with the addition that her sister Celia had more common-sense.";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../apps/noren-cli/assets/model")
}

fn logits(model: &Model, ids: Vec<u32>) -> Vec<Vec<f32>> {
    let output = model.forward(&Batch::new(vec![ids]).unwrap()).unwrap();
    output.logits.unwrap().get(0).unwrap().to_vec2().unwrap()
}

/// Returns `-ln p` of a token.
fn loss(logits: &[f32], token: u32) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - most)
}

/// Returns the entropy of single bytes of the text itself. No prediction by frequencies alone has a lower loss.
fn entropy(ids: &[u32]) -> f64 {
    let mut counts = BTreeMap::new();
    ids.iter().for_each(|id| *counts.entry(id).or_insert(0.0) += 1.0);
    counts.values().map(|n: &f64| n / ids.len() as f64).map(|p| -p * p.ln()).sum()
}

#[test]
fn a_masked_byte_is_filled_better_than_by_frequency() {
    let mut model = Model::load(folder()).unwrap();
    model.set_mask(Stack::Decoder, atoms::full()).unwrap();
    let ids = ByteTokenizer.encode(UNSEEN).unwrap().ids;
    let mask = ByteTokenizer.special(Role::Mask).unwrap();
    let (mut sum, mut right, mut asked) = (0.0, 0, 0);
    for first in 1..8 {
        let places: Vec<usize> = (first..ids.len()).step_by(7).collect();
        let mut masked = ids.clone();
        places.iter().for_each(|at| masked[*at] = mask);
        let logits = logits(&model, masked);
        for at in places {
            let best = (0..logits[at].len()).max_by(|a, b| logits[at][*a].total_cmp(&logits[at][*b])).unwrap();
            sum += loss(&logits[at], ids[at]);
            right += usize::from(best == ids[at] as usize);
            asked += 1;
        }
    }
    let (mean, share, unigram) = (sum / asked as f64, right as f64 / asked as f64, entropy(&ids[1..]));
    println!("masked: {mean:.3} nats by byte, {unigram:.3} by frequency; {:.0} % right", 100.0 * share);
    assert!(mean < 0.6 * unigram && share > 0.5);
}

#[test]
fn the_next_byte_is_predicted_better_than_by_frequency() {
    let model = Model::load(folder()).unwrap();
    let ids = ByteTokenizer.encode(UNSEEN).unwrap().ids;
    let logits = logits(&model, ids.clone());
    let mean = (1..ids.len()).map(|at| loss(&logits[at - 1], ids[at])).sum::<f64>() / (ids.len() - 1) as f64;
    let unigram = entropy(&ids[1..]);
    println!("next: {mean:.3} nats by byte, {unigram:.3} by frequency");
    assert!(mean < 0.75 * unigram);
}

#[test]
fn prompts_go_on_in_words() {
    let model = Model::load(folder()).unwrap();
    let list = std::fs::read_to_string(folder().join("words.txt")).unwrap();
    let known: BTreeSet<&str> = list.lines().collect();
    let prompts = [
        "It is a truth universally acknowledged, that",
        "She was very glad to ",
        "My dear Mr. Knightley, ",
        "The weather was",
    ];
    let ids: Vec<Vec<u32>> = prompts.iter().map(|prompt| ByteTokenizer.encode(prompt).unwrap().ids).collect();
    let sampling = Sampling { temperature: 0.5, top_p: Some(0.9), ..Sampling::default() };
    let options = GenerateOptions { new_tokens: 200, sampling, ..GenerateOptions::default() };
    let made = generate(&model, &ids, &options, &mut |_| true).unwrap();
    let (mut words, mut real) = (0, 0);
    for (prompt, tokens) in prompts.iter().zip(&made.tokens) {
        let text = ByteTokenizer.decode(tokens).unwrap();
        println!("{prompt}|{text}");
        // The first piece may be the end of a word of the prompt, and the last piece may be incomplete.
        let pieces: Vec<String> = text.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_lowercase).collect();
        let whole = pieces[1..pieces.len() - 1].iter().filter(|piece| !piece.is_empty());
        whole.for_each(|word| {
            words += 1;
            real += usize::from(known.contains(word.as_str()));
        });
    }
    println!("{real} of {words} words are among the 3000 most frequent of the training text");
    assert!(words > 80 && real * 10 >= words * 8, "{real} of {words}");
}
