//! Each field that is served, onto the option or setting that it stands for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use serde_json::Value;
use swiftlet_kubelet::cpu_manager::{CpuManagerOptions, CpuPolicy};
use swiftlet_kubelet::eviction::EvictionTexts;
use swiftlet_kubelet::node_shutdown::ShutdownOptions;
use swiftlet_kubelet::node_status::Amount;
use swiftlet_kubelet::{ImageGcPolicy, Limits, LogPolicy, PodSettings, ResourceOptions};
use swiftlet_proto::quantity::Quantity;

use super::{Configuration, ConfigurationError, Settings, StaticPods, duration, fields};
use crate::options::NodeOptions;

/// Shortest and longest `crashLoopBackOff.maxContainerRestartPeriod`
/// (`pkg/kubelet/apis/config/validation/validation.go`).
const RESTART_PERIOD_MIN: Duration = Duration::from_secs(1);
const RESTART_PERIOD_MAX: Duration = Duration::from_mins(5);

type Result<T> = std::result::Result<T, ConfigurationError>;

fn wrong<T>(field: &str, reason: impl ToString) -> Result<T> {
    Err(ConfigurationError::Value {
        field: field.to_owned(),
        reason: reason.to_string(),
    })
}

/// Reading values whose types were checked before.
impl Configuration {
    fn value(&self, field: &str) -> Option<&Value> {
        debug_assert!(fields::find(field).is_some(), "{field} is not in the table");
        self.values.get(field)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.value(field)?.as_str()
    }

    fn flag(&self, field: &str) -> Option<bool> {
        self.value(field)?.as_bool()
    }

    fn duration(&self, field: &str) -> Option<Duration> {
        duration::parse(self.text(field)?)
    }

    fn strings(&self, field: &str) -> Option<Vec<String>> {
        let items = self.value(field)?.as_array()?.iter();
        Some(
            items
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect(),
        )
    }

    fn map(&self, field: &str) -> Option<BTreeMap<String, String>> {
        let fields = self.value(field)?.as_object()?.iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(
            fields
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        )
    }

    /// A number that is not below `least`.
    fn number<T: TryFrom<i64>>(&self, field: &str, least: i64) -> Result<Option<T>> {
        let Some(number) = self.value(field).and_then(Value::as_i64) else {
            return Ok(None);
        };
        if number < least {
            return wrong(field, format!("{number} is less than {least}"));
        }
        match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => wrong(field, format!("{number} is too large")),
        }
    }
}

impl Configuration {
    /// Settings of the file, and options that no flag has set: `is_flag` says which are.
    pub(crate) fn apply(
        &self,
        options: &mut NodeOptions,
        is_flag: &dyn Fn(&str) -> bool,
    ) -> Result<Settings> {
        self.refused()?;
        self.apply_options(options, is_flag)?;
        let mut limits = self.limits()?;
        limits.heartbeat.lease_duration_s = self
            .number("nodeLeaseDurationSeconds", 1)?
            .unwrap_or(limits.heartbeat.lease_duration_s);
        Ok(Settings {
            limits,
            pods: self.pods(),
            resources: self.resources()?,
            static_pods: self.static_pods(),
            taints: self.taints()?,
            server_off: self.flag("enableServer") == Some(false),
            fail_swap_on: self.flag("failSwapOn").unwrap_or_default(),
            fail_cgroup_v1: self.flag("failCgroupV1").unwrap_or_default(),
        })
    }

