//! A writer of JSON objects, for statistics and reports. It only writes: nothing in the engine reads JSON.

use std::fmt::Write as _;

/// Writes objects, nested to any depth, and arrays of objects.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    out: String,
    comma: bool,
}

impl JsonWriter {
    pub(crate) fn new() -> JsonWriter {
        JsonWriter::default()
    }

    fn name(&mut self, name: &str) {
        self.separate();
        self.string(name);
        self.out.push(':');
        self.comma = false;
    }

    fn separate(&mut self) {
        if self.comma {
            self.out.push(',');
        }
        self.comma = true;
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                control if control < ' ' => {
                    // Writing to a string cannot fail.
                    let _ = write!(self.out, "\\u{:04x}", control as u32);
                }
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }

    pub(crate) fn begin_object(&mut self) {
        self.separate();
        self.out.push('{');
        self.comma = false;
    }

    pub(crate) fn begin_object_field(&mut self, name: &str) {
        self.name(name);
        self.begin_object();
    }

    pub(crate) fn end_object(&mut self) {
        self.out.push('}');
        self.comma = true;
    }

    pub(crate) fn begin_array_field(&mut self, name: &str) {
        self.name(name);
        self.separate();
        self.out.push('[');
        self.comma = false;
    }

    pub(crate) fn end_array(&mut self) {
        self.out.push(']');
        self.comma = true;
    }

    pub(crate) fn field(&mut self, name: &str, value: u64) {
        self.name(name);
        self.separate();
        let _ = write!(self.out, "{value}");
    }

    pub(crate) fn field_f64(&mut self, name: &str, value: f64) {
        self.name(name);
        self.separate();
        let _ = if value.is_finite() { write!(self.out, "{value:.4}") } else { write!(self.out, "null") };
    }

    pub(crate) fn field_bool(&mut self, name: &str, value: bool) {
        self.name(name);
        self.separate();
        self.out.push_str(if value { "true" } else { "false" });
    }

    pub(crate) fn field_str(&mut self, name: &str, value: &str) {
        self.name(name);
        self.separate();
        self.string(value);
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_nest() {
        let mut json = JsonWriter::new();
        json.begin_object();
        json.field("a", 1);
        json.begin_object_field("b");
        json.field_bool("c", true);
        json.end_object();
        json.field_f64("e", 0.5);
        json.end_object();
        assert_eq!(json.finish(), r#"{"a":1,"b":{"c":true},"e":0.5000}"#);
    }
}
