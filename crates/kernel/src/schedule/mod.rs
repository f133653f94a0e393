//! Schedules: commands that are carried out at certain times. Each planned time is a command id of
//! its own, so that a command is carried out once, across replicas, crashes and clocks that jump.

mod commands;
mod cron;
mod decide;
mod work;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::command::Envelope;
use crate::identity::Principal;
use crate::kind::{KindInfo, Presenter};
use crate::typed::Kind;
use crate::{Error, Object, Result, Timestamp};

pub use commands::{Create, Delete, NewSchedule};
pub use cron::Cron;
pub use decide::{Plan, Request, create, delete, plan};
pub use work::{Execute, ScheduleWorker};

pub const KIND: &str = "schedule";

pub fn kind() -> KindInfo {
    KindInfo::new(KIND, "schedules", Presenter::Whole)
}

/// The desired state of a schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    pub cron: String,
    /// The name of a time zone, as in `Europe/Berlin`.
    pub zone: String,
    pub catch_up: CatchUp,
    /// Without an id: each planned time has one.
    pub command: Envelope,
    /// Whose rights the command has: those of the schedule's maker at that time, without admin roles.
    pub run_as: Principal,
}

crate::labels! { pub enum Phase { Active = "active", Deleted = "deleted" } }

impl Kind for Spec {
    type Phase = Phase;
    type Status = Status;
}

/// What happens to times that passed while nothing could be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// Nothing: the next time counts.
    #[default]
    Skip,
    /// The command is carried out once for all of them.
    Once,
}

/// The observed state of a schedule.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The latest planned time that needs nothing more: carried out, failed or skipped. Never goes
    /// back, whatever clocks do.
    pub handled: Option<Timestamp>,
    pub next: Option<Timestamp>,
    /// How the last run ended.
    pub last: Option<Run>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub planned: Timestamp,
    pub at: Timestamp,
    /// `done`, `skipped`, or what went wrong.
    pub result: String,
}

impl Spec {
    /// The parsed times.
    pub fn times(&self) -> Result<(Cron, TimeZone)> {
        let cron = Cron::parse(&self.cron).map_err(|wrong| Error::invalid("cron", wrong))?;
        let zone = TimeZone::get(&self.zone).map_err(|_| {
            let wrong = format!("`{}` is not a time zone, such as UTC or Europe/Berlin", self.zone);
            Error::invalid("zone", wrong)
        })?;
        Ok((cron, zone))
    }
}

/// The id of the command of one planned time.
pub fn command_id(schedule: &Object, planned: Timestamp) -> String {
    format!("{KIND}/{}/{planned}", schedule.key.id())
}
