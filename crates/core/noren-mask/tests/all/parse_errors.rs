//! The messages of the parser: each kind of error with its whole message.

use noren_mask::{Mask, Spec};

/// Returns the message and the marked part of an invalid mask, or of an invalid spec if the text has scores.
fn refused(text: &str) -> (String, String) {
    let error = match text.parse::<Spec>() {
        Err(error) => error,
        Ok(spec) => panic!("{text:?} parses as {spec}"),
    };
    let whole = error.to_string();
    (whole.lines().next().unwrap_or_default().to_string(), error.text[error.span].to_string())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case for each error")]
fn every_error_names_the_cause_the_expected_text_and_the_repair() {
    for (text, marked, message) in [
        // Names.
        ("padding & cuasal", "cuasal", "unknown name `cuasal`: did you mean `causal`?"),
        ("Causal", "Causal", "unknown name `Causal`: did you mean `causal`?"),
        ("tril", "tril", "unknown name `tril`: the mask language calls this `causal`"),
        (
            "каузал",
            "каузал",
            "unknown name `каузал`, expected `full`, `none`, `causal`, `window`, `sliding`, `chunk`, `stride`, `distances`, `prefix`, `keys`, `queries`, `global`, `padding`, `documents`, `spans`, `tree`, `clearance`, `neighborhood`, `random`, `random_blocks`, `dense`, `heads`, `batch` or `layers`",
        ),
        // Arguments.
        ("sliding(widow=3)", "widow", "`sliding` has no argument `widow`, expected `window`: did you mean `window`?"),
        ("full(n=3)", "n", "`full` has no argument `n`: write `full`"),
        ("full(3)", "3", "`full` takes no arguments: write `full`"),
        (
            "sliding",
            "sliding",
            "`sliding` needs `window`, the number of keys, including the query's own: write for example `sliding(4096)`",
        ),
        (
            "random(0.5)",
            "random(0.5)",
            "`random` needs `seed`, the seed of the random pattern: write for example `random(0.1, 42)`",
        ),
        (
            "keys",
            "keys",
            "`keys` needs a set: a position, a range, a list of these, or a label: write for example `keys(0..4)` or `keys(label=\"name\")`",
        ),
        (
            "keys(3, label=x)",
            "keys(3, label=x)",
            "`keys` takes positions or a label, not both: write `keys(..) | keys(label=..)`",
        ),
        (
            "sliding(3, 4)",
            "4",
            "`sliding` takes 1 argument (`window`), but more are given: write for example `sliding(4096)`",
        ),
        (
            "keys(3, 5)",
            "5",
            "`keys` takes only one value without a name: put several values into a list, `keys([.., ..])`",
        ),
        (
            "padding(left, [3])",
            "[3]",
            "`padding` takes further arguments only with their names: write for example `padding(side=left, lengths=[5, 3], on=both)`",
        ),
        ("causal(1, offset=2)", "offset", "`causal`: `offset` is given twice: leave one out"),
        (
            "padding(side=up)",
            "up",
            "`padding`: `side` must be `left` or `right`, found the name `up`: write for example `padding(side=left, lengths=[5, 3], on=both)`",
        ),
        (
            "sliding(\"4\")",
            "\"4\"",
            "`sliding`: `window` must be a whole number, found the text \"4\": write for example `sliding(4096)`",
        ),
        ("sliding(4.0)", "4.0", "`sliding`: `window` must be a whole number: write `4`"),
        (
            "sliding(4.5)",
            "4.5",
            "`sliding`: `window` must be a whole number, found the number 4.5: write for example `sliding(4096)`",
        ),
        ("chunk(-3)", "-3", "`chunk`: `size` must be 0 or more, found the number -3: write for example `chunk(512)`"),
        (
            "documents(3)",
            "3",
            "`documents`: `lengths` must be a list of whole numbers, found the number 3: write for example `documents([33, 31])`",
        ),
        (
            "documents([3, a])",
            "a",
            "`documents`: `lengths` must be a whole number, found the name `a`: write for example `documents([33, 31])`",
        ),
        ("dense(3)", "3", "`dense`: `name` must be a name, found the number 3: write for example `dense(name)`"),
        (
            "sliding(causal & full)",
            "&",
            "found `&`, expected `,` or `)`: `sliding` takes no mask; write for example `sliding(4096)`",
        ),
        (
            "sliding(0..4: full)",
            ":",
            "found `:`, expected `,` or `)`: `sliding` takes no colon; write for example `sliding(4096)`",
        ),
        ("window(1 2)", "2", "found the number 2, expected `,` or `)`: put `,` between two arguments"),
        ("window(1=2)", "=", "found `=`, expected `,` or `)`: only a parameter's name can be before `=`"),
        ("keys([[1]])", "[", "found `[`, expected a number or a range: a list cannot contain a list: write one list"),
        (
            "keys(&)",
            "&",
            "found `&`, expected a value: an argument is a number, a range, a list `[..]`, a name or a quoted text",
        ),
        // Numbers.
        ("keys(14..10)", "14..10", "range 14..10 is reversed: write 10..14"),
        ("heads(9..3: full)", "9..3", "range 9..3 is reversed: write 3..9"),
        (
            "keys(1..-2)",
            "-",
            "the end of a range cannot be negative: positions count from 0; write `a..` for everything from `a` on",
        ),
        (
            "keys(0..=4)",
            "..=",
            "`..=` is not an operator of the mask language: ranges are half open: write `0..5` for 0 to 4",
        ),
        (
            "sliding(99999999999999999999)",
            "99999999999999999999",
            "`sliding`: `window` is too large: at most 18446744073709551615 is possible",
        ),
        (
            "sliding(9999999999999999999999999999999999999999)",
            "9999999999999999999999999999999999999999",
            "the number is too large: at most 18446744073709551615 is possible",
        ),
        (
            "sliding(9223372036854775807)",
            "sliding(9223372036854775807)",
            "`sliding`: window is 9223372036854775807, which is larger than every position: at most 4611686018427387904 is possible",
        ),
        ("causal + softcap(1e999)", "1e999", "the number is too large: at most 1.7e308 is possible"),
        ("random(.5, 1)", ".5", "`.5` is not a number: write `0.5`"),
        ("random(1., 1)", "1.", "`1.` is not a number: write `1` or `1.0`"),
        (
            "chunk(12abc)",
            "12abc",
            "`12abc` is not a number, expected digits such as `4096`, `4_096`, `0.5` or `1e-7`: a name begins with a letter; put other names in quotes",
        ),
        // Atoms that are invalid by themselves.
        ("sliding(0)", "sliding(0)", "`sliding`: window is 0: give at least 1"),
        (
            "window()",
            "window()",
            "`window`: both sides are open: give left, right or both, as in `window(left=4, right=0)`, or write `full`",
        ),
        ("random(1.5, 1)", "random(1.5, 1)", "`random`: `p` is 1.5: give a probability from 0 to 1"),
        (
            "tree([1, 0])",
            "tree([1, 0])",
            "`tree`: node 0 is its own ancestor: give one node of the cycle the parent -1",
        ),
        (
            "neighborhood([4], [5])",
            "neighborhood([4], [5])",
            "`neighborhood`: a window of 5 cells with dilation 1 spans 5 cells but this dimension of the grid has 4: give a smaller size or dilation",
        ),
        (
            "documents([4611686018427387904, 1])",
            "documents([4611686018427387904, 1])",
            "`documents`: the total length is 4611686018427387905, which is larger than every position: at most 4611686018427387904 is possible",
        ),
        // Arms.
        (
            "heads",
            "heads",
            "`heads` needs indices and masks in parentheses: write for example `heads(0..4: causal, 4..: sliding(8))`",
        ),
        (
            "heads()",
            "heads()",
            "`heads`: no mask is given, so no cell would be allowed: give at least one mask, or write `none`",
        ),
        (
            "heads(causal)",
            "causal",
            "found `causal`, expected indices, `every n` or `else`: write indices, a colon and a mask, as in `heads(0..4: causal, 4..: sliding(8))`",
        ),
        (
            "heads(0 causal)",
            "causal",
            "found `causal`, expected `:`: write indices, a colon and a mask, as in `0..4: causal`",
        ),
        (
            "heads([x]: causal)",
            "x",
            "expected indices, which count from 0: write a number, a range such as `0..4`, or a list of these",
        ),
        (
            "layers(every: causal)",
            ":",
            "found `:`, expected a whole number: write for example `every 2` or `every 6 from 5`",
        ),
        (
            "heads(0..4: causal, 3: full)",
            "3",
            "`heads`: the selectors `0..4` and `3` both contain index 3: give selectors that do not overlap",
        ),
        ("layers(every 0: full)", "every 0", "`layers`: `every` is 0: give at least 1"),
        (
            "causal & else",
            "else",
            "`else` is not a mask: write `every` and `else` only before a colon, as in `layers(every 2: causal, else: full)`",
        ),
        (
            "0..4: causal",
            "0",
            "found the number 0, expected a mask: write positions only as arguments, as in `keys(0..4)`",
        ),
        (
            "causal: full",
            ":",
            "found `:`, expected `&`, `|` or `-`: write a colon only inside `heads(..)`, `batch(..)` or `layers(..)`, between indices and a mask",
        ),
        // Operators of other languages.
        ("causal && padding", "&&", "`&&` is not an operator of the mask language: write `&` for both"),
        ("causal || padding", "||", "`||` is not an operator of the mask language: write `|` for either"),
        ("causal and padding", "and", "`and` is not an operator of the mask language: write `&` for both"),
        ("causal or padding", "or", "`or` is not an operator of the mask language: write `|` for either"),
        (
            "not causal",
            "not",
            "`not` is not an operator of the mask language: write `!` for the complement, as in `a & !b`",
        ),
        (
            "causal ^ padding",
            "^",
            "`^` is not an operator of the mask language: write `(a | b) - (a & b)` for the cells that exactly one of two masks allows",
        ),
        (
            "causal == padding",
            "==",
            "`==` is not an operator of the mask language: a text defines one mask; to compare two masks, give two texts (`noren diff`)",
        ),
        // Beginning and end of a mask.
        ("", "", "the text is empty, expected a mask: write `full` to allow everything"),
        ("causal &", "", "the text ends here, expected a mask: write for example `causal`"),
        ("- causal", "-", "found `-`, expected a mask: write `-` between two masks, or `!a` for the complement of `a`"),
        (
            "\"causal\"",
            "\"causal\"",
            "found the text \"causal\", expected a mask: write a quoted name only as an argument, as in `dense(\"name\")` or `keys(label=\"name\")`",
        ),
        (
            "causal padding",
            "padding",
            "found `padding`, expected `&`, `|` or `-`: put `&` (both) or `|` (either) between two masks",
        ),
        ("causal, padding", ",", "found `,`, expected `&`, `|` or `-`: join two masks with `&` (both) or `|` (either)"),
        ("causal)", ")", "found `)`, expected `&`, `|` or `-`: remove this `)`, because no `(` is open"),
        ("(causal", "(", "this `(` is never closed: add `)`"),
        ("keys([1", "[", "this `[` is never closed: add `]`"),
        ("sliding(4", "(", "this `(` is never closed: add `)`"),
        (
            "causal ; full",
            ";",
            "found `;`, expected `&`, `|` or `-`: remove this text, or join another mask with `&` or `|`",
        ),
        (
            "causal\0",
            "\0",
            "found `\\0`, expected `&`, `|` or `-`: remove this text, or join another mask with `&` or `|`",
        ),
        // Texts in quotes.
        (
            "keys(label=\"x) & full",
            "\"x) & full",
            "the text that begins with `\"` has no end: end the text with `\"` on the same line",
        ),
        (
            "dense(\"a\\q\")",
            "\\q",
            "`\\q` is not an escape sequence: write `\\\\` for a backslash, or one of `\\\"`, `\\'`, `\\n`, `\\t`, `\\r`, `\\0`, `\\u{1f600}`",
        ),
        // Scores.
        (
            "causal & alibi",
            "alibi",
            "`alibi` is a score, expected a mask: add the score at the end of the text, as in `causal + alibi`",
        ),
        (
            "causal + padding",
            "padding",
            "`padding` is a mask, expected a score: join masks with `&` (both) or `|` (either); `+` adds scores",
        ),
        ("causal + alibbi", "alibbi", "unknown score `alibbi`: did you mean `alibi`?"),
        (
            "causal + banana",
            "banana",
            "unknown score `banana`, expected `bias`, `relative`, `alibi`, `softcap`, `soft` or `sinks`",
        ),
        ("causal + 5", "5", "found the number 5, expected a score: write for example `softcap(5)`"),
        (
            "(causal + alibi)",
            "+",
            "found `+`, expected `&`, `|`, `-` or `)`: scores are added at the end of the text, outside parentheses",
        ),
        (
            "causal + alibi | full",
            "|",
            "found `|`, expected `+` and a score or the end of the text: write the whole mask first and add the scores at its end",
        ),
        (
            "causal + softcap",
            "softcap",
            "`softcap` needs `cap`, the largest absolute score: write for example `softcap(5)`",
        ),
        ("causal + softcap(0)", "softcap(0)", "`softcap`: the cap is 0: give a finite number above 0"),
    ] {
        assert_eq!(refused(text), (message.to_string(), marked.to_string()), "{text}");
    }
}

#[test]
fn a_mask_takes_no_scores() {
    let error = "causal + alibi".parse::<Mask>().unwrap_err();
    assert_eq!(
        error.to_string().lines().next(),
        Some(
            "found `+`, expected `&`, `|` or `-`: a mask cannot contain scores: parse this text as a spec, which is a mask with scores"
        )
    );
}

#[test]
fn the_place_is_marked() {
    for (text, shown) in [
        ("causal &\n  paddin & full\n| none", "  |\n2 |   paddin & full\n  |   ^^^^^^"),
        ("dense(\"ключ\") & cuasal # ü", "  |\n1 | dense(\"ключ\") & cuasal # ü\n  |                 ^^^^^^"),
        ("causal &", "  |\n1 | causal &\n  |         ^"),
        ("causal &\n", "  |\n2 |\n  | ^"),
        ("\tcuasal\r\n", "  |\n1 |  cuasal\n  |  ^^^^^^"),
        ("keys([1,\n 2,\n 4..3])", "  |\n3 |  4..3])\n  |  ^^^^"),
    ] {
        let error = text.parse::<Mask>().unwrap_err().to_string();
        let place = error.split_once('\n').map(|(_, place)| place);
        assert_eq!(place, Some(shown), "{error}");
    }
    let tenth = "\n".repeat(9) + "cuasal";
    assert!(tenth.parse::<Mask>().unwrap_err().to_string().ends_with("\n   |\n10 | cuasal\n   | ^^^^^^"));
}
