//! The state of a fleet.

use rockbot_bus::BusReport;
use rockbot_scripts::Isolation;
use rockbot_tool_rpc::catalog::KnownHandler;

use super::round_trip::{self, RoundTrip};
use crate::{
    failure::Failure,
    fleet::Fleet,
    settings::Settings,
    work_queues::{self, WorkQueue},
};

/// The state of a fleet.
#[derive(Debug)]
pub(super) struct Diagnosis {
    pub(super) bus: BusReport,
    pub(super) queues: Vec<WorkQueue>,
    pub(super) handlers: Vec<KnownHandler>,
    pub(super) round_trip: RoundTrip,
    pub(super) scripts: Option<ScriptIsolation>,
}

/// The isolation of scripts in this process, or why they cannot run.
pub(super) type ScriptIsolation = Result<Isolation, String>;

impl Diagnosis {
    /// Collects the state of a fleet.
    pub(super) async fn collect(settings: &Settings, fleet: &Fleet) -> Result<Self, Failure> {
        let names = work_queues::configured(settings)?;
        let discovered = fleet.discover_all("doctor").await?;
        let round_trip = round_trip::measure(fleet).await?;
        let (bus, queues) = work_queues::inspect(fleet.bus.as_ref(), &names).await?;
        let handlers = discovered.directory.handlers();
        let scripts = if settings.embeds() { script_isolation(settings).await } else { None };
        Ok(Self { bus, queues, handlers, round_trip, scripts })
    }
}

/// Starts the script runner of this process to determine its isolation.
async fn script_isolation(settings: &Settings) -> Option<ScriptIsolation> {
    match settings.scripts.start().await {
        Ok(None) => None,
        Ok(Some(scripts)) => {
            let isolation = scripts.isolation().clone();
            scripts.close().await;
            Some(Ok(isolation))
        }
        Err(error) => Some(Err(error.to_string())),
    }
}
