//! Compares what a script gave on the kernel's TCP and on streams.

use crate::executor::Trace;
use crate::meant::{self, Meant};
use crate::script::{Op, Script};

/// Where two traces differ first, of what is not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the call.
    pub index: usize,
    /// Its name.
    pub call: String,
    /// Which of its results: `r`, `e`, `len`..
    pub field: String,
    pub kernel: String,
    pub stream: String,
}

/// One result that differs, as entries of the list look at it.
pub struct Case<'a> {
    pub script: &'a Script,
    pub index: usize,
    pub call: &'a str,
    pub field: &'a str,
    /// Empty if the call gave no such result.
    pub kernel: &'a str,
    /// All that the call gave on the stream.
    pub stream_line: &'a str,
}

impl Case<'_> {
    /// The call itself.
    pub fn op(&self) -> Option<&Op> {
        self.script.ops.get(self.index)
    }

    /// A call like this was made up to here.
    pub fn used(&self, is: impl Fn(&Op) -> bool) -> bool {
        self.script.ops.iter().take(self.index.saturating_add(1)).any(is)
    }
}

impl Difference {
    /// Differences that are likely to have one cause.
    pub fn signature(&self) -> String {
        let blank = |value: &str| if value.len() == 16 { "(bytes)".to_owned() } else { value.to_owned() };
        let field = if self.field.parse::<usize>().is_ok() { "(slot)" } else { &self.field };
        format!("{} {field}: {} / {}", self.call, blank(&self.kernel), blank(&self.stream))
    }

    /// The same call differs in the same result, whatever the values are.
    pub fn is_like(&self, other: &Self) -> bool {
        self.call == other.call && self.field == other.field
    }
}

/// The first difference, meant or not.
pub fn compare_strictly(script: &Script, kernel: &Trace, stream: &Trace) -> Option<Difference> {
    first_but(script, kernel, stream, |_| None, |_| ())
}

/// The first difference that is not meant; names the meant ones that it met.
pub fn compare(
    script: &Script,
    kernel: &Trace,
    stream: &Trace,
    met: impl FnMut(&'static Meant),
) -> Option<Difference> {
    first_but(script, kernel, stream, meant::find, met)
}

fn first_but(
    script: &Script,
    kernel: &Trace,
    stream: &Trace,
    find: impl Fn(&Case<'_>) -> Option<&'static Meant>,
    mut met: impl FnMut(&'static Meant),
) -> Option<Difference> {
    let lines = kernel.len().max(stream.len());
    for at in 0..lines {
        let [kernel, stream] = [kernel, stream].map(|trace| trace.get(at).map_or("", String::as_str));
        if kernel == stream {
            continue;
        }
        let (index, call) = head(kernel).or_else(|| head(stream)).unwrap_or((usize::MAX, "end"));
        let (kernel_fields, stream_fields) = (fields(kernel), fields(stream));
        let names: Vec<&str> = kernel_fields.iter().map(|(name, _)| *name).collect();
        let more = stream_fields.iter().map(|(name, _)| *name).filter(|name| !names.contains(name));
        for field in names.iter().copied().chain(more) {
            let value = |fields: &[(&str, &'_ str)]| -> String {
                fields.iter().find(|(name, _)| *name == field).map_or("", |(_, value)| *value).to_owned()
            };
            let (kernel_value, stream_value) = (value(&kernel_fields), value(&stream_fields));
            if kernel_value == stream_value {
                continue;
            }
            let case = Case { script, index, call, field, kernel: &kernel_value, stream_line: stream };
            match find(&case) {
                Some(entry) => {
                    met(entry);
                    if entry.ends {
                        return None;
                    }
                }
                None => {
                    return Some(Difference {
                        index,
                        call: call.to_owned(),
                        field: field.to_owned(),
                        kernel: kernel_value,
                        stream: stream_value,
                    });
                }
            }
        }
    }
    None
}

/// Index and name of a line's call.
fn head(line: &str) -> Option<(usize, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?))
}

/// The results of a line: `NAME=VALUE`, and whatever else it says as one without a name.
fn fields(line: &str) -> Vec<(&str, &str)> {
    if head(line).is_none() {
        return vec![("", line)];
    }
    line.split(' ').skip(2).map(|word| word.split_once('=').unwrap_or((word, ""))).collect()
}
