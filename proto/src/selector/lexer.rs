//! The words of a label selector string.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    End,
    ClosedParenthesis,
    OpenParenthesis,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    NotEquals,
    GreaterThan,
    LessThan,
    In,
    NotIn,
    Identifier,
    Unknown,
}

/// A word and the text that it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) token: Token,
    pub(super) literal: String,
}

/// Cuts the text into words; the last one is [`Token::End`].
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let length = if is_special(first) {
            special_length(rest)
        } else {
            identifier_length(rest)
        };
        let (literal, tail) = rest.split_at(length);
        words.push(Word {
            token: token_of(literal),
            literal: literal.to_owned(),
        });
        rest = tail.trim_start_matches(is_space);
    }
    words.push(Word {
        token: Token::End,
        literal: String::new(),
    });
    words
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn special_length(text: &str) -> usize {
    if text.starts_with("==") || text.starts_with("!=") {
        2
    } else {
        1
    }
}

fn identifier_length(text: &str) -> usize {
    text.find(|c| is_space(c) || is_special(c))
        .unwrap_or(text.len())
}

fn token_of(literal: &str) -> Token {
    match literal {
        ")" => Token::ClosedParenthesis,
        "(" => Token::OpenParenthesis,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        "!=" => Token::NotEquals,
        ">" => Token::GreaterThan,
        "<" => Token::LessThan,
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ if literal.starts_with(is_special) => Token::Unknown,
        _ => Token::Identifier,
    }
}
