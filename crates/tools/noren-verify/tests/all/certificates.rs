//! Certificates by brute force: the verifier accepts true certificates and refuses all others.

use crate::brute;
use crate::brute::{Found, Stack, hashed, stack};
use crate::draw::Draw;
use noren_flow::{Certificate, Fill, Flow, Policy};
use noren_mask::{Facts, Mask, Shape};
use noren_verify::verify;
use serde_json::{Value, json};

/// Returns the number of cases: `usual`, or the value of `NOREN_VERIFY`.
fn amount(usual: u64) -> u64 {
    std::env::var("NOREN_VERIFY").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Returns a random true certificate, made by brute force, or by the library for every second seed.
fn issued(seed: u64) -> Option<(Stack, Found, Value)> {
    let mut draw = Draw(seed ^ 0xCE27);
    let (_, stack) = stack(&mut draw);
    if brute::uncounted(&stack) {
        return None;
    }
    let found = Found::new(&stack);
    if seed.is_multiple_of(2) {
        let found = found?;
        let certificate = found.certificate(&stack, &mut draw);
        return Some((stack, found, certificate));
    }
    let certificate = library(&stack);
    assert_eq!(certificate.is_ok(), found.is_some(), "seed {seed}: {:?}\n{stack:#?}", certificate.err());
    Some((stack, found?, certificate.ok()?))
}

/// Returns the library's certificate.
fn library(stack: &Stack) -> Result<Value, String> {
    let text = |error: noren_mask::Error| error.to_string();
    let masks = stack.layers.iter().map(|mask| mask.parse().map_err(|error: noren_mask::ParseError| error.to_string()));
    let masks = masks.collect::<Result<Vec<Mask>, _>>()?;
    let shape = Shape::from_json(&stack.shape).map_err(text)?;
    let facts = Facts::from_json(&stack.facts).map_err(text)?;
    let fill = if stack.finite { Fill::Finite } else { Fill::Nothing };
    let flow = Flow::of_stack(&masks, &shape, &facts, fill).map_err(text)?;
    let policy: Policy = stack.policy.join("\n").parse().map_err(text)?;
    let certificate = Certificate::issue(&flow, &policy).map_err(text)?.to_json().map_err(text)?;
    serde_json::from_str(&certificate).map_err(|error| error.to_string())
}

#[test]
fn true_certificates_are_accepted() {
    let (mut seen, mut held, mut broken, mut empty, mut seed) = (0, 0, 0, 0, 0);
    while seen < amount(400) {
        seed += 1;
        let Some((stack, found, certificate)) = issued(seed) else { continue };
        let certificate = hashed(certificate);
        let text = serde_json::to_string_pretty(&certificate).expect("JSON");
        let report = verify(&text).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}\n{stack:#?}"));
        let pairs: usize = found.denied.iter().map(Vec::len).sum();
        assert_eq!(report.pairs, pairs as u64, "seed {seed}");
        assert_eq!(json!(report.holds), certificate["holds"], "seed {seed}");
        assert_eq!((report.layers, report.tokens, report.batch), (stack.layers.len(), found.tokens, found.batch));
        seen += 1;
        held += u64::from(report.holds);
        broken += u64::from(report.rules.iter().any(|rule| rule.violated));
        empty += u64::from(report.pairs == 0);
    }
    println!("{seen} certificates accepted: {held} hold, {broken} are violated, {empty} deny no pair");
    assert!(held > seen / 50 && broken > seen / 4, "{held} hold, {broken} violated");
}

/// Changes one field of a certificate and returns the name of the change.
#[expect(clippy::too_many_lines, reason = "one arm for each change")]
fn change(draw: &mut Draw, certificate: &mut Value) -> &'static str {
    let place = |draw: &mut Draw, list: &Value| draw.int(0, list.as_array().map_or(0, Vec::len) as i64) as usize;
    let bump = |draw: &mut Draw, value: &mut Value| {
        let old = value.as_i64().unwrap_or(0);
        *value = json!((old + if draw.once(2) { 1 } else { -1 }).max(i64::from(old == 0)));
    };
    let rules = certificate["rules"].as_array().map_or(0, Vec::len);
    match draw.int(0, 16) {
        0 => {
            certificate["holds"] = json!(!certificate["holds"].as_bool().unwrap_or(false));
            "verdict"
        }
        1 => {
            bump(draw, &mut certificate["pairs"]);
            "sum of pairs"
        }
        2 | 3 if rules > 0 => {
            let rule = &mut certificate["rules"][draw.int(0, rules as i64) as usize];
            let key = draw.pick(&["sources", "targets", "pairs", "reached_pairs", "batch"]);
            bump(draw, &mut rule[key]);
            "count of a rule"
        }
        4 if rules > 0 => {
            let rule = &mut certificate["rules"][draw.int(0, rules as i64) as usize];
            let violated = rule["violated"] == json!(true);
            rule["violated"] = json!(!violated);
            if violated {
                (rule["reached_pairs"], rule["witness"]) = (json!(0), Value::Null);
            }
            let clean = certificate["rules"]
                .as_array()
                .is_some_and(|rules| rules.iter().all(|rule| rule["violated"] == json!(false)));
            certificate["holds"] = json!(clean && certificate["pairs"] != json!(0));
            "verdict of a rule"
        }
        5 if rules > 0 => {
            let rule = &mut certificate["rules"][draw.int(0, rules as i64) as usize];
            match rule["witness"]["steps"].as_array().map(Vec::len) {
                Some(steps) => {
                    let at = draw.int(0, steps as i64) as usize;
                    let part = draw.int(0, 2) as usize;
                    bump(draw, &mut rule["witness"]["steps"][at][part]);
                }
                None => rule["witness"] = json!({"source": 0, "steps": [[0, 0]]}),
            }
            "witness"
        }
        6 | 7 => {
            let at = place(draw, &certificate["layers"]);
            let old = certificate["layers"][at].as_str().unwrap_or_default().to_string();
            let new = match draw.int(0, 4) {
                0 => "causal".into(),
                1 => format!("({old}) | keys(0)"),
                2 => format!("({old}) - queries(1)"),
                _ => format!("!({old})"),
            };
            certificate["layers"][at] = json!(new);
            "mask"
        }
        8 | 9 => {
            let key = draw.pick(&["lengths", "documents", "levels", "labels", "side", "real_keys", "positions"]);
            match (key, certificate["facts"][key].is_null()) {
                (_, true) | ("side", _) => certificate["facts"]["side"] = json!(draw.pick(&["left", "right"])),
                ("labels", _) => certificate["facts"]["labels"]["red"] = json!([draw.int(0, 3)]),
                _ => {
                    let mut at = &mut certificate["facts"][key];
                    while at.as_array().is_some_and(|list| !list.is_empty()) {
                        let index = place(draw, at);
                        at = &mut at[index];
                    }
                    if at.is_i64() || at.is_u64() { bump(draw, at) } else { *at = json!([1]) }
                }
            }
            "facts"
        }
        10 => {
            let at = place(draw, &certificate["policy"]);
            let old = certificate["policy"][at].as_str().unwrap_or_default().to_string();
            let new = if old.starts_with("deny") {
                old.replacen("deny", "allow", 1)
            } else {
                old.replacen("allow", "deny", 1)
            };
            certificate["policy"][at] = json!(if draw.once(2) { new } else { old.replace("-> ", "-> all # ") });
            "policy"
        }
        11 => {
            certificate["fill"] = json!(if certificate["fill"] == json!("finite") { "nothing" } else { "finite" });
            "fill"
        }
        12 | 13 if certificate["reach"] != json!([]) => {
            let at = place(draw, &certificate["reach"]);
            let entry = &mut certificate["reach"][at];
            let run = place(draw, &entry["after"]);
            let set = &mut entry["after"][run][1];
            let range = place(draw, set);
            let end = draw.int(0, 2) as usize;
            bump(draw, &mut set[range][end]);
            "set of a closure"
        }
        14 if certificate["reach"] != json!([]) => {
            let at = place(draw, &certificate["reach"]);
            if let Some(list) = certificate["reach"].as_array_mut() {
                let entry = list.remove(at);
                if draw.once(2) {
                    list.extend([entry.clone(), entry]);
                }
            }
            "list of closures"
        }
        _ => {
            let at = place(draw, &certificate["not_covered"]);
            if let Some(list) = certificate["not_covered"].as_array_mut() {
                match draw.int(0, 3) {
                    0 => list.clear(),
                    1 => list[at] = json!("nothing"),
                    _ => drop(list.remove(at)),
                }
            }
            "list of what is not covered"
        }
    }
}

