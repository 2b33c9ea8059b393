//! Field selectors (`metadata.name=x,spec.nodeName!=y`).

use super::SelectorError;

/// One requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path, such as `spec.nodeName`.
    pub field: String,
    /// How to compare.
    pub operator: FieldOperator,
    /// With what.
    pub value: String,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

impl FieldRequirement {
    /// Whether the field's text satisfies it; a missing field is the empty text.
    pub fn matches(&self, actual: &str) -> bool {
        match self.operator {
            FieldOperator::Equals => actual == self.value,
            FieldOperator::NotEquals => actual != self.value,
        }
    }
}

/// Reads a field selector; empty terms count for nothing.
pub fn parse_field_selector(text: &str) -> Result<Vec<FieldRequirement>, SelectorError> {
    terms(text)
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(|term| requirement(text, term))
        .collect()
}

/// Cuts at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => (),
        }
    }
    terms.push(&text[start..]);
    terms
}

fn requirement(selector: &str, term: &str) -> Result<FieldRequirement, SelectorError> {
    let mut escaped = false;
    for (index, c) in term.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        escaped = c == '\\';
        let rest = &term[index..];
        let operators = [
            ("!=", FieldOperator::NotEquals),
            ("==", FieldOperator::Equals),
            ("=", FieldOperator::Equals),
        ];
        let found = operators
            .into_iter()
            .find(|(symbol, _)| rest.starts_with(symbol));
        if let Some((symbol, operator)) = found {
            let value = unescape(&rest[symbol.len()..])?;
            return Ok(FieldRequirement {
                field: term[..index].to_owned(),
                operator,
                value,
            });
        }
    }
    Err(SelectorError::FieldTerm {
        selector: selector.to_owned(),
        term: term.to_owned(),
    })
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        match (escaped, c) {
            (false, '\\') => escaped = true,
            (true, '\\' | ',' | '=') => {
                value.push(c);
                escaped = false;
            }
            (true, _) => return Err(SelectorError::FieldEscape(format!("\\{c}"))),
            (false, ',' | '=') => {
                // Kubernetes wants these escaped in a value.
                let field = format!("unescaped character in value: {c}");
                return Err(SelectorError::Invalid(format!(
                    "invalid field selector: {field}"
                )));
            }
            (false, _) => value.push(c),
        }
    }
    if escaped {
        return Err(SelectorError::FieldEscape("\\".to_owned()));
    }
    Ok(value)
}
