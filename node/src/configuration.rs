//! `--config`: upstream's `KubeletConfiguration`, read strictly.
//!
//! ```text
//!  text ─▶ document ─▶ checked against the table of all fields ─▶ applied to options and settings
//!                      (unknown field, wrong type: error)          (a flag wins over the file)
//!                      └─▶ fields without effect: named
//! ```

mod apply;
mod duration;
mod fields;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

pub(crate) use settings::{Settings, StaticPods};

use fields::{Field, State};

/// Group and version that are read.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Kind that is read.
const KIND: &str = "KubeletConfiguration";

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// It is neither JSON nor YAML.
    #[error("{path} is no JSON or YAML document: {cause}")]
    Syntax { path: String, cause: String },
    /// It is another kind of object.
    #[error("is {found}, not {API_VERSION}/{KIND}")]
    Kind { found: String },
    /// A field that the type does not have.
    #[error("unknown field \"{0}\"")]
    Unknown(String),
    /// A value that the field cannot have.
    #[error("{field}: {reason}")]
    Value { field: String, reason: String },
}

/// The values that a file sets, by the path of their field. Values that mean "not set" are left
/// out: null, empty, and, as Kubernetes has it, durations of zero.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    values: BTreeMap<&'static str, Value>,
}

impl Configuration {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigurationError::Read {
            path: shown(),
            source,
        })?;
        let syntax = |cause: String| ConfigurationError::Syntax {
            path: shown(),
            cause,
        };
        let document = if text.trim_start().starts_with('{') {
            serde_json::from_str(&text).map_err(|error| syntax(error.to_string()))?
        } else {
            serde_saphyr::from_str(&text).map_err(|error| syntax(error.to_string()))?
        };
        Self::check(document)
    }

    /// Checks a document.
    fn check(document: Value) -> Result<Self, ConfigurationError> {
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        if (text("apiVersion"), text("kind")) != (API_VERSION, KIND) {
            let found = format!("{}/{}", text("apiVersion"), text("kind"));
            return Err(ConfigurationError::Kind { found });
        }
        let mut configuration = Self::default();
        for (name, value) in document.as_object().into_iter().flatten() {
            if name != "apiVersion" && name != "kind" {
                configuration.take(name, value)?;
            }
        }
        Ok(configuration)
    }

    fn take(&mut self, path: &str, value: &Value) -> Result<(), ConfigurationError> {
        if let Some(field) = fields::find(path) {
            if fields::is_set(field, value)? {
                self.values.insert(&field.path, value.clone());
            }
            return Ok(());
        }
        if !fields::is_group(path) {
            return Err(ConfigurationError::Unknown(path.to_owned()));
        }
        match value {
            Value::Null => Ok(()),
            Value::Object(inner) => inner
                .iter()
                .try_for_each(|(name, value)| self.take(&format!("{path}.{name}"), value)),
            _ => Err(ConfigurationError::Value {
                field: path.to_owned(),
                reason: "must be an object".to_owned(),
            }),
        }
    }

    /// Fields that were set and have no effect here, with what was written.
    pub(crate) fn without_effect(&self) -> Vec<(&'static str, &Value)> {
        self.away_from_default(State::Warned)
    }

    /// The first field whose value would make pods behave otherwise than it says.
    fn refused(&self) -> Result<(), ConfigurationError> {
        match self.away_from_default(State::Refused).first() {
            None => Ok(()),
            Some((field, value)) => Err(ConfigurationError::Value {
                field: (*field).to_owned(),
                reason: format!("{value} is not served"),
            }),
        }
    }

    fn away_from_default(&self, state: State) -> Vec<(&'static str, &Value)> {
        let set = self.values.iter().map(|(path, value)| (*path, value));
        let away = |field: &Field, value: &Value| {
            field.state == state && !fields::is_same(field, value, &field.default)
        };
        set.filter(|(path, value)| fields::find(path).is_some_and(|field| away(field, value)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
