//! The grammar of label selector strings (`k8s.io/apimachinery/pkg/labels`).

use std::collections::BTreeSet;

use super::lexer::{Token, Word, words};
use super::{Operator, Requirement, SelectorError, validate};

/// The operators that Kubernetes names when another word stands in their place.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Reads a selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let words = words(text);
    Parser {
        words: &words,
        position: 0,
    }
    .selector()
}

/// Where keywords count as such; elsewhere `in` is an ordinary value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Operator,
    Values,
}

struct Parser<'a> {
    words: &'a [Word],
    position: usize,
}

impl Parser<'_> {
    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            let (token, literal) = self.peek(Context::Values);
            match token {
                Token::Identifier | Token::Not => {
                    let requirement = self.requirement().map_err(SelectorError::Requirement)?;
                    requirements.push(requirement);
                    if self.separator()? {
                        return Ok(requirements);
                    }
                }
                Token::End => return Ok(requirements),
                _ => {
                    return syntax(format!(
                        "found '{literal}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    /// Steps over what follows a requirement; true at the end.
    fn separator(&mut self) -> Result<bool, SelectorError> {
        let (token, literal) = self.next(Context::Values);
        match token {
            Token::End => Ok(true),
            Token::Comma => {
                let (token, literal) = self.peek(Context::Values);
                if matches!(token, Token::Identifier | Token::Not) {
                    return Ok(false);
                }
                syntax(format!("found '{literal}', expected: identifier after ','"))
            }
            _ => syntax(format!(
                "found '{literal}', expected: ',' or 'end of string'"
            )),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next(Context::Values);
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next(Context::Values);
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        validate::key(&key)?;
        let operator = if negated {
            Operator::DoesNotExist
        } else if matches!(self.peek(Context::Values).0, Token::End | Token::Comma) {
            Operator::Exists
        } else {
            self.operator()?
        };
        let requirement = Requirement { key, operator };
        validate::requirement(&requirement)?;
        Ok(requirement)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, literal) = self.next(Context::Operator);
        match token {
            Token::In => self.values().map(Operator::In),
            Token::NotIn => self.values().map(Operator::NotIn),
            Token::Equals | Token::DoubleEquals => self.exact_value().map(Operator::Equals),
            Token::NotEquals => self.exact_value().map(Operator::NotEquals),
            Token::GreaterThan => self.bound().map(Operator::GreaterThan),
            Token::LessThan => self.bound().map(Operator::LessThan),
            _ => Err(format!("found '{literal}', expected: {BINARY_OPERATORS}")),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let value = self.exact_value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be \
                 an integer"
            )
        })
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(Context::Values).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next(Context::Values) {
            (Token::Identifier, literal) => Ok(literal),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, literal) = self.next(Context::Values);
        if token != Token::OpenParenthesis {
            return Err(format!("found '{literal}' expected: '('"));
        }
        let (token, literal) = self.peek(Context::Values);
        match token {
            Token::Identifier | Token::Comma => self.list(),
            Token::ClosedParenthesis => {
                self.position += 1;
                Ok(Vec::new())
            }
            _ => Err(format!(
                "found '{literal}', expected: ',', ')' or identifier"
            )),
        }
    }

    /// `a,b)`; a missing value is the empty string, as in `(a,)`.
    fn list(&mut self) -> Result<Vec<String>, String> {
        let mut values = BTreeSet::new();
        let mut value_expected = true;
        loop {
            let (token, literal) = self.next(Context::Values);
            match token {
                Token::Identifier if value_expected => {
                    values.insert(literal);
                    value_expected = false;
                }
                Token::Identifier => {
                    return Err(format!("found '{literal}', expected: ',' or ')'"));
                }
                Token::Comma => {
                    if value_expected {
                        values.insert(String::new());
                    }
                    value_expected = true;
                }
                Token::ClosedParenthesis => {
                    if value_expected {
                        values.insert(String::new());
                    }
                    return Ok(values.into_iter().collect());
                }
                _ if value_expected => {
                    return Err(format!("found '{literal}', expected: ',', or identifier"));
                }
                _ => return Err(format!("found '{literal}', expected: ',' or ')'")),
            }
        }
    }

    fn peek(&self, context: Context) -> (Token, String) {
        // The last word is the end, and it is never stepped over.
        let last = self.words.len() - 1;
        let word = &self.words[self.position.min(last)];
        let keyword = matches!(word.token, Token::In | Token::NotIn);
        let token = if keyword && context == Context::Values {
            Token::Identifier
        } else {
            word.token.clone()
        };
        (token, word.literal.clone())
    }

    fn next(&mut self, context: Context) -> (Token, String) {
        let word = self.peek(context);
        self.position += 1;
        word
    }
}

fn syntax<T>(message: String) -> Result<T, SelectorError> {
    Err(SelectorError::Syntax(message))
}
