//! Private tokens: the content of a secret changes no bit of an output that may not depend on it. Each kind of
//! detector, five models (with tensors and with packed weights) and three policies are tested. Masks with a planted fault fail the same test.

use noren::{Dtype, Facts, Mask, atoms};
use noren_models::generate::{GenerateOptions, generate};
use noren_models::model::{Batch, Call, Model, Stack, Trace};
use noren_models::{pool_released, prove};
use noren_testing::awkward;
use noren_text::{BUILT_IN, ByteTokenizer, Detector, Detectors, Encoding, Policy, PrivateTokens, Tokenizer};
use std::path::PathBuf;

/// Texts of the same length that differ in one secret of each kind of detector.
const PAIRS: [(&str, &str, &str); 13] = [
    ("email", "Ask ann.lee@x.example for it", "Ask bob_r42@q.example for it"),
    ("phone", "Call +44 20 7946 0958 at nine", "Call +49 30 1234 5678 at nine"),
    ("card", "Pay 4111 1111 1111 1111 now", "Pay 5500 0000 0000 0004 now"),
    ("iban", "To GB82 WEST 1234 5698 7654 32 go", "To GB33 BUKB 2020 1555 5555 55 go"),
    ("ip", "From 192.168.10.77 it came", "From 203.113.20.11 it came"),
    ("ssn", "It is 536-22-8145 he said", "It is 219-09-9998 he said"),
    ("mac", "At 00:1A:2B:3C:4D:5E it is", "At 7C:66:9D:01:23:45 it is"),
    ("url", "On ftp://ann:pw1@x.example ok", "On ftp://bob:qz7@y.example ok"),
    ("key", "Use AKIAIOSFODNN7EXAMPLE now", "Use AKIAZZQWERT12345678X now"),
    (
        "private_key",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- a",
        "-----BEGIN PRIVATE KEY-----\nZ9+/\n-----END PRIVATE KEY----- a",
    ),
    ("password", "The password: hunter2345 ok", "The password: tr0ub4dor3 ok"),
    ("birth_date", "He was born 1985-03-12 here", "He was born 2001-11-30 here"),
    ("address", "At 742 Evergreen Terrace it is", "At 318 Sycamores Terrace it is"),
];
const MODELS: [&str; 5] = ["bert", "llama", "gpt2", "gemma3", "embedded"];

fn model(name: &str) -> Model {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = match name {
        "embedded" => root.join("../../apps/noren-cli/assets/model"),
        name => root.join("../../../testdata/conformance/models").join(name),
    };
    Model::load(folder).unwrap()
}

/// Returns a token for each byte; small vocabularies have the begin token after ASCII.
fn encode(text: &str, vocab: usize) -> Encoding {
    let mut tokens = ByteTokenizer.encode(text).unwrap();
    if vocab < ByteTokenizer::VOCAB_SIZE {
        tokens.ids[0] = 128;
    }
    tokens
}

fn private(text: &str, kinds: &str, tokens: &Encoding) -> PrivateTokens {
    PrivateTokens::locate(&kinds.parse::<Detectors>().unwrap().find(text).unwrap(), text, tokens)
}

fn stack(model: &Model) -> Stack {
    model.masks()[0].stack
}

/// Returns the model under `policy`.
fn under(model: &Model, policy: &Policy) -> Model {
    let mut model = model.clone();
    let own = model.masks()[0].spec.mask.clone();
    model.set_mask(stack(&model), policy.mask(own)).unwrap();
    model
}