/// Returns true if brute force confirms every claim of a certificate.
fn is_true(certificate: &Value) -> bool {
    let texts = |key: &str| -> Vec<String> {
        certificate[key]
            .as_array()
            .map_or(Vec::new(), |list| list.iter().filter_map(|text| text.as_str().map(str::to_string)).collect())
    };
    let stack = Stack {
        layers: texts("layers"),
        shape: certificate["shape"].to_string(),
        facts: certificate["facts"].to_string(),
        finite: certificate["fill"] == json!("finite"),
        policy: texts("policy"),
    };
    let Some(found) = Found::new(&stack) else { return false };
    let plain = |rules: &Value| {
        let mut rules = rules.clone();
        for rule in rules.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            rule.remove("witness");
            rule.remove("counted");
        }
        rules
    };
    let closures = certificate["reach"].as_array().is_some_and(|list| {
        list.iter().all(|entry| {
            let ranges = entry["sources"].as_array().cloned().unwrap_or_default();
            let sources: Vec<usize> = ranges
                .iter()
                .flat_map(|range| range[0].as_u64().unwrap_or(0) as usize..range[1].as_u64().unwrap_or(0) as usize)
                .collect();
            let row = entry["batch"].as_u64().unwrap_or(0) as usize;
            !sources.is_empty() && *entry == found.entry(row, &sources)
        })
    });
    let paths = certificate["rules"].as_array().is_some_and(|rules| {
        rules.iter().zip(&found.denied).all(|(rule, denied)| {
            let steps = rule["witness"]["steps"].as_array().cloned().unwrap_or_default();
            let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX) as usize;
            let (row, mut token, mut next) = (number(&rule["batch"]), number(&rule["witness"]["source"]), 0);
            let source = token;
            let walks = steps.iter().all(|step| {
                let (layer, reader) = (number(&step[0]), number(&step[1]));
                let fits = layer >= next && found.reads[layer][row][reader][token];
                (token, next) = (reader, layer + 1);
                fits
            });
            rule["witness"].is_null() == (rule["violated"] == json!(false))
                && (rule["witness"].is_null() || (walks && denied.contains(&(source, token))))
        })
    });
    paths && closures && plain(&certificate["rules"]) == json!(found.rules)
}

