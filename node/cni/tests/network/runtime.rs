//! A runtime in small: what libcni does with a list of plugins. No package has its `cnitool`.
//!
//! ```text
//! ADD    first to last, each with the result of the one before as prevResult; the last one is kept
//! CHECK  first to last, each with the kept result
//! DEL    last to first, each with the kept result
//! ```
//!
//! libcni/api.go: AddNetworkList, CheckNetworkList, DelNetworkList, injectRuntimeConfig.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::node::{Namespace, exec_plugin};

/// Debian's containernetworking-plugins.
pub(crate) const REFERENCE_DIR: &str = "/usr/lib/cni";
pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_swiftlet-cni");

/// A list of plugins, and the results of the pods that they attached.
pub(crate) struct Runtime<'a> {
    host: &'a Namespace,
    version: Value,
    name: Value,
    plugins: Vec<Value>,
    /// What the runtime offers, each to the plugins that have the capability.
    pub(crate) offers: Value,
    /// `CNI_ARGS`.
    pub(crate) args: String,
    results: RefCell<BTreeMap<String, Value>>,
}

impl<'a> Runtime<'a> {
    /// A runtime with the plugins, for the network and in the version that the first one says.
    pub(crate) fn new(host: &'a Namespace, plugins: &[Value]) -> Self {
        let first = &plugins[0];
        Self {
            host,
            version: first["cniVersion"].clone(),
            name: first["name"].clone(),
            plugins: plugins.to_vec(),
            offers: json!({}),
            args: String::new(),
            results: RefCell::default(),
        }
    }

    /// Another list with the pods of this one: what a new `.conflist` is to containerd.
    pub(crate) fn with_plugins(self, plugins: &[Value]) -> Self {
        Self {
            offers: self.offers,
            results: self.results,
            ..Self::new(self.host, plugins)
        }
    }

    pub(crate) fn add(&self, id: &str, pod: &Namespace) -> Result<Value, Value> {
        let mut result = None;
        for plugin in &self.plugins {
            let printed = self.run(plugin, "ADD", id, &pod.path(), result.as_ref())?;
            result = Some(printed);
        }
        let result = result.unwrap();
        self.results.borrow_mut().insert(id.into(), result.clone());
        Ok(result)
    }

    pub(crate) fn check(&self, id: &str, pod: &Namespace) -> Result<(), Value> {
        let result = self.results.borrow().get(id).cloned();
        for plugin in &self.plugins {
            self.run(plugin, "CHECK", id, &pod.path(), result.as_ref())?;
        }
        Ok(())
    }

    pub(crate) fn del(&self, id: &str, netns: &str) -> Result<(), Value> {
        // Before 0.4.0 there was no result for DEL.
        let kept = |version: &Value| !version.as_str().unwrap().starts_with("0.3");
        let result = self.results.borrow().get(id).cloned();
        let result = result.filter(|_| kept(&self.version));
        for plugin in self.plugins.iter().rev() {
            self.run(plugin, "DEL", id, netns, result.as_ref())?;
        }
        self.results.borrow_mut().remove(id);
        Ok(())
    }

    /// Replaces what is remembered of a pod, as a runtime with a broken cache would.
    pub(crate) fn remember(&self, id: &str, change: impl FnOnce(&mut Value)) {
        change(self.results.borrow_mut().get_mut(id).unwrap());
    }

    fn run(
        &self,
        plugin: &Value,
        command: &str,
        id: &str,
        netns: &str,
        result: Option<&Value>,
    ) -> Result<Value, Value> {
        let kind = plugin["type"].as_str().unwrap();
        let program = match kind {
            "swiftlet-cni" => SHIM.to_owned(),
            _ => format!("{REFERENCE_DIR}/{kind}"),
        };
        let mut variables = vec![
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", REFERENCE_DIR),
        ];
        if !self.args.is_empty() {
            variables.push(("CNI_ARGS", &self.args));
        }
        let conf = self.conf(plugin, result);
        let (ok, stdout) = exec_plugin(self.host, &program, &variables, &conf);
        let printed = match stdout.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
        if ok { Ok(printed) } else { Err(printed) }
    }

    /// The conf as the plugin gets it.
    fn conf(&self, plugin: &Value, result: Option<&Value>) -> Value {
        let mut conf = plugin.clone();
        conf["name"] = self.name.clone();
        conf["cniVersion"] = self.version.clone();
        let capabilities = conf.as_object_mut().unwrap().remove("capabilities");
        let offers = self.offers.as_object().unwrap();
        let offered = offers.iter().filter(|(name, _)| {
            let capabilities = capabilities.as_ref();
            capabilities.is_some_and(|all| all[name.as_str()] == true)
        });
        let offered: Map<_, _> = offered.map(|(k, v)| (k.clone(), v.clone())).collect();
        if !offered.is_empty() {
            conf["runtimeConfig"] = offered.into();
        }
        if let Some(result) = result {
            conf["prevResult"] = result.clone();
        }
        conf
    }
}
