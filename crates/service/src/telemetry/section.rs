//! `[telemetry]`: destination and content of traces.

use std::env;

use http::Uri;
use reqwest::Url;
use serde::Deserialize;

use super::headers;

/// Endpoints in the environment, the more specific one first.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Protocols in the environment, the more specific one first.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Disables all of OpenTelemetry if it is `true`.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// `[telemetry]`. Absent settings come from the `OTEL_*` variables of OpenTelemetry's specification;
/// the section takes precedence over them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// OTLP endpoint for spans, such as `http://collector:4317`. No spans are exported when neither it
    /// nor `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
    pub otlp_endpoint: Option<String>,
    /// OTLP transport. Default `grpc`.
    pub otlp_protocol: Option<OtlpProtocol>,
    /// Share of the traces started here that are sampled, 0 to 1. A trace started elsewhere is sampled
    /// if it was there. Default 1.
    pub sample_ratio: Option<f64>,
    /// Records the arguments and results of tools in spans, up to 4 KiB of each. They contain text of
    /// users and tools. Default false.
    pub content: bool,
    /// Name of the fleet: `service.namespace` of every span. Default `rockbot`.
    pub service_namespace: String,
}

/// Transport of OTLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC, usually on port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP, usually on port 4318; `/v1/traces` is appended to the endpoint.
    Http,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_protocol: None,
            sample_ratio: None,
            content: false,
            service_namespace: "rockbot".to_owned(),
        }
    }
}

impl TelemetrySection {
    /// Validates the section and the variables that complete it; returns every problem.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.sample_ratio.is_some_and(|ratio| !(0.0..=1.0).contains(&ratio)) {
            problems.push("telemetry.sample_ratio must be between 0 and 1".to_owned());
        }
        let Some(endpoint) = self.endpoint() else { return problems };
        if !is_http_url(&endpoint.url) {
            let key = endpoint.key;
            problems.push(format!("{key} must be a URL such as http://collector:4317"));
        }
        if let Err(problem) = self.protocol() {
            problems.push(problem);
        }
        problems.extend(headers::validate().err().map(|problem| problem.to_string()));
        problems
    }

    /// Returns the endpoint that spans are exported to, or `None` if neither the section nor the
    /// environment sets one, or if the environment disables OpenTelemetry.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        if variable([DISABLED]).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let configured = self.otlp_endpoint.clone().map(|url| ("telemetry.otlp_endpoint", url));
        let (key, url) = configured.or_else(|| variable(ENDPOINTS))?;
        Some(Endpoint { key, url })
    }

    /// Returns the transport, or an error if the one in the environment is not supported.
    pub(super) fn protocol(&self) -> Result<OtlpProtocol, String> {
        let configured = self.otlp_protocol.map(Ok);
        configured.unwrap_or_else(|| variable(PROTOCOLS).map_or(Ok(OtlpProtocol::Grpc), parse))
    }
}

/// Destination of spans.
pub(super) struct Endpoint {
    /// Key or variable that sets it.
    key: &'static str,
    pub(super) url: String,
}

impl Endpoint {
    /// Returns the URL for traces over `protocol` if the configuration sets it. The exporter derives it
    /// from the variables itself.
    pub(super) fn configured_url(&self, protocol: OtlpProtocol) -> Option<String> {
        if ENDPOINTS.contains(&self.key) {
            return None;
        }
        let url = self.url.trim_end_matches('/');
        let has_path = protocol == OtlpProtocol::Grpc || url.ends_with("/v1/traces");
        Some(if has_path { url.to_owned() } else { format!("{url}/v1/traces") })
    }
}

/// Returns the first of the variables that is set and not empty.
fn variable<const N: usize>(names: [&'static str; N]) -> Option<(&'static str, String)> {
    let text = |name| env::var(name).ok().filter(|text| !text.is_empty());
    names.into_iter().find_map(|name| Some((name, text(name)?)))
}

fn parse((variable, protocol): (&str, String)) -> Result<OtlpProtocol, String> {
    match protocol.as_str() {
        "grpc" => Ok(OtlpProtocol::Grpc),
        "http/protobuf" => Ok(OtlpProtocol::Http),
        _ => Err(format!("{variable} must be grpc or http/protobuf")),
    }
}

/// Accepts only URLs that both clients accept: each of the two parsers accepts URLs that the other one
/// rejects. Only a path may follow the host, since one is appended.
fn is_http_url(text: &str) -> bool {
    let has_host = text.parse::<Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    });
    has_host && text.parse::<Url>().is_ok_and(|url| url.query().or(url.fragment()).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_endpoints_and_ratios_are_rejected() {
        let valid = TelemetrySection {
            otlp_endpoint: Some("http://collector:4317".to_owned()),
            ..TelemetrySection::default()
        };
        assert!(valid.validate().is_empty());
        for endpoint in [
            "collector:4317",
            "http://",
            "http:///v1/traces",
            "http://:1",
            "http://a b",
            "ftp://collector",
            "http://collector:port",
            "http://collector?x=1",
            "http://collector#x",
        ] {
            let otlp_endpoint = Some(endpoint.to_owned());
            let section = TelemetrySection { otlp_endpoint, ..valid.clone() };
            assert_eq!(section.validate().len(), 1, "{endpoint}");
        }
        for sample_ratio in [-0.1, 1.1, f64::NAN].map(Some) {
            let section = TelemetrySection { sample_ratio, ..valid.clone() };
            assert_eq!(section.validate().len(), 1, "{sample_ratio:?}");
        }
    }

    #[test]
    fn http_endpoint_gets_the_path_for_traces() {
        let url = |endpoint: &str, protocol| {
            let otlp_endpoint = Some(endpoint.to_owned());
            let section = TelemetrySection { otlp_endpoint, ..TelemetrySection::default() };
            section.endpoint()?.configured_url(protocol)
        };
        let traces = Some("http://c:4318/v1/traces".to_owned());
        assert_eq!(url("http://c:4318", OtlpProtocol::Http), traces);
        assert_eq!(url("http://c:4318/v1/traces", OtlpProtocol::Http), traces);
        assert_eq!(url("http://c:4317/", OtlpProtocol::Grpc), Some("http://c:4317".to_owned()));
    }

    #[test]
    fn protocol_in_environment_is_grpc_or_protobuf() {
        let parse = |protocol: &str| parse(("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()));
        assert_eq!(parse("grpc"), Ok(OtlpProtocol::Grpc));
        assert_eq!(parse("http/protobuf"), Ok(OtlpProtocol::Http));
        assert!(parse("http/json").unwrap_err().starts_with("OTEL_EXPORTER_OTLP_PROTOCOL must"));
    }
}
