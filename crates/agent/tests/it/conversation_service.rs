//! Requests of users about the conversations of an agent.

use std::sync::Arc;

use rockbot_agent::{
    AgentClient, AgentInbox, ConversationRequestError, ConversationService,
    ConversationServiceBuilder, serve,
};
use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ContentTrust, ConversationRequest, ConversationResponse, Envelope,
    InstanceId, Message, MessageId, QueueSpec, ReplyBody, RoutingKey, SessionId, UserFeedback,
    UserMessage,
    conversation::{
        ConversationErrorCode, ConversationState, ConversationSummary, FeedbackRating, HistoryBody,
    },
    json::Limits,
    topology::{user_conversation, user_message, user_response},
};
use rockbot_llm::ScriptedTurn;
use serde_json::json;

use crate::harness::{AgentFixture, Behavior, ProbeTool, RecordingModel, cancel, message};

fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

/// An agent on a bus, with a client.
struct Served {
    bus: Arc<dyn Bus>,
    client: AgentClient,
    _inbox: AgentInbox,
    _service: ConversationService,
}

impl Served {
    /// Serves an agent whose turns call one tool.
    async fn new() -> Self {
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let model = RecordingModel::script([
            ScriptedTurn::text("Let me look.").call("echo", json!({"n": 1})),
            ScriptedTurn::text("Done."),
        ]);
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let agent = AgentFixture::new().with(&echo).agent(&model);
        let server = ConversationServiceBuilder::for_agent(agent.clone());
        let service = server.serve(bus.clone()).await.unwrap();
        let inbox = serve(agent, bus.clone(), 16).await.unwrap();
        let instance = InstanceId::new("proxy").unwrap();
        let client = AgentClient::connect(bus.clone(), &instance).await.unwrap();
        Self { bus, client, _inbox: inbox, _service: service }
    }

    /// Sends a message, waits for its answer and returns its id.
    async fn talk(&self, session: &str, text: &str) -> MessageId {
        let replies = self.client.send(&tester(), &message(session, text)).await.unwrap();
        let id = replies.message_id().clone();
        replies.last().await.unwrap();
        id
    }

    async fn request(
        &self,
        request: ConversationRequest,
    ) -> Result<ConversationResponse, ConversationRequestError> {
        self.client.request(&tester(), &request).await
    }

    async fn summary(&self, session_id: Option<SessionId>) -> ConversationSummary {
        let response = self.request(ConversationRequest::Summary { session_id }).await.unwrap();
        let ConversationResponse::Summary { conversation } = response else {
            panic!("{response:?}");
        };
        conversation
    }

    /// Sends a request as a broker user, and returns the response.
    async fn request_as<M: Message>(&self, user: &str, request: &M) -> ConversationResponse {
        let mut replies = self.publish_as(user, user_conversation(&tester()), request).await;
        let response = replies.next().await.unwrap().into_envelope();
        response.decode(Limits::default()).unwrap()
    }

    /// Sends a message as a broker user, and returns the text of the answer.
    async fn talk_as(&self, user: &str, message: &UserMessage) -> String {
        let mut replies = self.publish_as(user, user_message(&tester()), message).await;
        loop {
            let reply = replies.next().await.unwrap().into_envelope();
            let reply: AgentReply = reply.decode(Limits::default()).unwrap();
            if let ReplyBody::Answer { text, .. } = reply.body {
                return text;
            }
        }
    }

    async fn publish_as<M: Message>(&self, user: &str, key: RoutingKey, payload: &M) -> Consumer {
        let reply_to = user_response(&InstanceId::generate());
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let replies = self.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
        let mut envelope =
            Envelope::from_payload(payload).reply_to(reply_to).with_trust(ContentTrust::UserInput);
        envelope.user_id = Some(user.into());
        self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
        replies
    }
}

fn code(error: ConversationRequestError) -> ConversationErrorCode {
    match error {
        ConversationRequestError::Refused { code, .. } => code,
        other => panic!("{other}"),
    }
}