    fn apply_options(
        &self,
        options: &mut NodeOptions,
        is_flag: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let path = |field: &str, option: &str| {
            let text = self.text(field).filter(|_| !is_flag(option));
            text.map(PathBuf::from)
        };
        if let Some(path) = path("podLogsDir", "pod_logs_dir") {
            options.pod_logs_dir = path;
        }
        if let Some(path) = path("resolvConf", "resolv_conf") {
            options.resolv_conf = path;
        }
        if let Some(path) = path("staticPodPath", "pod_manifest_path") {
            options.pod_manifest_path = Some(path);
        }
        if let Some(path) = path("tlsCertFile", "tls_cert_file") {
            options.tls_cert_file = Some(path);
        }
        if let Some(path) = path("tlsPrivateKeyFile", "tls_private_key_file") {
            options.tls_private_key_file = Some(path);
        }
        if let Some(path) = path("authentication.x509.clientCAFile", "client_ca_file") {
            options.client_ca_file = Some(path);
        }
        if let Some(address) = self.text("address")
            && !is_flag("address")
        {
            match address.parse() {
                Ok(address) => options.address = address,
                Err(_) => return wrong("address", format!("\"{address}\" is no address")),
            }
        }
        if let Some(port) = self.number("port", 1)?
            && !is_flag("port")
        {
            options.port = port;
        }
        if let Some(socket) = self.text("containerRuntimeEndpoint")
            && !is_flag("container_runtime_endpoint")
        {
            socket.clone_into(&mut options.container_runtime_endpoint);
        }
        if let Some(cidr) = self.text("podCIDR")
            && !is_flag("pod_cidr")
        {
            match cidr.parse() {
                Ok(cidr) => options.pod_cidr = cidr,
                Err(error) => return wrong("podCIDR", error),
            }
        }
        if let Some(most) = self.number("maxPods", 1)?
            && !is_flag("max_pods")
        {
            options.max_pods = most;
        }
        let per_core: u32 = self.number("podsPerCore", 0)?.unwrap_or_default();
        if per_core > 0 {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let cores = u32::try_from(cores).unwrap_or(u32::MAX);
            options.max_pods = options.max_pods.min(per_core.saturating_mul(cores));
        }
        Ok(())
    }

    fn limits(&self) -> Result<Limits> {
        let mut limits = Limits {
            image_gc: self.image_gc()?,
            logs: self.logs()?,
            ..Limits::default()
        };
        if let Some(limit) = self.duration("runtimeRequestTimeout") {
            // Long calls have twice the time, as with kubelet.
            limits.sandbox_limit = limit * 2;
        }
        let restart = "crashLoopBackOff.maxContainerRestartPeriod";
        if let Some(longest) = self.duration(restart) {
            if !(RESTART_PERIOD_MIN..=RESTART_PERIOD_MAX).contains(&longest) {
                return wrong(restart, "must be from 1s to 300s");
            }
            limits.crash_loop_backoff_max = longest;
        }
        let parallel: usize = self.number("maxParallelImagePulls", 0)?.unwrap_or_default();
        let serial = self.flag("serializeImagePulls");
        match (serial, parallel) {
            (Some(true), 2..) => {
                return wrong(
                    "maxParallelImagePulls",
                    "must not be more than 1 while serializeImagePulls is true",
                );
            }
            (Some(true), _) => limits.image_pulls = 1,
            (_, 1..) => limits.image_pulls = parallel,
            _ => (),
        }
        if let Some(period) = self.duration("nodeStatusUpdateFrequency") {
            limits.heartbeat.check_period = period;
        }
        if let Some(period) = self.duration("nodeStatusReportFrequency") {
            limits.heartbeat.report_period = period;
        }
        Ok(limits)
    }

    fn image_gc(&self) -> Result<ImageGcPolicy> {
        let default = ImageGcPolicy::default();
        let high = self.number("imageGCHighThresholdPercent", 0)?;
        let low = self.number("imageGCLowThresholdPercent", 0)?;
        let policy = ImageGcPolicy {
            high_percent: high.unwrap_or(default.high_percent),
            low_percent: low.unwrap_or(default.low_percent),
            minimum_age: self
                .duration("imageMinimumGCAge")
                .unwrap_or(default.minimum_age),
            maximum_age: self.duration("imageMaximumGCAge"),
        };
        if policy.high_percent > 100 {
            return wrong("imageGCHighThresholdPercent", "must be from 0 to 100");
        }
        if policy.low_percent >= policy.high_percent {
            let reason = "must be less than imageGCHighThresholdPercent";
            return wrong("imageGCLowThresholdPercent", reason);
        }
        if policy
            .maximum_age
            .is_some_and(|most| most <= policy.minimum_age)
        {
            return wrong("imageMaximumGCAge", "must be longer than imageMinimumGCAge");
        }
        Ok(policy)
    }

