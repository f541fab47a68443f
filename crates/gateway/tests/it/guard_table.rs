//! Every route against everything that the guard refuses. A route without a row fails.

use std::{collections::BTreeSet, net::SocketAddr};

use rockbot_contracts::InstanceId;
use rockbot_gateway::{
    Access, FaceName, Gateway, GatewayParts, GatewaySection, Guard, Rate, Right, Route,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, TestGateway, mcp_face},
    http::Request,
};

const TALK: Access = Access::Right(Right::Talk);
const WATCH: Access = Access::Right(Right::Watch);
const LETTERS: Access = Access::Right(Right::Letters);

/// Every route: its face, method, path, and access.
const ROUTES: &[(FaceName, &str, &str, Access)] = &[
    (FaceName::Console, "POST", "/api/v1/session", Access::Public),
    (FaceName::Console, "DELETE", "/api/v1/session", Access::SignedIn),
    (FaceName::Console, "GET", "/api/v1/me", Access::SignedIn),
    (FaceName::Console, "GET", "/api/v1/agents", TALK),
    (FaceName::Console, "GET", "/api/v1/schedules", TALK),
    (FaceName::Console, "GET", "/api/v1/tasks", TALK),
    (FaceName::Console, "GET", "/api/v1/conversations", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations", TALK),
    (FaceName::Console, "GET", "/api/v1/conversations/{id}", TALK),
    (FaceName::Console, "PATCH", "/api/v1/conversations/{id}", TALK),
    (FaceName::Console, "DELETE", "/api/v1/conversations/{id}", TALK),
    (FaceName::Console, "GET", "/api/v1/conversations/{id}/events", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations/{id}/messages", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations/{id}/cancel", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations/{id}/approvals/{approvalId}", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations/{id}/inputs/{inputId}", TALK),
    (FaceName::Console, "POST", "/api/v1/conversations/{id}/share", TALK),
    (FaceName::Console, "DELETE", "/api/v1/conversations/{id}/share", TALK),
    (FaceName::Console, "GET", "/api/v1/conversations/{id}/export", TALK),
    (FaceName::Console, "GET", "/api/v1/shared/{shareId}", TALK),
    (FaceName::Console, "GET", "/api/v1/calls", WATCH),
    (FaceName::Console, "GET", "/api/v1/calls/{id}", WATCH),
    (FaceName::Console, "GET", "/api/v1/calls/{id}/content", Access::Right(Right::Content)),
    (FaceName::Console, "GET", "/api/v1/fleet", WATCH),
    (FaceName::Console, "GET", "/api/v1/tools", WATCH),
    (FaceName::Console, "GET", "/api/v1/tools/{name}", WATCH),
    (FaceName::Console, "POST", "/api/v1/tools/{name}/calls", Access::Right(Right::Call)),
    (FaceName::Console, "GET", "/api/v1/letters", LETTERS),
    (FaceName::Console, "GET", "/api/v1/letters/{queue}", LETTERS),
    (FaceName::Console, "GET", "/api/v1/letters/{queue}/{messageId}", LETTERS),
    (FaceName::Console, "POST", "/api/v1/letters/{queue}/replay", LETTERS),
    (FaceName::Console, "POST", "/api/v1/letters/{queue}/purge", LETTERS),
    (FaceName::Console, "GET", "/api/v1/stream", Access::SignedIn),
    (FaceName::Mcp, "DELETE", "/mcp", Access::SignedIn),
    (FaceName::Mcp, "GET", "/mcp", Access::SignedIn),
    (FaceName::Mcp, "POST", "/mcp", Access::SignedIn),
    (FaceName::Openai, "POST", "/v1/chat/completions", Access::Right(Right::Talk)),
    (FaceName::Openai, "GET", "/v1/models", Access::Right(Right::Talk)),
    (FaceName::Openai, "GET", "/v1/models/{model}", Access::Right(Right::Talk)),
    (FaceName::Openai, "POST", "/v1/approvals/{approval}", Access::Right(Right::Talk)),
    (FaceName::Openai, "POST", "/v1/responses", Access::Right(Right::Talk)),
    (FaceName::Openai, "GET", "/v1/responses/{response}", Access::Right(Right::Talk)),
    (FaceName::Openai, "DELETE", "/v1/responses/{response}", Access::Right(Right::Talk)),
    (FaceName::A2a, "GET", "/agents/{agent}/.well-known/agent-card.json", TALK),
    (FaceName::A2a, "POST", "/agents/{agent}", TALK),
    (FaceName::A2a, "POST", "/agents/{agent}/message:send", TALK),
    (FaceName::A2a, "POST", "/agents/{agent}/message:stream", TALK),
    (FaceName::A2a, "GET", "/agents/{agent}/tasks", TALK),
    (FaceName::A2a, "GET", "/agents/{agent}/tasks/{task}", TALK),
    (FaceName::A2a, "POST", "/agents/{agent}/tasks/{task}", TALK),
    (FaceName::A2a, "GET", "/agents/{agent}/tasks/{task}/pushNotificationConfigs", TALK),
    (FaceName::A2a, "POST", "/agents/{agent}/tasks/{task}/pushNotificationConfigs", TALK),
    (
        FaceName::A2a,
        "GET",
        "/agents/{agent}/tasks/{task}/pushNotificationConfigs/{configuration}",
        TALK,
    ),
    (
        FaceName::A2a,
        "DELETE",
        "/agents/{agent}/tasks/{task}/pushNotificationConfigs/{configuration}",
        TALK,
    ),
    (FaceName::A2a, "GET", "/agents/{agent}/extendedAgentCard", TALK),
];

/// Returns the routes of a gateway with all faces, except those of files.
async fn routes(fleet: &Fleet) -> Vec<(FaceName, Route)> {
    let faces = FaceName::ALL.into();
    let section = GatewaySection { faces, ..GatewaySection::default() };
    let instance = InstanceId::generate();
    let (bus, store) = (fleet.bus.clone(), fleet.store.clone());
    let parts = GatewayParts::connect(bus, section.agents.clone(), store, instance);
    let mut parts = parts.await.unwrap();
    parts.calls = Some(parts.bus.clone());
    let mcp = mcp_face(&parts).await;
    let guard = Guard::start(&section, section.address).unwrap();
    let gateway = Gateway::new(&section, &parts, guard).with_mcp(mcp);
    let is_file = |route: &Route| {
        route.access == Access::Public
            && route.limits.rate == Rate::Requests
            && !route.path.starts_with("/api")
            && !route.path.starts_with("/v1")
    };
    let routes = gateway.routes().filter(|(_, route)| !is_file(route));
    routes.map(|(face, route)| (face, route.clone())).collect()
}

#[tokio::test]
async fn every_route_has_a_row() {
    let fleet = Fleet::start().await;
    let routes = routes(&fleet).await;
    let found: BTreeSet<_> = routes
        .iter()
        .flat_map(|(face, route)| {
            let methods = route.methods.iter();
            methods
                .map(move |method| format!("{face:?} {method} {} {:?}", route.path, route.access))
        })
        .collect();
    let rows = ROUTES.iter();
    let expected: BTreeSet<_> = rows
        .map(|(face, method, path, access)| format!("{face:?} {method} {path} {access:?}"))
        .collect();
    assert_eq!(found, expected);
}

/// Credentials that a gateway accepts.
struct Credentials {
    cookie: String,
    /// A token for each face with all rights, and one without rights.
    tokens: Vec<(FaceName, String, String)>,
}

impl Credentials {
    async fn create(gateway: &TestGateway) -> Self {
        let cookie = gateway.log_in().await;
        let mut tokens = Vec::new();
        for face in FaceName::ALL {
            let name = face.as_str();
            let all = gateway.token(&format!("{name}-all"), face, &Right::ALL).await;
            let none = gateway.token(&format!("{name}-none"), face, &[]).await;
            tokens.push((face, all, none));
        }
        Self { cookie, tokens }
    }
}

struct Row<'a> {
    address: SocketAddr,
    credentials: &'a Credentials,
    face: FaceName,
    method: &'a str,
    path: String,
    access: Access,
    body_bytes: usize,
}

