//! The configuration of the process.

use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{
    AgentName, Envelope, Message, ToolInvokeRequest,
    identity::{CLI, CallerPolicy, User, is_agent_user},
};
use rockbot_gateway::{ConnectionSection, FaceName, GatewaySection};
use rockbot_mcp_server::McpServerSection;
use rockbot_service::{Configuration, ServiceSection};

/// The validated sections.
pub(crate) struct Settings {
    pub(crate) service: ServiceSection,
    pub(super) bus: BusSection,
    pub(crate) gateway: GatewaySection,
    pub(crate) mcp_server: McpServerSection,
}

impl Settings {
    /// Reads and validates all sections.
    pub(crate) fn read(configuration: &mut Configuration) -> Self {
        let settings = Self {
            service: configuration.section("service"),
            bus: configuration.section("bus"),
            gateway: configuration.section("gateway"),
            mcp_server: configuration.section("mcp_server"),
        };
        let production = settings.service.is_production();
        if settings.gateway.faces.contains(&FaceName::Mcp) && settings.gateway.calls.url.is_none() {
            configuration.problem("gateway.calls.url: the face \"mcp\" calls tools and needs it");
        }
        if settings.gateway.call_tools && settings.gateway.calls.url.is_none() {
            configuration.problem("gateway.calls.url: gateway.call_tools calls tools and needs it");
        }
        let GatewaySection { watch, letters, calls, .. } = &settings.gateway;
        let further = [watch, letters, calls]
            .into_iter()
            .filter_map(|connection| settings.rabbit(connection, ""));
        let rabbit = RabbitConfig::from_section(&settings.bus, "");
        let problems =
            further.chain([rabbit]).flat_map(|rabbit| rabbit.validation_errors(production));
        let problems = problems.chain(settings.mcp_server.validate());
        let remote = settings.remote_agent_problems(production);
        for problem in
            settings.gateway.validate(production).into_iter().chain(problems).chain(remote)
        {
            configuration.problem(problem);
        }
        settings
    }

    /// Returns the problems of the connections for the tasks of remote agents.
    fn remote_agent_problems(&self, production: bool) -> Vec<String> {
        let (mut problems, namespace) = (Vec::new(), &self.bus.namespace);
        for (name, agent) in &self.gateway.remote_agents {
            let key = format!("gateway.remote_agents.{name}.bus_url");
            let rabbit = ConnectionSection { url: agent.bus_url.clone() };
            let rabbit = self.rabbit(&rabbit, "");
            let shared = rabbit.is_none().then(|| RabbitConfig::from_section(&self.bus, ""));
            let expected = User::Agent(name.clone()).name(namespace);
            let user = rabbit.as_ref().or(shared.as_ref()).and_then(RabbitConfig::user);
            let is_fleet_user =
                |user: &&str| is_agent_user(user) || User::service_of(user).is_some();
            if user.as_deref().filter(is_fleet_user).is_some_and(|user| user != expected) {
                problems.push(format!(
                    "{key}: its user may not act as the agent; set the URL of the user {expected}"
                ));
            }
            problems
                .extend(rabbit.into_iter().flat_map(|rabbit| rabbit.validation_errors(production)));
        }
        problems
    }

    /// Returns the name of the caller whose broker user calls tools: that of the agent, or `cli`.
    /// `None` if the user is no caller.
    pub(crate) fn caller(&self) -> Option<AgentName> {
        let user = self.rabbit(&self.gateway.calls, "").and_then(|rabbit| rabbit.user());
        let mut request = Envelope::raw(ToolInvokeRequest::TYPE, Vec::new()).with_source(CLI);
        request.user_id = user.map(Into::into);
        // A user that is an agent may not call as `cli`.
        if CallerPolicy::Any.admit(&request).is_err() {
            request.source = None;
        }
        CallerPolicy::Any.admit(&request).ok().flatten()
    }

    /// Returns the configuration of a further connection, with the namespace and the certificates of `[bus]`.
    pub(super) fn rabbit(
        &self,
        connection: &ConnectionSection,
        name: &str,
    ) -> Option<RabbitConfig> {
        let url = connection.url.clone()?;
        let section = BusSection { url, ..self.bus.clone() };
        Some(RabbitConfig::from_section(&section, name))
    }
}