    fn logs(&self) -> Result<LogPolicy> {
        let default = LogPolicy::default();
        let size = self.value("containerLogMaxSize").and_then(fields::amount);
        let bytes_max = match size {
            // As with kubelet: a negative size switches the rotation off.
            Some(size) if size < 0 => None,
            Some(0) => return wrong("containerLogMaxSize", "must not be 0"),
            Some(size) => u64::try_from(size).ok(),
            None => default.bytes_max,
        };
        Ok(LogPolicy {
            bytes_max,
            files_max: self
                .number("containerLogMaxFiles", 2)?
                .unwrap_or(default.files_max),
            workers: self
                .number("containerLogMaxWorkers", 1)?
                .unwrap_or(default.workers),
            period: self
                .duration("containerLogMonitorInterval")
                .unwrap_or(default.period),
        })
    }

    fn pods(&self) -> PodSettings {
        PodSettings {
            cluster_dns: self.strings("clusterDNS").unwrap_or_default(),
            cluster_domain: self.text("clusterDomain").unwrap_or_default().to_owned(),
            seccomp_default: self.flag("seccompDefault").unwrap_or_default(),
            allowed_unsafe_sysctls: self.strings("allowedUnsafeSysctls").unwrap_or_default(),
            ..PodSettings::default()
        }
    }

    fn static_pods(&self) -> StaticPods {
        let default = StaticPods::default();
        let headers = self.value("staticPodURLHeader").and_then(Value::as_object);
        let headers = headers.into_iter().flatten().flat_map(|(name, values)| {
            let values = values.as_array().into_iter().flatten();
            values.filter_map(|value| Some((name.clone(), value.as_str()?.to_owned())))
        });
        StaticPods {
            // The option has it.
            path: None,
            file_period: self
                .duration("fileCheckFrequency")
                .unwrap_or(default.file_period),
            url: self.text("staticPodURL").map(str::to_owned),
            headers: headers.collect(),
            http_period: self
                .duration("httpCheckFrequency")
                .unwrap_or(default.http_period),
        }
    }

    fn resources(&self) -> Result<ResourceOptions> {
        let mut resources = ResourceOptions {
            system_reserved: self.reserved("systemReserved")?,
            kube_reserved: self.reserved("kubeReserved")?,
            cpu_manager: self.cpu_manager()?,
            shutdown: self.shutdown()?,
            ..ResourceOptions::default()
        };
        let pids: Option<i64> = self.number("podPidsLimit", -1)?;
        resources.pod_pids_max = pids.filter(|most| *most > 0);
        if let Some(enforced) = self.strings("enforceNodeAllocatable") {
            let known = ["pods", "none"];
            if let Some(other) = enforced.iter().find(|one| !known.contains(&one.as_str())) {
                return wrong(
                    "enforceNodeAllocatable",
                    format!("\"{other}\" is not served"),
                );
            }
            resources.enforce_pods = enforced.iter().any(|one| one == "pods");
        }
        let eviction = &mut resources.eviction;
        match self.eviction()?.thresholds() {
            Ok(thresholds) => eviction.thresholds = thresholds,
            Err(error) => return wrong("evictionHard, evictionSoft", error),
        }
        if let Some(period) = self.duration("evictionPressureTransitionPeriod") {
            eviction.pressure_transition = period;
        }
        if let Some(seconds) = self.number("evictionMaxPodGracePeriod", 0)? {
            eviction.max_pod_grace = Duration::from_secs(seconds);
        }
        Ok(resources)
    }

