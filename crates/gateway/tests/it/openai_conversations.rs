//! The conversation that a request continues.

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::Request,
};

/// A client that sends the whole conversation each time.
struct Client<'a> {
    gateway: &'a TestGateway,
    token: String,
    messages: Vec<Value>,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Client<'a> {
    fn new(gateway: &'a TestGateway, token: &str) -> Self {
        let messages = vec![json!({"role": "system", "content": "Be kind."})];
        Self { gateway, token: token.to_owned(), messages, headers: Vec::new() }
    }

    async fn say(&mut self, text: &str, stream: bool) {
        self.messages.push(json!({"role": "user", "content": text}));
        let body = json!({"model": "assistant", "stream": stream, "messages": self.messages});
        let mut request = Request::post("/v1/chat/completions", &body).token(&self.token);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = request.send(self.gateway.address).await;
        assert_eq!(response.status, 200, "{}", response.body);
        let answer = response.answer(stream);
        self.messages.push(json!({"role": "assistant", "content": format!(" {answer}\n")}));
    }
}

#[tokio::test]
async fn only_the_last_message_goes_out() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let mut client = Client::new(&gateway, &token);
    client.say("one", false).await;
    client.say("two", true).await;
    client.say("three", false).await;
    // The agent has recorded the earlier messages; none of them came twice.
    assert_eq!(fleet.model.last_user_texts(), ["one", "two", "three"]);
}

#[tokio::test]
async fn conversation_continues_at_another_gateway() {
    let fleet = Fleet::start().await;
    let (first, second) = (fleet.gateway().await, fleet.gateway().await);
    let token = first.openai_token().await;
    let mut client = Client::new(&first, &token);
    client.say("one", false).await;
    let messages = client.messages;
    let token = second.openai_token().await;
    let mut client = Client { messages, ..Client::new(&second, &token) };
    client.say("two", false).await;
    assert_eq!(fleet.model.last_user_texts(), ["one", "two"]);
}

#[tokio::test]
async fn same_messages_of_others_are_another_conversation() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let mut ada = Client::new(&gateway, &token);
    ada.headers = vec![("x-openwebui-user-id", "ada")];
    let mut bob = Client::new(&gateway, &token);
    bob.headers = vec![("x-openwebui-user-id", "bob")];
    for client in [&mut ada, &mut bob] {
        client.say("hello", false).await;
    }
    ada.say("my secret", false).await;
    bob.say("what do you know", false).await;
    assert_eq!(fleet.model.last_user_texts(), ["hello", "what do you know"]);
}

#[tokio::test]
async fn ambiguous_messages_continue_no_conversation() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let mut ada = Client::new(&gateway, &token);
    let mut bob = Client::new(&gateway, &token);
    for client in [&mut ada, &mut bob] {
        client.say("hello", false).await;
    }
    ada.say("my secret", false).await;
    bob.say("what do you know", false).await;
    let texts = fleet.model.last_user_texts();
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    assert!(!text.contains("secret"), "{text}");
    assert!(text.contains("User: hello") && text.ends_with("what do you know"), "{text}");
}

#[tokio::test]
async fn earlier_messages_of_elsewhere_are_sent_along() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let mut client = Client::new(&gateway, &token);
    client.messages.push(json!({"role": "user", "content": "earlier question"}));
    client.messages.push(json!({"role": "assistant", "content": "earlier answer"}));
    client.say("now", false).await;
    let texts = fleet.model.last_user_texts();
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    assert!(text.contains("User: earlier question\n\nAssistant: earlier answer"), "{text}");
    client.say("next", false).await;
    assert_eq!(fleet.model.last_user_texts()[1..], ["next"]);
}

#[tokio::test]
async fn chat_of_open_webui_is_one_conversation() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.openai_token().await;
    let headers = vec![("x-openwebui-chat-id", "chat-1")];
    let mut chat = Client { headers: headers.clone(), ..Client::new(&gateway, &token) };
    chat.say("one", true).await;
    // The page rewrites an answer; the id of the chat still finds the conversation.
    chat.messages.last_mut().unwrap()["content"] = json!("rewritten");
    chat.say("two", true).await;
    assert_eq!(fleet.model.last_user_texts(), ["one", "two"]);
    // Open WebUI lets a model name a chat, with the id of the chat.
    let mut task = Client { headers, ..Client::new(&gateway, &token) };
    task.say("Generate a title", false).await;
    assert_eq!(fleet.model.last_user_texts(), ["Generate a title"]);
}
