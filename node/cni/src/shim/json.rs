//! The little JSON that the shim needs: find a top-level string, write a string.
//!
//! A parser would be most of the shim's size, and its size is its start-up time.

/// The value of the top-level member `key`, if it is a string.
///
/// Escapes other than `\"`, `\\` and `\/` make the answer `None`: neither a version nor a socket
/// path has them. The node parses the whole conf properly; this finds the node.
pub(super) fn top_level_string(json: &[u8], key: &str) -> Option<String> {
    top_level(json, key)?.string()?
}

/// The text of the top-level member `key`, if it is an object.
pub(super) fn top_level_object<'a>(json: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut cursor = top_level(json, key)?;
    (cursor.peek()? == b'{').then_some(())?;
    let start = cursor.position;
    cursor.skip_value()?;
    json.get(start..cursor.position)
}

/// A cursor in front of the value of the top-level member `key`.
fn top_level<'a>(json: &'a [u8], key: &str) -> Option<Cursor<'a>> {
    let mut cursor = Cursor {
        bytes: json,
        position: 0,
    };
    cursor.expect(b'{')?;
    loop {
        let name = cursor.string()?;
        cursor.expect(b':')?;
        if name.as_deref() == Some(key) {
            return Some(cursor);
        }
        cursor.skip_value()?;
        cursor.expect(b',')?;
    }
}

/// The text as a JSON string, with its quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if u32::from(c) < 0x20 => push_control(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn push_control(out: &mut String, character: char) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let code = character as usize;
    out.push_str("\\u00");
    out.push(HEX[code >> 4 & 0xf]);
    out.push(HEX[code & 0xf]);
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Cursor<'_> {
    /// The next byte that is not white space, left in place.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.position)?.is_ascii_whitespace() {
            self.position += 1;
        }
        self.bytes.get(self.position).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.position += 1)
    }

    /// A string; `Some(None)` for one with escapes that are not understood here.
    #[expect(
        clippy::option_option,
        reason = "no string, and a string without a value, differ"
    )]
    fn string(&mut self) -> Option<Option<String>> {
        self.expect(b'"')?;
        let mut text = Some(Vec::new());
        loop {
            let mut byte = *self.bytes.get(self.position)?;
            self.position += 1;
            match byte {
                b'"' => return Some(text.and_then(|text| String::from_utf8(text).ok())),
                b'\\' => {
                    byte = *self.bytes.get(self.position)?;
                    self.position += 1;
                    if !matches!(byte, b'"' | b'\\' | b'/') {
                        text = None;
                    }
                }
                _ => (),
            }
            if let Some(text) = text.as_mut() {
                text.push(byte);
            }
        }
    }

    /// Passes over one value of any kind.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_u32;
        loop {
            match self.peek()? {
                b'"' => drop(self.string()?),
                b'{' | b'[' => {
                    depth += 1;
                    self.position += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.position += 1;
                }
                // Inside a container a separator is one more byte; outside it ends the scalar.
                b',' if depth == 0 => return Some(()),
                _ => self.position += 1,
            }
            if depth == 0 && matches!(self.peek()?, b',' | b'}') {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = r#"{ "a": {"socket": "wrong", "b": [1, "}", {"c": null}]}, "n": -1.5e3,
        "t": true, "escaped\n": "x", "cniVersion" : "1.0.0", "socket":"\/run\/a b.sock" }"#;

    #[test]
    fn top_level_strings_are_found_behind_values_of_every_kind() {
        assert_eq!(
            top_level_string(CONF.as_bytes(), "cniVersion").as_deref(),
            Some("1.0.0")
        );
        assert_eq!(
            top_level_string(CONF.as_bytes(), "socket").as_deref(),
            Some("/run/a b.sock")
        );
    }

    #[test]
    fn an_object_is_returned_as_it_is_written() {
        let text = |key| top_level_object(CONF.as_bytes(), key).map(<[u8]>::trim_ascii_end);
        let wanted = br#"{"socket": "wrong", "b": [1, "}", {"c": null}]}"#;
        assert_eq!(text("a"), Some(wanted.as_slice()));
        for key in ["n", "t", "cniVersion", "absent"] {
            assert_eq!(text(key), None, "{key}");
        }
    }

    #[test]
    fn what_is_missing_or_no_string_or_no_json_is_none() {
        for key in ["b", "c", "n", "t", "absent"] {
            assert_eq!(top_level_string(CONF.as_bytes(), key), None, "{key}");
        }
        for broken in [
            "",
            "{",
            "[]",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":]",
            "{\"a\":\"x",
            "nonsense",
        ] {
            assert_eq!(top_level_string(broken.as_bytes(), "k"), None, "{broken}");
        }
    }

    #[test]
    fn quoted_text_reads_back_as_itself() {
        let text = "a \"quoted\" \\ path\n\u{1}\u{1f} ü";
        let read: String = serde_json::from_str(&quoted(text)).unwrap();
        assert_eq!(read, text);
    }
}
