//! Carries out the commands that come in over the bus: the same registry, validation, permission,
//! audit and idempotency as over REST.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use kernel::change::CommandReply;
use kernel::command::{Answer, Envelope, Origin, Sender, rejection};
use kernel::event_presenter::EventPresenter;
use kernel::identity::Principal;
use kernel::log::CommandState;
use kernel::telemetry::Trace;
use kernel::{App, Backoff, Class, Error, Json, Refusal, Result};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::follow::{Follower, Followers, Pending};
use crate::decide::check_age;
use crate::metrics::ConsumerStats;
use crate::model::{AnswerBody, CommandMessage};
use crate::ports::inward::{DeadLetter, Handler, Incoming, Reply, ReplyTo, Settled};

/// The issuer of identities that the configuration names.
pub const ISSUER: &str = "bus";
const DEAD: &str = "dead";
/// While the store is away.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// A command that needs what is away for longer is rejected, so that others are not held up. Not for the
/// store, without which nothing can be rejected, nor for the issuer of its token.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(10);

/// The intake of one consumer.
pub struct Intake {
    pub app: App,
    /// The consumer's name.
    pub consumer: String,
    /// In whose name commands of a verified author are carried out.
    pub identities: BTreeMap<String, Principal>,
    pub commands_days: u64,
    pub followers: Followers,
    pub stats: Arc<ConsumerStats>,
    pub stop: CancellationToken,
}

/// A command that was carried out, now or before.
struct Executed {
    message: CommandMessage,
    principal: Principal,
    answer: Answer,
    pending: Pending,
}

/// A command that was refused, with what is known of it.
struct Refused {
    error: Error,
    /// None: the message could not be understood. The principal is empty if it is not known.
    command: Option<(CommandMessage, Principal)>,
}

impl Refused {
    /// Whether it is tried again; one that is not `patient` waits for no system that is away.
    fn passes(&self, patient: bool) -> bool {
        let identified =
            self.command.as_ref().is_some_and(|(_, principal)| !principal.subject.is_empty());
        match &self.error {
            // Other commands about the same object were quicker.
            Error::Refused(Refusal::Stale { .. }) => true,
            Error::Busy { .. } => false,
            error => error.class() == Class::Transient && (patient || !identified),
        }
    }
}

#[async_trait]
impl Handler for Intake {
    /// Commands about the same object stay in order.
    fn lane(&self, incoming: &Incoming) -> u64 {
        #[derive(serde::Deserialize)]
        struct About {
            #[serde(default)]
            subject: Option<String>,
            #[serde(default)]
            id: Option<String>,
        }
        let about: Option<About> = serde_json::from_slice(&incoming.body).ok();
        let name = about.and_then(|about| about.subject.or(about.id));
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }

    fn receives(&self) {
        self.stats.set_up(&self.consumer, true);
    }

    fn buried(&self) {
        self.stats.count(&self.consumer, DEAD);
    }

    async fn handle(&self, incoming: Incoming, replies: &mpsc::Sender<Reply>) -> Settled {
        let trace = incoming.traceparent.as_deref().and_then(Trace::parse);
        let span =
            tracing::info_span!("command", consumer = self.consumer, id = tracing::field::Empty);
        if let Some(trace) = trace {
            trace.adopt(&span);
        }
        let trace = Trace::of_span(&span).or(trace);
        let trace = trace.unwrap_or_else(|| Trace::new(&self.app.ambient));
        let work = self.carry_out(incoming, trace, replies).instrument(span);
        kernel::telemetry::with_trace(trace, work).await
    }
}

impl Intake {
    async fn carry_out(
        &self,
        incoming: Incoming,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
    ) -> Settled {
        let begun = Instant::now();
        let (mut tries, mut failing_since) = (0, begun);
        loop {
            let patient = failing_since.elapsed() < UNAVAILABLE_MAX;
            match self.attempt(&incoming, trace, replies, patient).await {
                Ok((settled, outcome)) => {
                    self.stats.count(&self.consumer, outcome);
                    self.stats.took(&self.consumer, begun.elapsed());
                    return settled;
                }
                Err(error) => {
                    let wait = BACKOFF.delay(tries, self.app.ambient.fraction());
                    if tries == 0 {
                        tracing::warn!(
                            consumer = self.consumer,
                            error = error.with_causes(),
                            "a command cannot be carried out yet; will retry"
                        );
                    }
                    tries = tries.saturating_add(1);
                    if !patient {
                        // The store did not take the rejection. It may be why the command failed, so that
                        // the command has its time again.
                        failing_since = Instant::now();
                    }
                    let waiting = tokio::time::sleep(wait);
                    if self.stop.run_until_cancelled(waiting).await.is_none() {
                        return Settled::Abandoned;
                    }
                }
            }
        }
    }