#[test]
fn changed_certificates_are_refused() {
    let mut refused = std::collections::BTreeMap::<&str, u64>::new();
    let (mut seen, mut seed, mut still_true) = (0, 0, 0);
    while seen < amount(1000) {
        seed += 1;
        let Some((_, _, certificate)) = issued(seed % 5000) else { continue };
        let mut draw = Draw(seed);
        let mut changed = certificate.clone();
        let what = change(&mut draw, &mut changed);
        if changed == certificate {
            continue;
        }
        let text = hashed(changed.clone()).to_string();
        let answer = verify(&text);
        // All claims may remain true after a change of the masks, facts, policy or fill, after the removal of a
        // closure, and with another path.
        let may_be_true = matches!(what, "mask" | "facts" | "policy" | "fill" | "list of closures" | "witness");
        if answer.is_ok() && may_be_true && is_true(&changed) {
            still_true += 1;
            continue;
        }
        assert!(
            answer.is_err(),
            "seed {seed}: a changed {what} is accepted\n{}",
            serde_json::to_string_pretty(&changed).expect("JSON")
        );
        *refused.entry(what).or_default() += 1;
        seen += 1;
    }
    println!("{seen} changed and hashed again, all refused: {refused:?}; {still_true} changes left every claim true");
}

#[test]
fn a_changed_certificate_fails_by_its_hash() {
    let (_, _, certificate) = (1..).find_map(issued).expect("a certificate");
    let mut changed = certificate.clone();
    changed["fill"] = json!("finite");
    changed["sha256"] = certificate["sha256"].clone();
    if certificate["fill"] == changed["fill"] {
        changed["fill"] = json!("nothing");
    }
    let refusal = verify(&changed.to_string()).expect_err("the hash differs").to_string();
    assert!(refusal.starts_with("certificate: sha256: got "), "{refusal}");
}

