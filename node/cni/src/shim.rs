//! The program that containerd runs: it passes the request to the node and prints the answer.
//!
//! ```text
//! VERSION            answered here
//! as `loopback`      answered here (shim/loopback.rs)
//! everything else    → unix socket → shim_server.rs in the node → printed
//! ```
//!
//! Started for every pod, so it is small: std and nix, no parser, no runtime.

use std::env;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::wire::{ShimReply, ShimRequest};

mod json;
mod loopback;

/// Where the node listens unless the conf's `socket` or the environment says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/swiftlet/cni.sock";
/// Environment variable that overrides the conf's `socket`.
pub const SOCKET_VARIABLE: &str = "SWIFTLET_CNI_SOCKET";
/// How long the shim waits for the node. Longer than the node's own limit for a request
/// (`REQUEST_LIMIT`), so that the node's message wins; shorter than the kubelet's two minutes.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The newest version of the specification that is spoken.
pub const NEWEST_VERSION: &str = "1.1.0";
/// All versions that are spoken.
pub const SUPPORTED_VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Error codes of the CNI specification that the shim uses itself.
mod code {
    /// A necessary environment variable is missing or wrong.
    pub(super) const ENVIRONMENT: u32 = 4;
    /// The node is not there: try again later.
    pub(super) const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: the plugin cannot serve ADD now.
    pub(super) const NOT_AVAILABLE: u32 = 50;
    /// Input or output failed.
    pub(super) const IO: u32 = 5;
    /// CHECK found a difference. The node uses the same number.
    pub(super) const CHECK_FAILED: u32 = 104;
}

/// What the process prints on stdout and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Bytes for stdout.
    pub stdout: Vec<u8>,
    /// 0 or 1.
    pub exit_code: u8,
}

/// Serves one plugin run: `program` is the name it was started by.
pub fn run(program: &str, stdin: &mut impl Read) -> Answer {
    let mut conf = Vec::new();
    let read = stdin.read_to_end(&mut conf);
    let request = ShimRequest {
        conf,
        ..request_from_environment()
    };
    if let Err(error) = read {
        return failure(
            &request,
            code::IO,
            "cannot read the conf from stdin",
            &error.to_string(),
        );
    }
    match request.command.as_str() {
        "" => failure(&request, code::ENVIRONMENT, "CNI_COMMAND is not set", ""),
        "VERSION" => versions(&request),
        _ if program.rsplit('/').next() == Some("loopback") => serve_loopback(&request),
        _ => ask_node(&request),
    }
}

fn request_from_environment() -> ShimRequest {
    let read = |name: &str| env::var(name).unwrap_or_default();
    ShimRequest {
        command: read("CNI_COMMAND"),
        container_id: read("CNI_CONTAINERID"),
        netns: read("CNI_NETNS"),
        ifname: read("CNI_IFNAME"),
        args: read("CNI_ARGS"),
        path: read("CNI_PATH"),
        conf: Vec::new(),
    }
}

fn versions(request: &ShimRequest) -> Answer {
    let list = SUPPORTED_VERSIONS.map(json::quoted).join(",");
    let version = json::quoted(&conf_version(request));
    success(format!(
        "{{\"cniVersion\":{version},\"supportedVersions\":[{list}]}}"
    ))
}

/// `lo` goes with its namespace, so only ADD and CHECK have anything to do.
fn serve_loopback(request: &ShimRequest) -> Answer {
    match request.command.as_str() {
        "ADD" => match loopback::bring_up(&request.netns) {
            Ok(has_ipv6) => success(loopback_answer(request, has_ipv6)),
            Err(error) => loopback_failure(request, "cannot bring up lo", &error),
        },
        "CHECK" => match loopback::is_up(&request.netns) {
            Ok(true) => success(String::new()),
            Ok(false) => failure(
                request,
                code::CHECK_FAILED,
                "loopback interface is down",
                "",
            ),
            Err(error) => loopback_failure(request, "cannot look at lo", &error),
        },
        _ => success(String::new()),
    }
}

fn loopback_failure(request: &ShimRequest, what: &str, error: &io::Error) -> Answer {
    let message = format!("{what} in the network namespace {:?}", request.netns);
    failure(request, code::IO, &message, &error.to_string())
}

/// In a chain the result of the plugin before is passed on as it is.
fn loopback_answer(request: &ShimRequest, has_ipv6: bool) -> String {
    match json::top_level_object(&request.conf, "prevResult").map(str::from_utf8) {
        Some(Ok(previous)) => previous.to_owned(),
        _ => loopback_result(&conf_version(request), &request.netns, has_ipv6),
    }
}

fn loopback_result(version: &str, netns: &str, has_ipv6: bool) -> String {
    let ip = |family: &str, address: &str| {
        // Until 0.4.0 an address carried the number of its family.
        let family = if version.starts_with("0.") {
            format!("\"version\":\"{family}\",")
        } else {
            String::new()
        };
        format!("{{{family}\"interface\":0,\"address\":\"{address}\"}}")
    };
    let mut ips = ip("4", "127.0.0.1/8");
    if has_ipv6 {
        ips = ips + "," + &ip("6", "::1/128");
    }
    format!(
        "{{\"cniVersion\":{},\"interfaces\":[{{\"name\":\"lo\",\"mac\":\"00:00:00:00:00:00\",\
         \"sandbox\":{}}}],\"ips\":[{ips}],\"dns\":{{}}}}",
        json::quoted(version),
        json::quoted(netns),
    )
}

fn ask_node(request: &ShimRequest) -> Answer {
    let socket = socket_path(request);
    match exchange(&socket, request) {
        Ok(ShimReply::Result(stdout)) => Answer {
            stdout,
            exit_code: 0,
        },
        Ok(ShimReply::Error(stdout)) => Answer {
            stdout,
            exit_code: 1,
        },
        Err(error) => {
            let code = match request.command.as_str() {
                "STATUS" => code::NOT_AVAILABLE,
                _ => code::TRY_AGAIN_LATER,
            };
            let message = format!("swiftlet-node does not answer on {socket}: is it running?");
            failure(request, code, &message, &error.to_string())
        }
    }
}

fn exchange(socket: &str, request: &ShimRequest) -> io::Result<ShimReply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    request.write_to(&mut stream)?;
    ShimReply::read_from(&mut stream)
}

fn socket_path(request: &ShimRequest) -> String {
    env::var(SOCKET_VARIABLE)
        .ok()
        .filter(|path| !path.is_empty())
        .or_else(|| json::top_level_string(&request.conf, "socket"))
        .unwrap_or_else(|| DEFAULT_SOCKET.to_owned())
}

fn conf_version(request: &ShimRequest) -> String {
    json::top_level_string(&request.conf, "cniVersion").unwrap_or_else(|| NEWEST_VERSION.to_owned())
}

fn success(json: String) -> Answer {
    Answer {
        stdout: json.into_bytes(),
        exit_code: 0,
    }
}

fn failure(request: &ShimRequest, code: u32, message: &str, details: &str) -> Answer {
    let json = format!(
        "{{\"cniVersion\":{},\"code\":{code},\"msg\":{},\"details\":{}}}",
        json::quoted(&conf_version(request)),
        json::quoted(message),
        json::quoted(details),
    );
    Answer {
        stdout: json.into_bytes(),
        exit_code: 1,
    }
}