/// Returns states and logits by token. Outputs for the whole text are added to those of the first token.
fn rows(model: &Model, ids: &[u32], facts: &Facts) -> noren_models::Result<Vec<Vec<f32>>> {
    let batch = Batch::new(vec![ids.to_vec()])?.facts(facts.clone());
    let output = model.forward(&batch)?;
    let mut rows = output.last_hidden_state.get(0)?.to_vec2::<f32>()?;
    match output.logits {
        Some(logits) if logits.rank() == 3 => {
            rows.iter_mut().zip(logits.get(0)?.to_vec2::<f32>()?).for_each(|(row, more)| row.extend(more));
        }
        Some(logits) => rows[0].extend(logits.flatten_all()?.to_vec1::<f32>()?),
        None => {}
    }
    if let Some(pooled) = output.pooler_output {
        rows[0].extend(pooled.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(rows)
}

fn bits(rows: &[Vec<f32>], at: impl Iterator<Item = usize>) -> Vec<u32> {
    at.flat_map(|at| rows[at].iter().map(|x| x.to_bits())).collect()
}

#[test]
fn another_secret_changes_no_bit() {
    assert_eq!(PAIRS.map(|(kind, ..)| kind), BUILT_IN);
    let packed = |name, dtype: Dtype| {
        let mut packed = model(name);
        packed.pack(dtype).unwrap();
        packed
    };
    let models = MODELS
        .into_iter()
        .flat_map(|name| [(name, model(name)), (name, packed(name, Dtype::F32)), (name, packed(name, Dtype::Bf16))]);
    for (name, plain) in models {
        for (kind, own, other) in PAIRS {
            let tokens = encode(own, plain.vocab());
            let swapped = encode(other, plain.vocab());
            let secret = private(own, kind, &tokens);
            assert!(secret.count() > 8, "{kind} is found");
            assert_eq!(secret.positions(), private(other, kind, &swapped).positions(), "{kind}: the same tokens");
            let public = || (0..tokens.len()).filter(|at| !secret.is_private(*at));
            let facts = Policy::Hide.facts(&[&secret], Facts::new());

            let hiding = under(&plain, &Policy::Hide);
            let [a, b] = [&tokens, &swapped].map(|tokens| rows(&hiding, &tokens.ids, &facts).unwrap());
            assert_eq!(bits(&a, public()), bits(&b, public()), "{name}, {kind}");
            // Without the policy, the outputs of the two texts differ.
            let [c, d] = [&tokens, &swapped].map(|tokens| rows(&plain, &tokens.ids, &facts).unwrap());
            assert_ne!(bits(&c, public()), bits(&d, public()), "{name}, {kind}: nothing was swapped");

            let choices: Vec<u32> = (32..127).collect();
            let proof =
                prove(&tokens.ids, &secret, &Policy::Hide, &choices, 2, |ids| rows(&hiding, ids, &facts)).unwrap();
            assert!(proof.holds() && proof.secret_changed == secret.count(), "{name}, {kind}: {proof:?}");
        }
    }
}

#[test]
fn broken_masks_are_caught() {
    for name in MODELS {
        let plain = model(name);
        let (kind, text, _) = PAIRS[0];
        let tokens = encode(text, plain.vocab());
        let secret = private(text, kind, &tokens);
        let at = secret.positions();
        // Models with windows are left out: a token beyond the window is never read.
        let own = if stack(&plain) == Stack::Encoder { "full" } else { "causal" };
        let (first, last) = (at[0], at[at.len() - 1]);
        let broken = [
            ("forgets the last token of the secret", format!("{own} - keys({first}..{last})")),
            ("forgets the first", format!("{own} - keys({}..{})", first + 1, last + 1)),
            ("forgets a layer", format!("layers(1: {own}, else: {own} - keys(label=\"private\"))")),
            ("forgets a head", format!("heads(1: {own}, else: {own} - keys(label=\"private\"))")),
            (
                "lets one query read one token",
                format!("{own} - keys(label=\"private\") | queries({}) & keys({last})", last + 1),
            ),
        ];
        for (what, mask) in broken {
            let mut model = plain.clone();
            model.set_mask(stack(&plain), mask.parse::<Mask>().unwrap()).unwrap();
            let facts = Policy::Hide.facts(&[&secret], Facts::new());
            let choices: Vec<u32> = (32..127).collect();
            let proof =
                prove(&tokens.ids, &secret, &Policy::Hide, &choices, 2, |ids| rows(&model, ids, &facts)).unwrap();
            assert!(!proof.holds() && !proof.leaks.is_empty(), "{name}: a mask that {what} is not caught: {mask}");
        }
    }
}

#[test]
fn readers_see_what_their_clearance_allows() {
    let text = "Ask ann.lee@x.example, pay 4111 1111 1111 1111 now";
    let kinds = "email,card".parse::<Detectors>().unwrap().kinds();
    let levels: std::collections::BTreeMap<_, _> = kinds.into_iter().zip([1, 2]).collect();
    for name in MODELS {
        let plain = model(name);
        let tokens = encode(text, plain.vocab());
        let secret = private(text, "email,card", &tokens);
        let choices: Vec<u32> = (32..127).collect();
        for reader in [0, 1] {
            let policy = Policy::Clearance { levels: levels.clone(), reader };
            let model = under(&plain, &policy);
            let facts = policy.facts(&[&secret], Facts::new());
            let proof = prove(&tokens.ids, &secret, &policy, &choices, 2, |ids| rows(&model, ids, &facts)).unwrap();
            assert!(proof.holds(), "{name}, reader {reader}: {proof:?}");
            let released = (0..tokens.len()).filter(|at| policy.released(&secret, *at)).count();
            assert_eq!(released, if reader == 0 { tokens.len() - 17 - 19 } else { tokens.len() - 19 });
        }
        // Tokens with clearance for e-mail read the address, so it changes their outputs and those of the card.
        let policy = Policy::Clearance { levels: levels.clone(), reader: 2 };
        let model = under(&plain, &policy);
        let facts = policy.facts(&[&secret], Facts::new());
        let mut other = tokens.ids.clone();
        other[6] += 1;
        let [a, b] = [&tokens.ids, &other].map(|ids| rows(&model, ids, &facts).unwrap());
        let card = || 29..40;
        assert_ne!(bits(&a, card()), bits(&b, card()), "{name}: the card's level is above the address's");
        assert_eq!(bits(&a, 47..tokens.len()), bits(&b, 47..tokens.len()), "{name}: the end of the text is public");
    }
}

#[test]
fn heads_that_do_not_read_give_secrets_nothing() {
    let (kind, own, other) = PAIRS[2];
    for name in ["bert", "gpt2", "embedded"] {
        let plain = model(name);
        let tokens = encode(own, plain.vocab());
        let secret = private(own, kind, &tokens);
        let policy = Policy::Heads(vec![noren::noren_mask::Span::from(0..2)]);
        let model = under(&plain, &policy);
        let facts = policy.facts(&[&secret], Facts::new());
        let weights = |text: &str| {
            let batch = Batch::new(vec![encode(text, plain.vocab()).ids]).unwrap().facts(facts.clone());
            let mut trace = Trace::layers([0]);
            model.forward_with(&batch, None, Call { trace: Some(&mut trace), ..Call::default() }).unwrap();
            trace.records()[0].weights().unwrap().get(0).unwrap().to_vec3::<f32>().unwrap()
        };
        let [a, b] = [weights(own), weights(other)];
        let public = || (0..tokens.len()).filter(|at| !secret.is_private(*at));
        for head in 0..4 {
            let on_secret = public().flat_map(|q| secret.positions().into_iter().map(move |k| (q, k)));
            let most = on_secret.map(|(q, k)| a[head][q][k]).fold(0f32, f32::max);
            let same = bits(&a[head], public()) == bits(&b[head], public());
            assert_eq!((most == 0.0, same), (head < 2, head < 2), "{name}, head {head}");
        }
        assert!(public().all(|at| !policy.released(&secret, at)), "no output is promised to be safe");
    }
}

#[test]
fn what_is_said_of_the_whole_text_leaves_secrets_out() {
    for name in ["bert", "bert_classifier"] {
        let plain = model(name);
        for (kind, own, other) in PAIRS {
            let tokens = encode(own, plain.vocab());
            let secret = private(own, kind, &tokens);
            let facts = Policy::Hide.facts(&[&secret], Facts::new());
            let of_text = |model: &Model, text: &str| {
                let ids = encode(text, plain.vocab()).ids;
                let output = model.forward(&Batch::new(vec![ids]).unwrap().facts(facts.clone())).unwrap();
                let states = output.last_hidden_state.get(0).unwrap().to_vec2::<f32>().unwrap();
                let pooler = output
                    .pooler_output
                    .into_iter()
                    .chain(output.logits)
                    .map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap());
                let said: Vec<Vec<f32>> = pooler.chain(pool_released(&states, &secret, &Policy::Hide)).collect();
                assert!(said.len() >= 2, "a pooled state, or the scores of classes, and the mean");
                (bits(&said, 0..said.len()), states)
            };
            let hiding = under(&plain, &Policy::Hide);
            let [(a, all), (b, others)] = [own, other].map(|text| of_text(&hiding, text));
            assert_eq!(a, b, "{name}, {kind}");
            let mean = |states: &[Vec<f32>]| states.iter().map(|row| row[0]).sum::<f32>();
            assert_ne!(mean(&all), mean(&others), "{name}, {kind}: a mean over all tokens tells");
            let [(c, _), (d, _)] = [own, other].map(|text| of_text(&plain, text));
            assert_ne!(c, d, "{name}, {kind}: without the policy the text is told apart");
        }
    }
}

#[test]
fn a_decoder_learns_nothing_through_the_encoder() {
    let plain = model("t5");
    let mut hiding = plain.clone();
    for declared in plain.masks().into_iter().filter(|declared| declared.stack != Stack::Decoder) {
        hiding.set_mask(declared.stack, Policy::Hide.mask(declared.spec.mask)).unwrap();
    }
    // A mask of the encoder is not enough: a secret's own state holds the secret, and the decoder would read it.
    let mut half = plain.clone();
    half.set_mask(Stack::Encoder, Policy::Hide.mask(plain.masks()[0].spec.mask.clone())).unwrap();
    let decoder = Batch::new(vec![vec![0, 5, 7, 9]]).unwrap();
    for (kind, own, other) in PAIRS {
        let tokens = encode(own, plain.vocab());
        let secret = private(own, kind, &tokens);
        let facts = Policy::Hide.facts(&[&secret], Facts::new());
        let run = |model: &Model, text: &str| {
            let batch = Batch::new(vec![encode(text, plain.vocab()).ids]).unwrap().facts(facts.clone());
            let states = model.encode(&batch, Call::default()).unwrap().get(0).unwrap().to_vec2::<f32>().unwrap();
            let output = model.forward_with(&batch, Some(&decoder), Call::default()).unwrap();
            let decoded = output.logits.unwrap().get(0).unwrap().to_vec2::<f32>().unwrap();
            (bits(&states, (0..tokens.len()).filter(|at| !secret.is_private(*at))), bits(&decoded, 0..4))
        };
        assert_eq!(run(&hiding, own), run(&hiding, other), "{kind}");
        let [(a, c), (b, d)] = [own, other].map(|text| run(&half, text));
        assert!(a == b && c != d, "{kind}: cross-attention that forgets is caught");
    }
}

#[test]
fn texts_go_on_as_if_the_secret_were_another() {
    for name in ["llama", "gpt2", "gemma3", "embedded"] {
        let hiding = under(&model(name), &Policy::Hide);
        for (kind, own, other) in PAIRS {
            let tokens = encode(own, hiding.vocab());
            let secret = private(own, kind, &tokens);
            let facts = Policy::Hide.facts(&[&secret], Facts::new());
            let go_on = |text: &str, chunk| {
                let options = GenerateOptions {
                    new_tokens: 12,
                    prefill_chunk: chunk,
                    facts: facts.clone(),
                    ..Default::default()
                };
                let mut logits = Vec::new();
                let prompt = encode(text, hiding.vocab()).ids;
                let made = generate(&hiding, &[prompt], &options, &mut |step| {
                    logits.push(step.logits.to_vec());
                    true
                });
                (made.unwrap().tokens, bits(&logits, 0..12))
            };
            assert_eq!(go_on(own, 512), go_on(other, 512), "{name}, {kind}");
        }
    }
    let nothing = atoms::full() - atoms::keys(noren::Positions::label("private"));
    assert_eq!(Policy::Hide.mask(atoms::full()), nothing);
}

/// The proof holds for all findings in texts with unusual forms (`NOREN_SECRETS` is the number of texts), and in each line of
/// this project's documentation.
#[test]
fn proofs_hold_for_everything_found() {
    let plain = model("embedded");
    let hiding = under(&plain, &Policy::Hide);
    let detectors = "all".parse::<Detectors>().unwrap().with(Detector::words("word", awkward::WORDS).unwrap());
    let count = std::env::var("NOREN_SECRETS").ok().map_or(60, |count| count.parse().expect("a number"));
    let mut texts: Vec<String> = awkward::cases(count, 7).into_iter().map(|case| case.text).collect();
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/text.md");
    let page = std::fs::read_to_string(page).unwrap();
    texts.extend(page.lines().map(|line| line.chars().take(300).collect()));
    let (mut proved, mut secrets) = (0, 0);
    for text in &texts {
        let tokens = encode(text, plain.vocab());
        let found = detectors.find(text).unwrap();
        let secret = PrivateTokens::locate(&found, text, &tokens);
        if secret.count() == 0 {
            continue;
        }
        let facts = Policy::Hide.facts(&[&secret], Facts::new());
        let choices: Vec<u32> = (32..127).collect();
        let proof = prove(&tokens.ids, &secret, &Policy::Hide, &choices, 1, |ids| rows(&hiding, ids, &facts)).unwrap();
        assert!(proof.holds() && proof.secret_changed == secret.count(), "{text:?}: {proof:?}");
        proved += 1;
        secrets += found.len();
    }
    println!("{proved} proofs hold for {secrets} findings");
    assert!(proved > count);
}