    fn eviction(&self) -> Result<EvictionTexts> {
        let mut texts = EvictionTexts::default();
        if let Some(hard) = self.map("evictionHard") {
            // What is not named has no threshold, unless it is asked for (KEP-5311).
            if !self
                .flag("mergeDefaultEvictionSettings")
                .unwrap_or_default()
            {
                texts.hard.clear();
            }
            texts.hard.extend(hard);
        }
        texts.soft = self.map("evictionSoft").unwrap_or_default();
        for (signal, text) in self.map("evictionSoftGracePeriod").unwrap_or_default() {
            let Some(grace) = duration::parse(&text) else {
                let reason = format!("\"{text}\" of {signal} is no duration");
                return wrong("evictionSoftGracePeriod", reason);
            };
            texts.soft_grace.insert(signal, grace);
        }
        texts.min_reclaim = self.map("evictionMinimumReclaim").unwrap_or_default();
        Ok(texts)
    }

    fn reserved(&self, field: &str) -> Result<Amount> {
        let mut amount = Amount::default();
        for (resource, text) in self.map(field).unwrap_or_default() {
            let quantity = match Quantity::parse(&text) {
                Ok(quantity) if !quantity.is_negative() => quantity,
                _ => return wrong(field, format!("\"{text}\" of {resource} is no amount")),
            };
            match resource.as_str() {
                "cpu" => amount.cpu_milli = quantity.milli_value(),
                "memory" => amount.memory_bytes = quantity.value(),
                "ephemeral-storage" => amount.ephemeral_storage_bytes = quantity.value(),
                "pid" => tracing::warn!(field, "pid is not reserved: processes are not counted"),
                other => return wrong(field, format!("cannot reserve \"{other}\" resource")),
            }
        }
        Ok(amount)
    }

    fn cpu_manager(&self) -> Result<CpuManagerOptions> {
        let mut options = CpuManagerOptions::default();
        match self.text("cpuManagerPolicy").unwrap_or("none") {
            "none" => options.policy = CpuPolicy::None,
            "static" => options.policy = CpuPolicy::Static,
            other => return wrong("cpuManagerPolicy", format!("\"{other}\" is no policy")),
        }
        if let Some(text) = self.text("reservedSystemCPUs") {
            match text.parse() {
                Ok(cpus) => options.reserved = cpus,
                Err(error) => return wrong("reservedSystemCPUs", error),
            }
        }
        Ok(options)
    }

    fn shutdown(&self) -> Result<ShutdownOptions> {
        let all = self.duration("shutdownGracePeriod").unwrap_or_default();
        let critical = self
            .duration("shutdownGracePeriodCriticalPods")
            .unwrap_or_default();
        if critical > all {
            let reason = "must not be longer than shutdownGracePeriod";
            return wrong("shutdownGracePeriodCriticalPods", reason);
        }
        let field = "shutdownGracePeriodByPodPriority";
        let classes = self.value(field).and_then(Value::as_array);
        let classes = classes.map_or(&[][..], Vec::as_slice);
        if classes.is_empty() {
            return Ok(ShutdownOptions::two_groups(all, critical));
        }
        if !all.is_zero() {
            return wrong(field, "cannot be set together with shutdownGracePeriod");
        }
        let class = |class: &Value| {
            let priority = i32::try_from(class["priority"].as_i64()?).ok()?;
            let seconds = u64::try_from(class["shutdownGracePeriodSeconds"].as_i64()?).ok()?;
            Some((priority, Duration::from_secs(seconds)))
        };
        let classes: Option<Vec<_>> = classes.iter().map(class).collect();
        match classes {
            Some(grace_by_priority) => Ok(ShutdownOptions { grace_by_priority }),
            None => wrong(
                field,
                "each entry needs priority and shutdownGracePeriodSeconds",
            ),
        }
    }

    fn taints(&self) -> Result<Vec<Taint>> {
        let field = "registerWithTaints";
        let Some(value) = self.value(field) else {
            return Ok(Vec::new());
        };
        let taints: Vec<Taint> = match serde_json::from_value(value.clone()) {
            Ok(taints) => taints,
            Err(error) => return wrong(field, error),
        };
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let bad = |taint: &&Taint| taint.key.is_empty() || !effects.contains(&&*taint.effect);
        match taints.iter().find(bad) {
            Some(taint) => wrong(
                field,
                format!("\"{}:{}\" is no taint", taint.key, taint.effect),
            ),
            None => Ok(taints),
        }
    }
}