    /// One try. An error passes.
    async fn attempt(
        &self,
        incoming: &Incoming,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
        patient: bool,
    ) -> Result<(Settled, &'static str)> {
        let origin = Origin::Bus(self.consumer.clone());
        match self.execute(incoming, &origin, trace).await {
            Ok(executed) => self.tell(incoming.reply_to.as_ref(), executed, trace, replies).await,
            Err(refused) if refused.passes(patient) => Err(refused.error),
            Err(Refused { error, command }) => {
                self.refuse(incoming, &origin, trace, error, command, replies).await
            }
        }
    }

    /// Tells the sender what its record says.
    async fn tell(
        &self,
        to: Option<&ReplyTo>,
        executed: Executed,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
    ) -> Result<(Settled, &'static str)> {
        let Executed { message, answer, .. } = &executed;
        if answer.reply.status >= 400 {
            return Ok(self.tell_rejection(to, &message.id, &answer.reply, trace, replies));
        }
        if let Some(to) = to {
            self.tell_progress(to, executed, trace, replies).await?;
        }
        Ok((Settled::Done, "accepted"))
    }

    async fn execute(
        &self,
        incoming: &Incoming,
        origin: &Origin,
        trace: Trace,
    ) -> std::result::Result<Executed, Refused> {
        let not_understood = |error| Refused { error, command: None };
        let message = understand(incoming).map_err(not_understood)?;
        message.check().map_err(not_understood)?;
        tracing::Span::current().record("id", &message.id);
        let principal = match self.identify(&message, incoming.author.as_deref()).await {
            Ok(principal) => principal,
            Err(error) => {
                return Err(Refused { error, command: Some((message, Principal::default())) });
            }
        };
        let sender =
            Sender { principal: &principal, origin, request_id: &message.id, trace: Some(trace) };
        let pending = self.followers.begin(&message.id);
        let done = async {
            check_age(message.issued_at, self.app.ambient.now(), self.commands_days)?;
            self.app.commands().execute(&self.app, sender, &message.envelope()).await
        };
        match done.await {
            Ok(answer) => Ok(Executed { message, principal, answer, pending }),
            Err(error) => Err(Refused { error, command: Some((message, principal)) }),
        }
    }

    /// Who sends the command: by a token in it, or by who the broker says.
    async fn identify(&self, message: &CommandMessage, author: Option<&str>) -> Result<Principal> {
        if let Some(token) = &message.token {
            let principal = self.app.identity.authenticate(token.expose()).await?;
            return Ok(Principal::clone(&principal));
        }
        let known = author.and_then(|author| self.identities.get(author));
        known.cloned().ok_or_else(|| {
            let who = match author {
                Some(author) => format!("`{author}` has no identity in the configuration"),
                None => "the broker does not say who sent it".into(),
            };
            Error::Forbidden(format!("the sender is not known: there is no token, and {who}"))
        })
    }