#[test]
fn fields_are_known_and_given_once() {
    let (_, _, certificate) = (1..).find_map(issued).expect("a certificate");
    let mut more = certificate.clone();
    more["note"] = json!("trust me");
    let refusal = verify(&hashed(more).to_string()).expect_err("an unknown field").to_string();
    assert!(refusal.contains("the field \"note\""), "{refusal}");
    let twice = certificate.to_string().replacen('{', "{\"holds\": true, ", 1);
    let refusal = verify(&twice).expect_err("a field twice").to_string();
    assert!(refusal.contains("the key \"holds\" appears twice"), "{refusal}");
    let fraction = certificate.to_string().replacen("\"batch\":1", "\"batch\":1.0", 1);
    assert!(verify(&fraction).is_err());
}

/// Returns a value at most `depth` deep within `value`.
fn somewhere<'a>(draw: &mut Draw, value: &'a mut Value, depth: i64) -> &'a mut Value {
    let inner = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    if depth == 0 || inner == 0 {
        return value;
    }
    let nth = draw.int(0, inner as i64) as usize;
    let next = match value {
        Value::Object(fields) => fields.values_mut().nth(nth),
        Value::Array(list) => list.get_mut(nth),
        _ => None,
    };
    somewhere(draw, next.expect("as many as there are"), depth - 1)
}

/// A certificate with changed text or values is accepted or refused, without a panic.
#[test]
fn hostile_certificates_end_in_an_answer() {
    let hostile = [
        "-1",
        "0",
        "99999999999",
        "9223372036854775807",
        "1e9",
        "\"\"",
        "null",
        "[]",
        "{}",
        "[[]]",
        "[[0,0]]",
        "true",
        "\"..\"",
    ];
    let texts: Vec<String> = (1..60).filter_map(issued).map(|issued| issued.2.to_string()).collect();
    let (mut answers, mut accepted) = (0, 0);
    for seed in 0..amount(3000) {
        let mut draw = Draw(seed);
        let mut text = texts[draw.int(0, texts.len() as i64) as usize].clone();
        if draw.once(3) {
            // A change of any byte.
            let at = draw.int(0, text.len() as i64) as usize;
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..at + 1, draw.pick(&["", "9", "-", "[", "]", "\"", "(", ")", ".", "é"]));
            }
        } else {
            // A change of any value, with a new hash.
            let mut value: Value = serde_json::from_str(&text).expect("JSON");
            let depth = draw.int(1, 6);
            let at = somewhere(&mut draw, &mut value, depth);
            *at = serde_json::from_str(draw.pick(&hostile)).expect("JSON");
            text = hashed(value).to_string();
        }
        answers += 1;
        accepted += u64::from(verify(&text).is_ok());
    }
    println!("{answers} hostile texts answered, {accepted} of them true");
}
