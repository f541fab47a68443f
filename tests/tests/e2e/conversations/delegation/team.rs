//! An agent with a helper, a planned model, and a user who receives further answers.

use rockbot_agent::{AgentClient, FollowUps};
use rockbot_contracts::{
    ApprovalAnswer, ApprovalDecision, ConversationRequest, ConversationResponse, InstanceId,
    ReplyBody, SessionId, TaskId, TaskState, TaskSummary, UserMessage,
};
use rockbot_testkit::fixture::within_timeout;

use super::{
    is_end,
    planned_model::{Plan, PlannedModel},
};
use crate::{conversations::harness::Replicas, fleet::ProcessGroup, process::Running};

pub(super) struct Team {
    pub(super) model: PlannedModel,
    pub(super) replicas: Replicas,
    pub(super) agents: Vec<Running>,
    pub(super) client: AgentClient,
    pub(super) follow_ups: FollowUps,
    pub(super) session: SessionId,
    settings: Vec<(&'static str, &'static str)>,
}

impl Team {
    /// Starts the agent in one process.
    pub(super) async fn start(plan: Plan) -> Self {
        Self::start_with(plan, &[]).await
    }

    /// Starts the agent in one process, with additional settings.
    pub(super) async fn start_with(plan: Plan, settings: &[(&'static str, &'static str)]) -> Self {
        Self::start_as(Replicas::new("").await, plan, settings).await
    }

    /// Starts the agent in one process, with its conversations in `store`.
    pub(super) async fn start_on(store: String, plan: Plan) -> Self {
        Self::start_as(Replicas::on_store(store, "").await, plan, &[]).await
    }

    async fn start_as(
        replicas: Replicas,
        plan: Plan,
        settings: &[(&'static str, &'static str)],
    ) -> Self {
        let model = PlannedModel::start(plan).await;
        let replicas = replicas.with_model_server(model.base_url());
        let helper = "name = 'helper'\ndescription = 'Runs a command'\nsystem_prompt = 'Run it.'\n";
        replicas.fleet.write("agents/helper.toml", helper);
        let agents = vec![replicas.start_with("agent-1", settings).await];
        let bus = replicas.fleet.bus(|_| {}).await;
        let client = AgentClient::connect(bus, &InstanceId::generate()).await.expect("a queue");
        let follow_ups = client.follow_ups().expect("the first reader");
        let (session, settings) = (SessionId::generate(), settings.to_vec());
        Self { model, replicas, agents, client, follow_ups, session, settings }
    }

    /// Starts the agent in another process.
    pub(super) async fn start_replica(&mut self, instance: &str) {
        let agent = self.replicas.start_with(instance, &self.settings).await;
        self.agents.push(agent);
    }

    /// Kills the first process of the agent.
    pub(super) async fn kill_first(&mut self) {
        crate::conversations::harness::kill(self.agents.remove(0)).await;
    }

    /// Sends a message. Returns the answer and the names of the tools that were called.
    pub(super) async fn ask(&self, text: &str) -> (String, Vec<String>) {
        self.exchange(UserMessage::new(self.session.clone(), text)).await
    }

    /// Cancels the turn and its work. Returns the answer.
    pub(super) async fn cancel(&self) -> String {
        self.exchange(UserMessage::cancelling(self.session.clone())).await.0
    }

    async fn exchange(&self, message: UserMessage) -> (String, Vec<String>) {
        let mut replies = self.client.send(&self.replicas.agent, &message).await.expect("sent");
        let mut called = Vec::new();
        let answer = async {
            while let Some(reply) = replies.next().await {
                match reply.expect("a reply").body {
                    ReplyBody::ToolFinished { tool_name, .. } => called.push(tool_name),
                    ReplyBody::Answer { text, .. } => return text,
                    _ => {}
                }
            }
            panic!("the replies ended without an answer")
        };
        let text = within_timeout("an answer", answer).await;
        (text, called)
    }

    /// Waits for the next further answer.
    pub(super) async fn follow_up(&mut self) -> (Vec<TaskId>, String) {
        within_timeout("a follow-up", async {
            loop {
                let reply = self.follow_ups.next().await.expect("a reply");
                if let ReplyBody::FollowUp { task_ids, text, .. } = reply.body {
                    return (task_ids, text);
                }
            }
        })
        .await
    }

    /// Waits until a sub-agent ends in a state.
    pub(super) async fn ended(&mut self, state: TaskState) {
        within_timeout("the end of a sub-agent", async {
            while !is_end(&self.follow_ups.next().await.expect("a reply").body, state) {}
        })
        .await;
    }

    /// Waits for an approval request outside of a turn, and returns the decision to be sent and the agent that
    /// makes the call.
    pub(super) async fn approval(
        &mut self,
        decision: ApprovalDecision,
    ) -> (ApprovalAnswer, String) {
        within_timeout("an approval request", async {
            loop {
                let reply = self.follow_ups.next().await.expect("a reply");
                if let ReplyBody::ApprovalAsked { approval_id, call_hash, asking_agent, .. } =
                    reply.body
                {
                    let session_id = reply.session_id;
                    let answer = ApprovalAnswer {
                        session_id,
                        approval_id,
                        call_hash,
                        decision,
                        reason: None,
                    };
                    return (answer, asking_agent.to_string());
                }
            }
        })
        .await
    }

    /// Returns the work that the agent delegated.
    pub(super) async fn tasks(&self) -> Vec<TaskSummary> {
        let request = ConversationRequest::Tasks {};
        let response = self.client.request(&self.replicas.agent, &request).await;
        let ConversationResponse::Tasks { tasks } = response.expect("a response") else {
            panic!("another response")
        };
        tasks
    }

    /// Waits until a command has written its process id into a file.
    pub(super) async fn command(&self, file: &str) -> ProcessGroup {
        ProcessGroup::from_file(&self.replicas.fleet, file).await
    }

    /// Stops all processes in order.
    pub(super) async fn stop(self) {
        self.replicas.stop(self.agents).await;
    }
}