impl Row<'_> {
    fn request(&self) -> Request {
        Request::new(self.method, &self.path)
    }

    fn is_unsafe(&self) -> bool {
        self.method != "GET"
    }

    /// Adds the cookie, and the origin that a browser adds.
    fn with_session(&self, request: Request) -> Request {
        request.header("cookie", &self.credentials.cookie)
    }

    fn too_many_bytes(&self) -> String {
        (self.body_bytes + 1).to_string()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn check(&self, what: &str, request: Request, status: u16) {
        let response = request.send(self.address).await;
        let Self { method, path, .. } = self;
        assert_eq!(response.status, status, "{what}: {method} {path}: {}", response.body);
        let body = response.json();
        let error = if self.face == FaceName::Openai
            && status != 421
            && status != 431
            && status != 405
        {
            &body["error"]
        } else {
            assert_eq!(response.header("content-type"), Some("application/problem+json"), "{what}");
            &body
        };
        assert_eq!(error["executed"], "no", "{what}: {method} {path}: {}", response.body);
        assert!(error["code"].is_string(), "{what}: {method} {path}: {}", response.body);
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{what}");
        assert!(response.header("content-security-policy").is_some(), "{what}");
    }

    async fn check_all(&self) {
        let json = |request: Request| request.header("content-type", "application/json");
        self.check("foreign host", self.request().host("evil.example"), 421).await;
        self.check("no port of the host", self.request().host("localhost.evil.example"), 421).await;
        let large = "x".repeat(17 * 1024);
        self.check("17 KiB of headers", self.request().header("x-large", &large), 431).await;
        self.check("other method", Request::new("PUT", &self.path), 405).await;
        let other_origin = "http://evil.example";
        if self.access == Access::Public {
            let login = || json(self.request()).body("{}");
            self.check("foreign origin", login().header("origin", other_origin), 403).await;
            self.check("null origin", login().header("origin", "null"), 403).await;
            self.check("no origin", login(), 403).await;
            let text = self.request().header("content-type", "text/plain").body("{}");
            self.check("form of another site", text.header("origin", &self.origin()), 415).await;
            let body = json(self.request()).header("content-length", &self.too_many_bytes());
            self.check("large body", body.header("origin", &self.origin()), 413).await;
            return;
        }
        self.check("no credential", self.request(), 401).await;
        let expired = format!("rockbot_session={}", "A".repeat(43));
        self.check("unknown session", self.request().header("cookie", &expired), 401).await;
        self.check("unknown token", self.request().token("rbgw_AAAA"), 401).await;
        self.check("basic", self.request().header("authorization", "Basic YTpi"), 401).await;
        for (face, all, none) in &self.credentials.tokens {
            if *face != self.face {
                self.check("token of another face", self.request().token(all), 403).await;
            } else if self.access != Access::SignedIn {
                self.check("token without the right", self.request().token(none), 403).await;
            }
            let foreign = self.request().token(all).header("origin", other_origin);
            self.check("token in a page of another site", foreign, 403).await;
        }
        let session = || self.with_session(self.request());
        self.check("foreign origin", session().header("origin", other_origin), 403).await;
        self.check("null origin", session().header("origin", "null"), 403).await;
        let cross = session().header("sec-fetch-site", "cross-site");
        self.check("cross-site", cross.header("origin", &self.origin()), 403).await;
        self.check("same-site", session().header("sec-fetch-site", "same-site"), 403).await;
        if self.is_unsafe() {
            self.check("no origin", json(session()).body("{}"), 403).await;
            let text = session().header("content-type", "text/plain").body("{}");
            self.check("form of another site", text.header("origin", &self.origin()), 415).await;
            let other_name = format!("http://localhost:{}", self.address.port());
            let other_name = json(session()).body("{}").header("origin", &other_name);
            self.check("other name of this machine", other_name, 403).await;
            let body = json(session()).header("content-length", &self.too_many_bytes());
            self.check("large body", body.header("origin", &self.origin()), 413).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_refuses_by_the_table() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("messages_per_minute = 6000").await;
    let credentials = Credentials::create(&gateway).await;
    for (face, route) in routes(&fleet).await {
        for method in &route.methods {
            let row = Row {
                address: gateway.address,
                credentials: &credentials,
                face,
                method: method.as_str(),
                path: route.path.replace(['{', '}'], ""),
                access: route.access,
                body_bytes: route.limits.body_bytes,
            };
            row.check_all().await;
        }
    }
}

#[tokio::test]
async fn unknown_path_is_not_found() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    for path in ["/api/v1/nothing", "/v1/nothing", "/../etc/passwd", "/nothing.html"] {
        let response = Request::get(path).send(gateway.address).await;
        assert_eq!(
            (response.status, response.json()["code"].clone()),
            (404, json!("not_found")),
            "{path}"
        );
    }
}
