//! [`Text`]: lines of Python code. [`list`]: lists that are broken into several lines.

/// Maximum number of characters of a line; longer lines are broken.
pub(crate) const WIDTH: usize = 100;

/// Lines of code.
#[derive(Default)]
pub(crate) struct Text(Vec<String>);

impl Text {
    /// Appends a line, or several lines if `line` contains `\n`.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.0.extend(line.as_ref().split('\n').map(str::to_string));
    }

    /// Appends an empty line, unless the text is empty or already ends with an empty line.
    pub(crate) fn gap(&mut self) {
        if self.0.last().is_some_and(|line| !line.is_empty()) {
            self.0.push(String::new());
        }
    }

    /// Returns true if the text has no line.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the lines of `other`, after an empty line.
    pub(crate) fn block(&mut self, other: Text) {
        if !other.is_empty() {
            self.gap();
            self.0.extend(other.0);
        }
    }

    /// Adds the lines of `other`.
    pub(crate) fn append(&mut self, other: Text) {
        self.0.extend(other.0);
    }

    /// Adds the lines of `other`, indented by four spaces.
    pub(crate) fn indented(&mut self, other: Text) {
        let indent = |line: String| if line.is_empty() { line } else { format!("    {line}") };
        self.0.extend(other.0.into_iter().map(indent));
    }

    /// Returns the code, which ends with a newline.
    pub(crate) fn finish(mut self) -> String {
        while self.0.last().is_some_and(String::is_empty) {
            self.0.pop();
        }
        self.0.join("\n") + "\n"
    }
}

/// Returns `[a, b, ...]` as code. `before` is the number of characters before the list in its line; if the line would
/// be too long, the list is broken into several lines.
pub(crate) fn list(before: usize, items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    let plain = format!("[{}]", items.join(", "));
    if before + plain.len() <= WIDTH && !plain.contains('\n') {
        return plain;
    }
    let (mut lines, mut line) = (Vec::new(), String::new());
    for item in &items {
        if !line.is_empty() && line.len() + item.len() + 6 > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&format!("{item},"));
    }
    lines.push(line);
    let indented: Vec<String> = lines.iter().map(|line| format!("    {}", line.replace('\n', "\n    "))).collect();
    format!("[\n{}\n]", indented.join("\n"))
}

/// Returns the range `(start, end)` as Python code.
pub(crate) fn pair((start, end): &(i64, Option<i64>)) -> String {
    format!("({start}, {})", end.map_or("None".to_string(), |end| end.to_string()))
}
