//! `[telemetry]`: where traces go, and how much is in them.

use http::Uri;
use reqwest::Url;
use serde::Deserialize;

use super::otlp::headers;

/// `[telemetry]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// Where spans are sent over OTLP, such as `http://collector:4317`; nowhere when absent. Headers
    /// that the collector wants come from `OTEL_EXPORTER_OTLP_HEADERS`.
    pub otlp_endpoint: Option<String>,
    /// How they are sent. Default `grpc`.
    pub otlp_protocol: OtlpProtocol,
    /// The share of traces that begin here and are recorded, 0 to 1. One that began elsewhere is
    /// recorded if it was there. Default 1.
    pub sample_ratio: f64,
    /// Whether arguments and results of tools are recorded too, 4 KiB of each. They are what users
    /// and tools say. Default false.
    pub content: bool,
    /// What the fleet is called: `service.namespace` of every span. Default `rockbot`.
    pub service_namespace: String,
}

/// How spans travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC, usually at port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP, usually at port 4318; `/v1/traces` is added to the endpoint.
    Http,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_protocol: OtlpProtocol::Grpc,
            sample_ratio: 1.0,
            content: false,
            service_namespace: "rockbot".to_owned(),
        }
    }
}

impl TelemetrySection {
    /// What can't be used, in words.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.push("telemetry.sample_ratio must be between 0 and 1".to_owned());
        }
        if let Some(endpoint) = &self.otlp_endpoint {
            if !is_http_url(endpoint) {
                let what = "telemetry.otlp_endpoint must be a URL such as http://collector:4317";
                problems.push(what.to_owned());
            }
            problems.extend(headers::configured().err().map(|problem| problem.to_string()));
        }
        problems
    }

    /// The URL that spans are sent to.
    pub(crate) fn url(&self) -> Option<String> {
        let endpoint = self.otlp_endpoint.as_deref()?.trim_end_matches('/');
        Some(match self.otlp_protocol {
            OtlpProtocol::Http if !endpoint.ends_with("/v1/traces") => {
                format!("{endpoint}/v1/traces")
            }
            _ => endpoint.to_owned(),
        })
    }
}

/// Each of the two parsers, which are those of the two clients, takes what the other does not. And
/// only a path may follow the host, since one is added.
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
    fn what_is_no_ratio_and_no_url_is_told() {
        let good = TelemetrySection {
            otlp_endpoint: Some("http://collector:4317".to_owned()),
            ..TelemetrySection::default()
        };
        assert!(good.problems().is_empty());
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
            let section = TelemetrySection { otlp_endpoint, ..good.clone() };
            assert_eq!(section.problems().len(), 1, "{endpoint}");
        }
        for sample_ratio in [-0.1, 1.1, f64::NAN] {
            let section = TelemetrySection { sample_ratio, ..good.clone() };
            assert_eq!(section.problems().len(), 1, "{sample_ratio}");
        }
    }

    #[test]
    fn over_http_spans_go_to_the_path_for_traces() {
        let url = |endpoint: &str, otlp_protocol| {
            let otlp_endpoint = Some(endpoint.to_owned());
            TelemetrySection { otlp_endpoint, otlp_protocol, ..TelemetrySection::default() }.url()
        };
        let all = Some("http://c:4318/v1/traces".to_owned());
        assert_eq!(url("http://c:4318", OtlpProtocol::Http), all);
        assert_eq!(url("http://c:4318/v1/traces", OtlpProtocol::Http), all);
        assert_eq!(url("http://c:4317/", OtlpProtocol::Grpc), Some("http://c:4317".to_owned()));
    }
}
