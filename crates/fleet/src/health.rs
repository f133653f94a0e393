//! The fleet's checks in the detailed health: the systems that it calls, and its index.

use kernel::health::Check;
use kernel::outbound::Outbound;
use kernel::outbound::breaker::Phase;

use crate::Fleet;
use crate::ports::{ams, dns, prometheus, sso};

/// Events that the index may be behind: one read of the log.
const LAG_MAX: i64 = 1000;

/// Returns the state of what is configured, from what calls have met: it makes none.
pub fn checks(fleet: &Fleet, outbound: &Outbound) -> Vec<Check> {
    let ports = &fleet.ports;
    let systems = [
        (ports.sso_is_external, sso::SYSTEM),
        (ports.dns.is_some(), dns::SYSTEM),
        (ports.metrics.is_some(), prometheus::SYSTEM),
        (ports.ams.is_some(), ams::SYSTEM),
    ];
    let used = systems.into_iter().filter(|(used, _)| *used);
    let mut checks: Vec<Check> = used.map(|(_, name)| system(name, outbound.phase(name))).collect();
    let lag = fleet.store.wakeups().newest_event().saturating_sub(fleet.index.seq()).max(0);
    let state = format!("{lag} events behind the log");
    let result = if lag > LAG_MAX { Err(state) } else { Ok(state) };
    checks.push(Check { name: "fleet index".into(), result });
    checks
}

fn system(name: &str, breaker: Phase) -> Check {
    let result = match breaker {
        Phase::Closed => Ok("no repeated failures".into()),
        Phase::HalfOpen => Err("calls failed; one is being tried".into()),
        Phase::Open => Err("calls failed; none is made for a while".into()),
    };
    Check { name: name.into(), result }
}
