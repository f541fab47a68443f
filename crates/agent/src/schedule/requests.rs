//! Responses to requests of users about scheduled tasks.

use rockbot_contracts::{
    ScheduleRequest, ScheduleResponse,
    conversation::ConversationErrorCode,
    schedule::{FireInfo, LastFireInfo, ScheduledTaskInfo},
};
use rockbot_store::Timestamp;
use tracing::warn;

use super::{
    handle::{Creator, Schedule, ScheduleError},
    task::{LastFire, ScheduledTask},
    task_store::EditError,
};

impl Schedule {
    /// Responds to a request of the broker user `user`.
    pub(crate) async fn respond(
        &self,
        user: Option<&str>,
        request: ScheduleRequest,
    ) -> ScheduleResponse {
        let response = match request {
            ScheduleRequest::List {} => self.respond_list(user).await,
            ScheduleRequest::Add { task } => {
                let creator = Creator { session: None, user: user.map(str::to_owned) };
                self.add(task, creator).await.map(done)
            }
            ScheduleRequest::Cancel { name } => match self.cancel(&name, user).await {
                Ok(Some(message)) => Ok(done(message)),
                Ok(None) => Err(ScheduleError::NotFound(name)),
                Err(error) => Err(error),
            },
            ScheduleRequest::RunNow { name } => self.run_now(&name, user).await.map(done),
        };
        response.unwrap_or_else(|error| error_response(&error))
    }

    async fn respond_list(&self, user: Option<&str>) -> Result<ScheduleResponse, ScheduleError> {
        let (now, tasks) = self.list(user).await?;
        let agent_zone = self.agent_zone().await;
        let info = |task: ScheduledTask| {
            let zone = Self::zone_of(&task, agent_zone.as_ref()).name;
            info(task, zone)
        };
        let tasks = tasks.into_iter().map(info).collect();
        Ok(ScheduleResponse::Tasks { now_ms: unix_ms(now), tasks })
    }
}

fn done(message: String) -> ScheduleResponse {
    ScheduleResponse::Done { message }
}

fn info(task: ScheduledTask, timezone: String) -> ScheduledTaskInfo {
    let next = if task.running.is_none() { task.requested.or(task.due) } else { task.due };
    let running =
        task.running.map(|fire| FireInfo { fire_ms: unix_ms(fire.at), session_id: fire.session });
    let last = task.last.map(|last| {
        let LastFire { at, session, ended, outcome, text } = last;
        let fire = FireInfo { fire_ms: unix_ms(at), session_id: session };
        LastFireInfo { fire, ended_ms: unix_ms(ended), outcome, text }
    });
    ScheduledTaskInfo {
        name: task.name.to_string(),
        cron: task.cron,
        timezone,
        has_own_timezone: task.zone.is_some(),
        description: task.description,
        run_once: task.run_once,
        next_ms: next.map(unix_ms),
        running,
        last,
        fired: task.counts.fired,
        missed: task.counts.missed,
        overlapped: task.counts.overlapped,
        failed: task.counts.failed,
        created_ms: unix_ms(task.created.at),
        created_in: task.created.session,
        created_by_task: task.created.root.map(String::from),
    }
}

fn unix_ms(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or_default()
}

/// Returns the response for an error. The text of a store's error stays in the log.
fn error_response(error: &ScheduleError) -> ScheduleResponse {
    let (code, message) = match error {
        ScheduleError::NotFound(_) => (ConversationErrorCode::NotFound, error.to_string()),
        ScheduleError::Edit(EditError::Contended) => {
            (ConversationErrorCode::Busy, error.to_string())
        }
        ScheduleError::Edit(EditError::Store(_)) | ScheduleError::Conversation(_) => {
            warn!(%error, "request about scheduled tasks failed");
            let message = "the store of the scheduled tasks is unavailable; list the tasks before you \
                           try again";
            (ConversationErrorCode::Unavailable, message.to_owned())
        }
        ScheduleError::Name(_) | ScheduleError::Cron(_) | ScheduleError::Refused(_) => {
            (ConversationErrorCode::InvalidRequest, error.to_string())
        }
    };
    ScheduleResponse::Failed { code, message }
}