    /// Records that a command is refused, and tells its sender. A message that could not be understood
    /// becomes a dead letter. A command that was carried out before stays so, whatever is wrong with the
    /// message that repeats it.
    async fn refuse(
        &self,
        incoming: &Incoming,
        origin: &Origin,
        trace: Trace,
        error: Error,
        command: Option<(CommandMessage, Principal)>,
        replies: &mpsc::Sender<Reply>,
    ) -> Result<(Settled, &'static str)> {
        let (envelope, principal, id) = match &command {
            Some((message, principal)) => {
                (message.envelope(), principal.clone(), message.id.as_str())
            }
            None => (Envelope::new("unknown", None, Json::default()), Principal::default(), ""),
        };
        let sender = Sender { principal: &principal, origin, request_id: id, trace: Some(trace) };
        // Before the record is read, so that nothing is missed that happens after.
        let pending = self.followers.begin(id);
        let recorded = self.app.commands().reject(&self.app, sender, &envelope, &error).await;
        let answer = match recorded {
            // To try again would hold up what comes after it.
            Err(failed) if failed.class() != Class::Transient => {
                tracing::error!(
                    consumer = self.consumer,
                    id,
                    error = failed.with_causes(),
                    "recording a rejection failed"
                );
                Answer { reply: rejection(&error), subject: None, replayed: false }
            }
            recorded => recorded?,
        };
        tracing::info!(
            consumer = self.consumer,
            id,
            reason = error.with_causes(),
            repeated = answer.replayed,
            "rejected a message"
        );
        let to = incoming.reply_to.as_ref();
        match command {
            Some((message, _)) => {
                let executed = Executed { message, principal, answer, pending };
                self.tell(to, executed, trace, replies).await
            }
            // It is not known whom an answer would help.
            None => Ok(self.tell_rejection(None, id, &answer.reply, trace, replies)),
        }
    }

    /// Tells the sender that a command is rejected; without a reply address it becomes a dead letter.
    fn tell_rejection(
        &self,
        to: Option<&ReplyTo>,
        id: &str,
        reply: &CommandReply,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
    ) -> (Settled, &'static str) {
        let Some(to) = to else {
            #[derive(serde::Deserialize)]
            struct Rejection {
                message: String,
                field: Option<String>,
            }
            let letter = match reply.body.parse::<Rejection>() {
                Ok(Rejection { message, field }) => DeadLetter { reason: message, field },
                Err(_) => DeadLetter { reason: reply.body.text().into(), field: None },
            };
            return (Settled::Dead(letter), DEAD);
        };
        let (state, status, body) = (CommandState::Rejected, Some(reply.status), &reply.body);
        self.answer(to, &AnswerBody { id, state, status, body, event: None }, trace, replies);
        (Settled::Done, "rejected")
    }

    /// Tells the sender that a command is accepted, and from then on how it goes on.
    async fn tell_progress(
        &self,
        to: &ReplyTo,
        executed: Executed,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
    ) -> Result<()> {
        let Executed { message, principal, answer, pending } = executed;
        let (id, body) = (message.id.as_str(), &answer.reply.body);
        // It may be over already: it was carried out before, or had nothing to write. Asked before anything
        // is answered: an error repeats all of it.
        let (mut state, mut event) = (CommandState::Done, None);
        if answer.replayed {
            let now = kernel::command::status(&self.app, &principal, id).await?;
            (state, event) = (now.state, now.event);
        }
        let status = Some(answer.reply.status);
        let accepted = AnswerBody { id, state: CommandState::Accepted, status, body, event: None };
        self.answer(to, &accepted, trace, replies);
        let over = matches!(state, CommandState::Done | CommandState::Superseded);
        match answer.subject {
            Some(object) if !(answer.replayed && over) => {
                let presenter = EventPresenter::new(self.app.kinds(), Arc::new(principal));
                let (command, to) = (message.id, to.clone());
                let (replies, own) = (replies.clone(), event);
                pending.follow(object, Follower { command, presenter, to, replies, own });
            }
            _ => {
                let last = AnswerBody { id, state, status: None, body, event };
                self.answer(to, &last, trace, replies);
            }
        }
        Ok(())
    }

    /// A courtesy: nothing waits for it.
    fn answer(
        &self,
        to: &ReplyTo,
        answer: &AnswerBody<'_>,
        trace: Trace,
        replies: &mpsc::Sender<Reply>,
    ) {
        let to = to.clone();
        let body = Bytes::from(serde_json::to_vec(answer).expect("our own types serialise"));
        let answer = Reply { to, body, traceparent: Some(trace.to_string()) };
        // Its sender can ask how the command went.
        if let Err(error) = replies.try_send(answer) {
            tracing::warn!(consumer = self.consumer, %error, "dropped an answer");
        }
    }
}

fn understand(incoming: &Incoming) -> Result<CommandMessage> {
    let Some(bare) = &incoming.bare else { return kernel::http::parse_json(&incoming.body) };
    let body = kernel::http::parse_json(&incoming.body)?;
    Ok(CommandMessage::bare(&bare.command, &bare.id, bare.issued_at, body))
}
