//! Callers of one agent over several faces.

use serde_json::json;

use crate::{
    a2a_client::A2aClient,
    api_harness::{ApiGateway, Person},
    fleet::{Fleet, TestGateway},
    http::{Request, Response, Stream},
};

/// A client of A2A, a client of the OpenAI API, and a person with a conversation.
pub(crate) struct Callers {
    pub(crate) gateway: TestGateway,
    pub(crate) peer: A2aClient,
    /// The token for the OpenAI API.
    pub(crate) token: String,
    pub(crate) ada: Person,
    /// The conversation of Ada.
    pub(crate) conversation: String,
    _console: ApiGateway,
}

impl Callers {
    /// Starts a gateway for the programs, and one for the person.
    pub(crate) async fn start(fleet: &Fleet) -> Self {
        let gateway = fleet.gateway().await;
        let peer = A2aClient::new(&gateway, "peer").await;
        let token = gateway.openai_token().await;
        let console = ApiGateway::start(fleet, "console").await;
        let ada = console.person("ada");
        let conversation = ada.converse().await;
        Self { gateway, peer, token, ada, conversation, _console: console }
    }

    /// Returns a completion of one message to an agent.
    fn completion(&self, agent: &str) -> Request {
        let body = json!({"model": agent, "messages": [{"role": "user", "content": "hello"}]});
        Request::post("/v1/chat/completions", &body).token(&self.token)
    }

    /// Sends a message to an agent over the OpenAI API.
    pub(crate) async fn complete(&self, agent: &str) -> Response {
        self.completion(agent).send(self.gateway.address).await
    }

    /// Sends a message to the agent over the OpenAI API, and returns the open connection.
    pub(crate) async fn open_completion(&self) -> Stream {
        self.completion("assistant").open(self.gateway.address).await
    }
}