fn refused(response: ConversationResponse) -> ConversationErrorCode {
    match response {
        ConversationResponse::Failed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn conversations_are_listed_in_pages() {
    let served = Served::new().await;
    for id in ["a", "b", "c"] {
        served.talk(id, &format!("look at {id}")).await;
    }
    let (mut after, mut titles) = (None, Vec::new());
    loop {
        let request = ConversationRequest::List { after, limit: 2 };
        let ConversationResponse::Conversations { conversations, next } =
            served.request(request).await.unwrap()
        else {
            panic!("another response");
        };
        assert!(conversations.iter().all(|one| one.state == ConversationState::Idle));
        titles.extend(conversations.into_iter().map(|one| one.title));
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(titles, ["look at a", "look at b", "look at c"]);
}

#[tokio::test]
async fn last_active_conversation_is_summarized() {
    let served = Served::new().await;
    let none = ConversationRequest::Summary { session_id: None };
    assert_eq!(code(served.request(none).await.unwrap_err()), ConversationErrorCode::NotFound);
    served.talk("a", "first").await;
    served.talk("b", "second").await;
    served.talk("a", "third").await;
    let named = served.summary(Some(session("a"))).await;
    assert_eq!((named.title.as_str(), named.turns, named.open_message), ("first", 2, None));
    assert_eq!(named.usage.tool_calls, 2);
    let last = served.summary(None).await;
    assert!(last.last_active_ms >= named.last_active_ms);
}

#[tokio::test]
async fn history_holds_calls_results_and_feedback() {
    let served = Served::new().await;
    let id = served.talk("a", "look").await;
    let feedback = UserFeedback {
        session_id: session("a"),
        message_id: id.clone(),
        rating: FeedbackRating::Positive,
        comment: "thanks".to_owned(),
    };
    served.client.send_feedback(&tester(), &feedback).await.unwrap();
    let mut bodies = Vec::new();
    let mut from = 0;
    loop {
        let request = ConversationRequest::History { session_id: session("a"), from, limit: 2 };
        let ConversationResponse::History { items, next } = served.request(request).await.unwrap()
        else {
            panic!("another response");
        };
        assert!(items.len() <= 2);
        bodies.extend(items.into_iter().map(|item| item.body));
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    let expected = HistoryBody::Message { message_id: Some(id.clone()), text: "look".to_owned() };
    assert_eq!(bodies[0], expected);
    assert!(matches!(&bodies[1], HistoryBody::Model { calls, .. } if calls[0].tool_name == "echo"));
    assert!(matches!(&bodies[2], HistoryBody::Result { text, .. } if text == r#"{"n":1}"#));
    assert!(matches!(&bodies[3], HistoryBody::Answer { text, .. } if text == "Done."));
    let expected = HistoryBody::Feedback {
        message_id: id,
        rating: FeedbackRating::Positive,
        comment: "thanks".to_owned(),
    };
    assert_eq!(bodies[4..], [expected]);
}

#[tokio::test]
async fn answered_message_is_adopted_with_its_answer() {
    let served = Served::new().await;
    let id = served.talk("a", "look").await;
    let instance = InstanceId::new("restarted").unwrap();
    let later = AgentClient::connect(served.bus.clone(), &instance).await.unwrap();
    let answer = later.adopt(&tester(), &session("a"), &id).await.unwrap().last().await.unwrap();
    assert!(
        matches!(&answer.body, ReplyBody::Answer { text, .. } if text == "Done."),
        "{answer:?}"
    );
    assert_eq!(served.summary(Some(session("a"))).await.turns, 1);
    let unknown = later.adopt(&tester(), &session("a"), &MessageId::generate()).await;
    assert_eq!(code(unknown.unwrap_err()), ConversationErrorCode::NotFound);
}

#[tokio::test]
async fn deleted_conversation_is_gone() {
    let served = Served::new().await;
    served.talk("a", "look").await;
    let delete = ConversationRequest::Delete { session_id: session("a") };
    assert_eq!(served.request(delete.clone()).await.unwrap(), ConversationResponse::Deleted {});
    assert_eq!(code(served.request(delete).await.unwrap_err()), ConversationErrorCode::NotFound);
    let history = ConversationRequest::History { session_id: session("a"), from: 0, limit: 5 };
    assert_eq!(code(served.request(history).await.unwrap_err()), ConversationErrorCode::NotFound);
}

#[tokio::test]
async fn only_people_may_ask() {
    let served = Served::new().await;
    served.talk("a", "look").await;
    let list = ConversationRequest::List { after: None, limit: 10 };
    for user in ["rockbot.agent.mallory", "rockbot.tool-handler", "rockbot.monitor", ""] {
        let response = served.request_as(user, &list).await;
        assert_eq!(refused(response), ConversationErrorCode::NotPermitted, "{user}");
    }
    assert!(matches!(
        served.request_as("rockbot.cli", &list).await,
        ConversationResponse::Conversations { conversations, .. } if conversations.len() == 1
    ));
}

#[tokio::test]
async fn conversation_of_another_user_is_refused() {
    let served = Served::new().await;
    assert_eq!(served.talk_as("alice", &message("a", "look")).await, "Done.");
    assert_eq!(served.talk_as("bob", &message("b", "look")).await, "Done.");
    for message in [message("a", "look"), cancel("a")] {
        let text = served.talk_as("bob", &message).await;
        assert!(text.contains("belongs to another user"), "{text}");
    }
    let list = ConversationRequest::List { after: None, limit: 10 };
    let response = served.request_as("bob", &list).await;
    let ConversationResponse::Conversations { conversations, .. } = response else {
        panic!("{response:?}");
    };
    let ids: Vec<_> = conversations.iter().map(|one| one.session_id.as_str()).collect();
    assert_eq!(ids, ["b"]);
    let latest = ConversationRequest::Summary { session_id: None };
    let response = served.request_as("alice", &latest).await;
    let ConversationResponse::Summary { conversation } = response else {
        panic!("{response:?}");
    };
    assert_eq!(conversation.session_id, session("a"));
    let session_id = session("a");
    for request in [
        ConversationRequest::Summary { session_id: Some(session_id.clone()) },
        ConversationRequest::History { session_id: session_id.clone(), from: 0, limit: 5 },
        ConversationRequest::Delete { session_id },
    ] {
        let response = served.request_as("bob", &request).await;
        assert_eq!(refused(response), ConversationErrorCode::NotPermitted, "{request:?}");
    }
    assert_eq!(served.talk_as("alice", &message("a", "again")).await, "Done.");
}

#[tokio::test]
async fn long_comment_and_unknown_message_are_refused() {
    let served = Served::new().await;
    let id = served.talk("a", "look").await;
    let feedback = |message_id: &MessageId, comment: String| UserFeedback {
        session_id: session("a"),
        message_id: message_id.clone(),
        rating: FeedbackRating::Negative,
        comment,
    };
    for (feedback, expected) in [
        (feedback(&id, "x".repeat(16 * 1024 + 1)), ConversationErrorCode::InvalidRequest),
        (feedback(&MessageId::generate(), String::new()), ConversationErrorCode::NotFound),
    ] {
        let error = served.client.send_feedback(&tester(), &feedback).await.unwrap_err();
        assert_eq!(code(error), expected);
    }
    // A message of another type.
    let response = served.request_as("rockbot.cli", &message("a", "look")).await;
    assert_eq!(refused(response), ConversationErrorCode::InvalidRequest);
}
