//! [`prove`] and [`prove_texts`]: tests that released outputs of a model do not depend on private tokens.

use crate::error::{Error, Result};
use noren::noren_mask::philox;
use noren_text::{Policy, PrivateTokens};

/// The result of a test for leaks of private tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Number of trials: calls of the model in which other tokens replaced the private tokens of the text.
    pub trials: usize,
    /// Number of output values that were compared in each trial: all values of the released outputs.
    pub compared: usize,
    /// The indices of the tokens whose released output changed in at least one bit, in at least one trial (call with
    /// other private tokens).
    pub leaks: Vec<usize>,
    /// Number of private tokens whose own output changed in at least one trial (call with other private tokens). If
    /// this number is 0, replacing the private tokens had no effect, and the test establishes nothing.
    pub secret_changed: usize,
}

impl Proof {
    /// Returns true if no bit of a released output changed, and the output of at least one private token changed.
    pub fn holds(&self) -> bool {
        self.leaks.is_empty() && self.secret_changed > 0
    }
}

/// Returns the mean of the states of the tokens that `policy` releases: a vector for the text without its private
/// tokens. `states` has one state for each token. Returns `None` if no token is released.
///
/// ```
/// use noren_models::pool_released;
/// use noren_text::{ByteTokenizer, Detectors, Policy, PrivateTokens, Tokenizer};
/// let text = "a@b.example";
/// let tokens = ByteTokenizer.encode(text)?;
/// let private = PrivateTokens::locate(&"email".parse::<Detectors>()?.find(text)?, text, &tokens);
/// let mut states = vec![vec![f32::NAN]; tokens.len()]; // a secret's own state holds the secret
/// states[0] = vec![2.0];
/// assert_eq!(pool_released(&states, &private, &Policy::Hide), Some(vec![2.0]));
/// # Ok::<(), noren_text::Error>(())
/// ```
pub fn pool_released(states: &[Vec<f32>], private: &PrivateTokens, policy: &Policy) -> Option<Vec<f32>> {
    let released = || states.iter().enumerate().filter(|(at, _)| policy.released(private, *at)).map(|(_, state)| state);
    let mut sum = vec![0f32; released().next()?.len()];
    for state in released() {
        sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += x);
    }
    let count = released().count() as f32;
    Some(sum.into_iter().map(|x| x / count).collect())
}

/// Runs the model with the given text, and `trials` times with a variant of the text. In a variant, another token from
/// `choices` replaces each private token that `policy` hides from the reader. Compares the released outputs bit by bit.
///
/// `run` takes token ids and returns one row of numbers for each token (a state or logits). All variants have the same
/// number of tokens, and private tokens at the same indices. The test therefore does not show whether outputs depend on
/// this number and these indices. The test almost certainly finds an output that reads a private token, because another
/// token changes at least one bit of the values that are read.
///
/// # Errors
/// Returns an error if `choices` has fewer than two tokens, if `private` has another number of tokens than `ids`, if
/// `run` does not return one row for each token, and any error of `run`.
pub fn prove(
    ids: &[u32],
    private: &PrivateTokens,
    policy: &Policy,
    choices: &[u32],
    trials: usize,
    mut run: impl FnMut(&[u32]) -> Result<Vec<Vec<f32>>>,
) -> Result<Proof> {
    let one = |texts: &[Vec<u32>]| Ok(vec![run(&texts[0])?]);
    let mut proofs = prove_texts(&[(ids, private)], policy, choices, trials, one)?;
    // There is one proof for each text.
    Ok(proofs.swap_remove(0))
}

/// Runs the test of [`prove`] for several texts at once. A trial replaces the private tokens of all texts. The test
/// therefore also finds an output of a text that depends on private tokens of another text. Returns one proof for each
/// text. The proof of a text without hidden tokens does not hold, because there is nothing to replace; its `leaks` are
/// the tokens whose outputs depend on other texts.
///
/// `texts` holds the token ids and the private tokens of each text. `run` takes the token ids of all texts and returns,
/// for each text, one row of numbers for each token.
///
/// # Errors
/// Returns the errors of [`prove`], for any of the texts.
pub fn prove_texts(
    texts: &[(&[u32], &PrivateTokens)],
    policy: &Policy,
    choices: &[u32],
    trials: usize,
    mut run: impl FnMut(&[Vec<u32>]) -> Result<Vec<Rows>>,
) -> Result<Vec<Proof>> {
    if choices.len() < 2 {
        return Err(Error::input(
            "the vocabulary",
            choices.len(),
            "at least two tokens are needed, because a secret is replaced by another token",
        ));
    }
    if let Some((ids, private)) = texts.iter().find(|(ids, private)| private.len() != ids.len()) {
        return Err(Error::input(
            "private tokens",
            private.len(),
            format!("the text has {} tokens: give the private tokens of the same text", ids.len()),
        ));
    }
    let own = rows(&mut run, &texts.iter().map(|(ids, _)| ids.to_vec()).collect::<Vec<_>>())?;
    let mut changed: Vec<Vec<bool>> = texts.iter().map(|(ids, _)| vec![false; ids.len()]).collect();
    for trial in 0..trials {
        let swapped = |(ids, private): &(&[u32], &PrivateTokens)| {
            let token = |at: usize| match policy.secret(private, at) {
                true => another(ids[at], choices, at, trial),
                false => ids[at],
            };
            (0..ids.len()).map(token).collect::<Vec<u32>>()
        };
        let other = rows(&mut run, &texts.iter().map(swapped).collect::<Vec<_>>())?;
        for (changed, (own, other)) in changed.iter_mut().zip(own.iter().zip(&other)) {
            let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            changed.iter_mut().enumerate().for_each(|(at, changed)| *changed |= bits(&own[at]) != bits(&other[at]));
        }
    }
    let proof = |text: usize| {
        let ((ids, private), own, changed) = (texts[text], &own[text], &changed[text]);
        let released: Vec<usize> = (0..ids.len()).filter(|at| policy.released(private, *at)).collect();
        let secret = (0..ids.len()).filter(|at| policy.secret(private, *at));
        Proof {
            trials,
            compared: released.iter().map(|at| own[*at].len()).sum(),
            leaks: released.into_iter().filter(|at| changed[*at]).collect(),
            secret_changed: secret.filter(|at| changed[*at]).count(),
        }
    };
    Ok((0..texts.len()).map(proof).collect())
}

/// The outputs of one text: one row of numbers for each token.
type Rows = Vec<Vec<f32>>;

/// Calls `run`, and returns an error unless the result has one row for each token of each text.
fn rows(run: &mut impl FnMut(&[Vec<u32>]) -> Result<Vec<Rows>>, texts: &[Vec<u32>]) -> Result<Vec<Rows>> {
    let rows = run(texts)?;
    let [given, needed] = [rows.iter().map(Vec::len).collect::<Vec<_>>(), texts.iter().map(Vec::len).collect()];
    match given == needed {
        true => Ok(rows),
        false => {
            let given = given.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let needed: usize = needed.iter().sum();
            Err(Error::input("outputs", given, format!("one row for each of {needed} tokens is needed")))
        }
    }
}

/// Returns a random token of `choices` that is not `own`. Calls with the same token index `at` and the same trial
/// number `trial` return the same token.
fn another(own: u32, choices: &[u32], at: usize, trial: usize) -> u32 {
    let word = philox([at as u32, trial as u32, 0x5EC7, 0], 0)[0] as usize;
    let chosen = choices[word % choices.len()];
    if chosen != own { chosen } else { choices[(word + 1) % choices.len()] }
}
